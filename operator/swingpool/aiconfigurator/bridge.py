"""A script for an interpreter that has AIConfigurator 0.12: requests in, answers out, one JSON object a line.

It is run by path, never imported: that interpreter need not have Swingpool, nor this one AIConfigurator. Each request
names what it `ask`s for: `recommend`, `workers`, `both_roles`, `worker`, `plan` or `points`. An answer has the `id` of
the request, and either `answer` or `error`.
"""

import copy
import json
import logging
import sys
import warnings
from collections.abc import Callable
from typing import Any

DATABASE = "HYBRID"
"""The mode in which `recommend` looks up its tables; estimates are taken in the same one."""

FAR = 1.5
"""Times of a token over the objective from which on larger batches are not looked at."""

PREFILL_SCALE, DECODE_SCALE = 1.1, 1.08
"""By which its estimates of separate roles multiply latencies."""


def _estimate(request: dict[str, Any], **settings: Any) -> Any:
    from aiconfigurator.cli.api import cli_estimate

    return cli_estimate(
        request["model"],
        request["system"],
        backend_name=request["backend"],
        database_mode=DATABASE,
        isl=request["isl"],
        osl=request["osl"],
        **settings,
    )


def recommend(request: dict[str, Any]) -> dict[str, Any]:
    """Return AIConfigurator's own plan: the fewest accelerators that it finds for a rate."""
    from aiconfigurator.cli.api import cli_recommend

    result = cli_recommend(
        request["model"],
        request["system"],
        target_request_rate=request["requests_per_s"],
        backend=request["backend"],
        database_mode=DATABASE,
        isl=request["isl"],
        osl=request["osl"],
        ttft=request["ttft_ms"],
        tpot=request["tpot_ms"],
    )
    found: dict[str, Any] = {"chosen": result.chosen_exp}
    for name, table in result.best_configs.items():
        if not table.empty:
            row = table.iloc[0]
            found[name] = {
                key: _plain(row[key])
                for key in (
                    "total_gpus_needed",
                    "replicas_needed",
                    "ttft",
                    "tpot",
                    "parallel",
                    "(p)parallel",
                    "(p)workers",
                    "(d)parallel",
                    "(d)workers",
                    "seq/s",
                    "bs",
                    "(p)bs",
                    "(d)bs",
                )
                if key in row
            }
    return found


def workers(request: dict[str, Any]) -> dict[str, Any]:
    """Return what one worker does alone at each batch that fits: requests per second, and the latencies of its role."""
    session, _ = _session(request)
    mode, scale = ("static_ctx", PREFILL_SCALE) if request["role"] == "prefill" else ("static_gen", DECODE_SCALE)
    rows = []
    for batch in request["batches"]:
        runtime = _runtime(batch, request["isl"], request["osl"])
        summary = session.run_static(runtime_config=runtime, mode=mode, latency_correction_scale=scale)
        if summary.check_oom() or summary.check_kv_cache_oom():
            break
        found = summary.get_result_dict()
        rows.append(
            {
                "batch": batch,
                "requests_per_s": float(found["seq/s"]),
                "ttft_ms": float(found["ttft"]),
                "tpot_ms": float(found["tpot"]),
            }
        )
    return {"rows": rows}


def both_roles(request: dict[str, Any]) -> dict[str, Any]:
    """Return the batch and chunk with which one worker for both roles serves most within the objectives, if any does.

    `chunks` are tokens of prompts in an iteration. Its own search takes whole prompts only.
    """
    from aiconfigurator_core.sdk.backends.base_backend import BaseBackend

    run, made = BaseBackend.run_agg, []

    def noting(self: Any, *arguments: Any, **settings: Any) -> Any:
        made.append((self, arguments, settings))
        return run(self, *arguments, **settings)

    BaseBackend.run_agg = noting
    try:
        _estimate(request, mode="agg", tp_size=request["tensor_parallel_size"], batch_size=1, ctx_tokens=512)
    finally:
        BaseBackend.run_agg = run
    backend, (model, database, runtime), settings = made[0]
    best: dict[str, Any] = {}
    for chunk in request["chunks"]:
        for batch in request["batches"]:
            asked = copy.copy(runtime)
            asked.batch_size = batch
            summary = run(backend, model, database, asked, **(settings | {"ctx_tokens": chunk}))
            if summary.check_oom() or summary.check_kv_cache_oom():
                break
            found = summary.get_result_dict()
            if found["tpot"] > FAR * request["tpot_ms"]:
                break
            within = found["tpot"] <= request["tpot_ms"] and found["ttft"] <= request["ttft_ms"]
            if within and float(found["seq/s"]) > best.get("requests_per_s", 0.0):
                best = {"batch": batch, "chunk": chunk, "requests_per_s": float(found["seq/s"])}
    return best


def worker(request: dict[str, Any]) -> dict[str, Any]:
    """Return what AIConfigurator estimates of one worker for both roles."""
    found = _estimate(
        request,
        mode="agg",
        tp_size=request["tensor_parallel_size"],
        batch_size=request["batch"],
        ctx_tokens=request["chunk"],
    )
    return {"requests_per_s": float(found.raw["seq/s"]), "ttft_ms": float(found.ttft), "tpot_ms": float(found.tpot)}


