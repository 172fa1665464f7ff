"""Plans for AIConfigurator's shapes, from its own figures of single workers, by the sizing programme."""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from benchmarks.peer_answers import Answers
from swingpool.aiconfigurator.client import RefusedError
from swingpool_control import names
from swingpool_control.sizing.programme import PoolOption, Problem, Rates, solve

SIZES = (1, 2, 4, 8)
"""Tensor parallel sizes of one worker."""
PREFILL_BATCHES = (1, 2, 3, 4, 6, 8)
DECODE_BATCHES = (*range(1, 32), *range(32, 128, 4), *range(128, 520, 8))
CHUNKS = (128, 192, 256, 320, 384, 448, 512, 576, 640, 704, 768, 896, 1024, 1280, 1536, 2048, 3072, 4096, 6144, 8192)
"""Tokens of prompts in an iteration of workers for both roles."""
BOTH_BATCHES = (*range(1, 64), *range(64, 256, 4))
TTFT_QUEUEING = 1.8
"""By which AIConfigurator multiplies a prefill's time to get the TTFT of a plan."""
DEGRADED = {names.ROLE_PREFILL: 0.9, names.ROLE_DECODE: 0.92}
"""What of a worker's rate AIConfigurator counts when it matches rates."""
MOST_WORKERS = 2000


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """What is asked of AIConfigurator and of us."""

    model: str
    system: str
    isl: int
    osl: int
    ttft_ms: float
    tpot_ms: float
    requests_per_s: float

    @property
    def name(self) -> str:
        """Return it in a few words."""
        return f"{self.model.rsplit('/', 1)[-1]} {self.system} {self.isl}/{self.osl} {self.requests_per_s:g}/s"

    def request(self, ask: str, **more: Any) -> dict[str, Any]:
        """Return a request of the bridge about it."""
        of_load = ("ttft_ms", "tpot_ms", "requests_per_s") if ask == "recommend" else ()
        fields = {name: getattr(self, name) for name in ("model", "system", "isl", "osl", *of_load)}
        return {"ask": ask, "backend": "vllm", **fields, **more}


@dataclass(frozen=True, slots=True, kw_only=True)
class Worker:
    """One layout of a worker, at the batch at which it serves most within the objectives."""

    size: int
    batch: int
    requests_per_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """A plan, and what AIConfigurator estimates of it."""

    accelerators: int
    words: str
    requests_per_s: float
    ttft_ms: float
    tpot_ms: float

    def holds(self, shape: Shape) -> bool:
        """Whether it serves the rate within the objectives."""
        return (
            self.requests_per_s >= shape.requests_per_s
            and self.ttft_ms <= shape.ttft_ms
            and self.tpot_ms <= shape.tpot_ms
        )


def recommended(answers: Answers, shape: Shape) -> int | None:
    """Return the fewest accelerators of any of AIConfigurator's recommendations; None if none is within the objectives.

    It recommends something even then.
    """
    answer = answers.ask(shape.request("recommend"))
    within = [
        int(found["total_gpus_needed"])
        for found in answer.values()
        if isinstance(found, dict) and found["tpot"] <= shape.tpot_ms and found["ttft"] <= shape.ttft_ms
    ]
    return min(within, default=None)


def split(answers: Answers, shape: Shape) -> Plan | None:
    """Return the plan of fewest accelerators with workers of one role, judged; None if no layout holds."""
    prefills = tuple(_each(answers, shape, names.ROLE_PREFILL, PREFILL_BATCHES))
    decodes = tuple(_each(answers, shape, names.ROLE_DECODE, DECODE_BATCHES))
    pairs = [(prefill, decode, *_matched(shape, prefill, decode)) for prefill in prefills for decode in decodes]
    if not pairs:
        return None
    prefill, decode, few, many = min(
        pairs, key=lambda pair: (pair[2] * pair[0].size + pair[3] * pair[1].size, pair[2] + pair[3])
    )
    judged = answers.ask(
        shape.request(
            "plan",
            prefill={"tensor_parallel_size": prefill.size, "batch": prefill.batch, "workers": few},
            decode={"tensor_parallel_size": decode.size, "batch": decode.batch, "workers": many},
        )
    )
    return Plan(
        accelerators=judged["accelerators"],
        words=f"{few} x TP{prefill.size} prefill, {many} x TP{decode.size} decode of {decode.batch}",
        requests_per_s=judged["requests_per_s"],
        ttft_ms=judged["ttft_ms"],
        tpot_ms=judged["tpot_ms"],
    )


