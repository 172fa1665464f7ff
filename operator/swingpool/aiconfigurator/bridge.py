"""A script for an interpreter that has AIConfigurator 0.12: requests in, answers out, one JSON object a line.

It is run by path, never imported: that interpreter need not have Swingpool, nor this one AIConfigurator. Each request
names what it `ask`s for: `recommend`, `worker`, `plan` or `points`. An answer has the request's `id`, and either
`answer` or `error`.
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


def worker(request: dict[str, Any]) -> dict[str, Any]:
    """Return what one worker does in a role, alone: requests per second, and the latency that its role causes."""
    size, batch, role = request["tensor_parallel_size"], request["batch"], request["role"]
    if role == "both":
        found = _estimate(request, mode="agg", tp_size=size, batch_size=batch)
        return {"requests_per_s": float(found.raw["seq/s"]), "ttft_ms": found.ttft, "tpot_ms": found.tpot}
    sides = {
        f"{side}_{name}": value
        for side in ("prefill", "decode")
        for name, value in (("tp_size", size), ("batch_size", batch if side == role else 1), ("num_workers", 1))
    }
    found = _estimate(request, mode="disagg", **sides)
    column = "(p)seq/s/worker" if role == "prefill" else "(d)seq/s/worker"
    return {"requests_per_s": float(found.raw[column]), "ttft_ms": found.ttft, "tpot_ms": found.tpot}


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
    """Return estimated times of prefills and of decode steps, the memory a worker takes, and which tables were used."""
    size = request["tensor_parallel_size"]
    prefill = []
    for tokens in request["prompts"]:
        found = _estimate(request | {"isl": tokens, "osl": 2}, mode="static_ctx", tp_size=size, batch_size=1)
        prefill.append({"seconds": found.ttft / 1e3, "prompts": 1, "prompt_tokens": tokens})
    decode = []
    for batch in request["batches"]:
        for context in request["contexts"]:
            found = _estimate(
                request | {"isl": context, "osl": 2}, mode="static_gen", tp_size=size, batch_size=batch, stride=1
            )
            decode.append({"seconds": found.tpot / 1e3, "sequences": batch, "context_tokens": context})
    return {
        "points": prefill + decode,
        "backend_version": found.backend_version,
        "memory_gib": _plain(getattr(found, "memory", None)),
    }


ASKED: dict[str, Callable[[dict[str, Any]], dict[str, Any]]] = {
    "recommend": recommend,
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