def plan(request: dict[str, Any]) -> dict[str, Any]:
    """Return what AIConfigurator estimates of a whole plan, prefill and decode workers apart."""
    sides = {
        f"{side}_{name}": request[side][key]
        for side in ("prefill", "decode")
        for name, key in (("tp_size", "tensor_parallel_size"), ("batch_size", "batch"), ("num_workers", "workers"))
    }
    found = _estimate(request, mode="disagg", **sides)
    raw = found.raw
    return {
        "requests_per_s": float(raw["seq/s"]),
        "ttft_ms": found.ttft,
        "tpot_ms": found.tpot,
        "accelerators": int(raw["num_total_gpus"]),
    }


def points(request: dict[str, Any]) -> dict[str, Any]:
    """Return estimated times of prefills, decode steps and iterations that do both, and how much KV cache there is.

    Mixed iterations compute one whole prompt of each length beside sequences whose contexts are as long.
    """
    from aiconfigurator_core.sdk.memory import estimate_kv_cache
    from aiconfigurator_core.sdk.step_estimate import MixedStepInput

    size = request["tensor_parallel_size"]
    session, version = _session(request)
    found = [
        {"seconds": _static_s(session, "static_ctx", 1, tokens, "ttft"), "prompts": 1, "prompt_tokens": tokens}
        for tokens in request["prompts"]
    ]
    for batch in request["batches"]:
        found += [
            {
                "seconds": _static_s(session, "static_gen", batch, context, "tpot"),
                "sequences": batch,
                "context_tokens": context,
            }
            for context in request["contexts"]
        ]
    for batch in request["mixed_batches"]:
        for tokens in request["mixed_prompts"]:
            step = MixedStepInput(context_tokens=tokens, num_decode_requests=batch)
            seconds = session.run_mixed(_runtime(1, tokens), step).latency_ms / 1e3
            mixed = {"sequences": batch, "context_tokens": tokens, "prompts": 1, "prompt_tokens": tokens}
            found.append({"seconds": seconds, **mixed})
    memory = estimate_kv_cache(
        request["model"],
        request["system"],
        request["backend"],
        version,
        max_num_tokens=request["max_batched_tokens"],
        max_batch_size=max(request["batches"]),
        memory_fraction_kind="of_total",
        memory_fraction_value=request["memory_share"],
        tp_size=size,
    )
    return {
        "points": found,
        "backend_version": version,
        "kv_capacity_tokens": int(memory["total_kv_size_tokens"]),
        "kv_bytes_per_token": float(memory["kv_size_per_token_bytes"]) * size,
    }


def _session(request: dict[str, Any]) -> tuple[Any, str]:
    """Return the session that an estimate makes, to take many without making it anew, and its tables' version."""
    from aiconfigurator.sdk.inference_session import InferenceSession

    made: list[Any] = []
    run_static = InferenceSession.run_static

    def noting(self: Any, *arguments: Any, **settings: Any) -> Any:
        made.append(self)
        return run_static(self, *arguments, **settings)

    InferenceSession.run_static = noting
    try:
        size = request["tensor_parallel_size"]
        found = _estimate(request | {"isl": 128, "osl": 2}, mode="static_ctx", tp_size=size, batch_size=1)
    finally:
        InferenceSession.run_static = run_static
    return made[0], found.backend_version


def _runtime(batch: int, isl: int, osl: int = 2) -> Any:
    from aiconfigurator.sdk.config import RuntimeConfig

    return RuntimeConfig(batch_size=batch, isl=isl, osl=osl)


def _static_s(session: Any, mode: str, batch: int, tokens: int, figure: str) -> float:
    summary = session.run_static(runtime_config=_runtime(batch, tokens), mode=mode, stride=1)
    return float(summary.get_result_dict()[figure]) / 1e3


ASKED: dict[str, Callable[[dict[str, Any]], dict[str, Any]]] = {
    "recommend": recommend,
    "workers": workers,
    "both_roles": both_roles,
    "worker": worker,
    "plan": plan,
    "points": points,
}


def _remember_yaml() -> None:
    """Parse each YAML text once: AIConfigurator reads its hundreds of small files anew for every estimate."""
    import yaml

    parsed: dict[str, Any] = {}

    def safe_load(stream: Any) -> Any:
        text = stream if isinstance(stream, str) else stream.read()
        text = text.decode() if isinstance(text, bytes) else text
        if text not in parsed:
            parsed[text] = yaml.load(text, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader))  # noqa: S506
        return copy.deepcopy(parsed[text])

    yaml.safe_load = safe_load


def _plain(value: Any) -> Any:
    """Return a figure of numpy or pandas as JSON has it."""
    return value.item() if hasattr(value, "item") else value


def main() -> None:
    """Answer the requests on standard input, one by one."""
    warnings.simplefilter("ignore")
    answers, sys.stdout = sys.stdout, sys.stderr
    logging.disable(logging.WARNING)
    _remember_yaml()
    for line in sys.stdin:
        request = json.loads(line)
        try:
            answer: dict[str, Any] = {"answer": ASKED[request["ask"]](request)}
        except Exception as error:  # whatever it raises is the answer to this request, and the next is another
            answer = {"error": f"{type(error).__name__}: {error}"}
        print(json.dumps(answer | {"id": request["id"]}), file=answers, flush=True)


if __name__ == "__main__":
    main()