def together(answers: Answers, shape: Shape) -> Plan | None:
    """Return AIConfigurator's own plan of workers that do both roles at once; None if it is out of the objectives.

    Such a plan has no rates to match: its workers are all alike, and as many as the rate takes.
    """
    found = answers.ask(shape.request("recommend")).get("agg")
    if found is None or found["tpot"] > shape.tpot_ms or found["ttft"] > shape.ttft_ms:
        return None
    return Plan(
        accelerators=int(found["total_gpus_needed"]),
        words=f"{found['replicas_needed']} x {found['parallel']} of {found['bs']} in both roles, as it recommends",
        requests_per_s=found["replicas_needed"] * found["seq/s"],
        ttft_ms=found["ttft"],
        tpot_ms=found["tpot"],
    )


def chunked(answers: Answers, shape: Shape) -> Plan | None:
    """Return the plan of fewest accelerators with workers for both roles that cut prompts into chunks, judged."""
    best: tuple[int, int, dict[str, Any]] | None = None
    for size in SIZES:
        try:
            found = answers.ask(
                shape.request(
                    "both_roles",
                    tensor_parallel_size=size,
                    chunks=list(CHUNKS),
                    batches=list(BOTH_BATCHES),
                    ttft_ms=shape.ttft_ms,
                    tpot_ms=shape.tpot_ms,
                )
            )
        except RefusedError:
            continue
        if found:
            workers = math.ceil(shape.requests_per_s / found["requests_per_s"])
            if best is None or workers * size < best[0] * best[1]:
                best = workers, size, found
    if best is None:
        return None
    workers, size, found = best
    judged = answers.ask(shape.request("worker", tensor_parallel_size=size, batch=found["batch"], chunk=found["chunk"]))
    return Plan(
        accelerators=workers * size,
        words=f"{workers} x TP{size} of {found['batch']} in both roles, prompts in chunks of {found['chunk']}",
        requests_per_s=workers * judged["requests_per_s"],
        ttft_ms=judged["ttft_ms"],
        tpot_ms=judged["tpot_ms"],
    )


def _matched(shape: Shape, prefill: Worker, decode: Worker) -> tuple[int, int]:
    """Return how many prefill and decode workers the programme chooses, an accelerator costing one."""
    pools = tuple(
        PoolOption(
            name=role,
            rates={role: Rates(steps=((1, worker.requests_per_s * DEGRADED[role]),))},
            fewest=0,
            most=MOST_WORKERS,
            price_per_hour=worker.size,
        )
        for role, worker in ((names.ROLE_PREFILL, prefill), (names.ROLE_DECODE, decode))
    )
    need = dict.fromkeys(DEGRADED, shape.requests_per_s)
    counts = solve(Problem(pools=pools, need=need)).counts()
    return counts[names.ROLE_PREFILL], counts[names.ROLE_DECODE]


def _each(answers: Answers, shape: Shape, role: str, batches: tuple[int, ...]) -> Iterator[Worker]:
    for size, row in _best(answers, shape, role, batches):
        yield Worker(size=size, batch=row["batch"], requests_per_s=row["requests_per_s"])


def _best(answers: Answers, shape: Shape, role: str, batches: tuple[int, ...]) -> Iterator[tuple[int, dict[str, Any]]]:
    """Yield for each tensor parallel size the batch that serves most within the objectives, if one is within them.

    AIConfigurator's times do not rise with every batch, so all of them are looked at.
    """
    for size in SIZES:
        try:
            answer = answers.ask(shape.request("workers", role=role, tensor_parallel_size=size, batches=list(batches)))
        except RefusedError:
            continue
        within = [row for row in answer["rows"] if _within(shape, role, row)]
        if within:
            yield size, max(within, key=lambda row: row["requests_per_s"])


def _within(shape: Shape, role: str, row: dict[str, Any]) -> bool:
    """Whether a worker is within the objective of its role."""
    if role == names.ROLE_PREFILL:
        return bool(row["ttft_ms"] * TTFT_QUEUEING <= shape.ttft_ms)
    return bool(row["tpot_ms"] <= shape.tpot_ms)
