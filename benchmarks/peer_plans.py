"""Plans for AIConfigurator's shapes, from its own figures of single workers, by the sizing programme."""

import math
from collections.abc import Iterator, Mapping
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


def without_rounding(answers: Answers, shape: Shape) -> float | None:
    """Return our accelerators over theirs in a fleet so large that no worker and no replica is cut short.

    Both by AIConfigurator's figures of what one accelerator does; None if either has no layout.
    """
    theirs = [
        found["total_gpus_needed"] / found["replicas_needed"] / found["seq/s"]
        for found in answers.ask(shape.request("recommend")).values()
        if isinstance(found, dict) and found["tpot"] <= shape.tpot_ms and found["ttft"] <= shape.ttft_ms
    ]
    batches = {names.ROLE_PREFILL: PREFILL_BATCHES, names.ROLE_DECODE: DECODE_BATCHES}
    split = [
        min(
            (one.size / (one.requests_per_s * DEGRADED[role]) for one in _each(answers, shape, role, some)),
            default=None,
        )
        for role, some in batches.items()
    ]
    whole = _both_roles(answers, shape)
    ours = [] if whole is None else [whole.size / whole.requests_per_s]
    known = [one for one in split if one is not None]
    if len(known) == len(batches):
        ours.append(sum(known))
    return min(ours) / min(theirs) if ours and theirs else None


def split(answers: Answers, shape: Shape) -> Plan | None:
    """Return the plan of fewest accelerators with workers of one role, judged; None if no layout holds."""
    prefills = tuple(_each(answers, shape, names.ROLE_PREFILL, PREFILL_BATCHES))
    decodes = tuple(_each(answers, shape, names.ROLE_DECODE, DECODE_BATCHES))
    pairs = [(prefill, decode, *_counts(shape, prefill, decode)) for prefill in prefills for decode in decodes]
    if not pairs:
        return None
    prefill, decode, few, many = min(
        pairs, key=lambda pair: (pair[2] * pair[0].size + pair[3] * pair[1].size, pair[2] + pair[3])
    )
    judged = _judged(answers, shape, (prefill, few), (decode, many))
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
    best = _both_roles(answers, shape)
    if best is None:
        return None
    workers, judged = math.ceil(shape.requests_per_s / best.requests_per_s), best.judged(answers, shape)
    return Plan(
        accelerators=workers * best.size,
        words=f"{workers} x {best.words}",
        requests_per_s=workers * judged["requests_per_s"],
        ttft_ms=judged["ttft_ms"],
        tpot_ms=judged["tpot_ms"],
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Both:
    """A worker for both roles that cuts prompts into chunks, at the batch and chunk at which it serves most."""

    size: int
    batch: int
    chunk: int
    requests_per_s: float

    @property
    def words(self) -> str:
        """Return it in words."""
        return f"TP{self.size} of {self.batch} in both roles, prompts in chunks of {self.chunk}"

    def judged(self, answers: Answers, shape: Shape) -> dict[str, Any]:
        """Return what AIConfigurator estimates of it."""
        return answers.ask(shape.request("worker", tensor_parallel_size=self.size, batch=self.batch, chunk=self.chunk))


def _both_roles(answers: Answers, shape: Shape) -> Both | None:
    """Return the worker for both roles with which the fewest accelerators serve all; None if none is good enough."""
    best: Both | None = None
    fewest = 0
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
            accelerators = math.ceil(shape.requests_per_s / found["requests_per_s"]) * size
            if best is None or accelerators < fewest:
                best, fewest = Both(size=size, **found), accelerators
    return best


def mixed(answers: Answers, shape: Shape) -> Plan | None:
    """Return the plan of fewest accelerators that mixes layouts, judged; None if one for each role does as well.

    A part of the traffic may go to workers for both roles, the rest to prefill and decode workers of several sizes.
    Each layout is judged by itself, beside so many workers of the other role that only it limits the rate.
    """
    layouts = {
        role: tuple(_each(answers, shape, role, batches))
        for role, batches in ((names.ROLE_PREFILL, PREFILL_BATCHES), (names.ROLE_DECODE, DECODE_BATCHES))
    }
    whole = _both_roles(answers, shape)
    if not all(layouts.values()):
        return None
    most = 1 if whole is None else math.ceil(shape.requests_per_s / whole.requests_per_s)
    found = []
    for count in range(most):
        apart = (count, whole) if count and whole is not None else None
        served = 0.0 if apart is None else count * apart[1].requests_per_s
        found.append((_matched(shape.requests_per_s - served, layouts), apart))
    counts, apart = min(found, key=lambda one: (_accelerators(*one), len(one[0])))
    if apart is None and len(counts) == len(layouts):
        return None
    return _judged_apart(answers, shape, counts, apart)


def _accelerators(counts: list[tuple[str, Worker, int]], apart: tuple[int, Both] | None) -> int:
    return sum(count * worker.size for _, worker, count in counts) + (apart[0] * apart[1].size if apart else 0)


def _judged_apart(
    answers: Answers, shape: Shape, counts: list[tuple[str, Worker, int]], apart: tuple[int, Both] | None
) -> Plan:
    rates, ttft_ms, tpot_ms = dict.fromkeys(DEGRADED, 0.0), 0.0, 0.0
    other = {role: next(one for its, one, _ in counts if its != role) for role in DEGRADED}
    for role, worker, count in counts:
        beside = other[role]
        enough = math.ceil(2 * worker.requests_per_s / beside.requests_per_s)
        sides = {role: (worker, 1), _other(role): (beside, enough)}
        judged = _judged(answers, shape, sides[names.ROLE_PREFILL], sides[names.ROLE_DECODE])
        rates[role] += count * judged["requests_per_s"]
        if role == names.ROLE_PREFILL:
            ttft_ms = max(ttft_ms, judged["ttft_ms"])
        else:
            tpot_ms = max(tpot_ms, judged["tpot_ms"])
    words = [f"{count} x TP{worker.size} {role} of {worker.batch}" for role, worker, count in counts]
    requests_per_s = min(rates.values())
    if apart is not None:
        both, whole = apart
        judged = whole.judged(answers, shape)
        requests_per_s += both * judged["requests_per_s"]
        ttft_ms, tpot_ms = max(ttft_ms, judged["ttft_ms"]), max(tpot_ms, judged["tpot_ms"])
        words.append(f"{both} x {whole.words}")
    return Plan(
        accelerators=_accelerators(counts, apart),
        words=", ".join(words),
        requests_per_s=requests_per_s,
        ttft_ms=ttft_ms,
        tpot_ms=tpot_ms,
    )


def _judged(answers: Answers, shape: Shape, prefill: tuple[Worker, int], decode: tuple[Worker, int]) -> dict[str, Any]:
    """Return what AIConfigurator estimates of so many workers of one layout in each role."""
    sides = {
        side: {"tensor_parallel_size": worker.size, "batch": worker.batch, "workers": count}
        for side, (worker, count) in (("prefill", prefill), ("decode", decode))
    }
    return answers.ask(shape.request("plan", **sides))


def _other(role: str) -> str:
    return next(one for one in DEGRADED if one != role)


def _matched(requests_per_s: float, layouts: Mapping[str, tuple[Worker, ...]]) -> list[tuple[str, Worker, int]]:
    """Return how many workers of each layout the programme chooses, an accelerator costing one."""
    given = {f"{role}-{worker.size}": (role, worker) for role, workers in layouts.items() for worker in workers}
    pools = tuple(
        PoolOption(
            name=name,
            rates={role: Rates(steps=((1, worker.requests_per_s * DEGRADED[role]),))},
            fewest=0,
            most=MOST_WORKERS,
            price_per_hour=worker.size,
        )
        for name, (role, worker) in given.items()
    )
    counts = solve(Problem(pools=pools, need=dict.fromkeys(DEGRADED, requests_per_s))).counts()
    return [(*given[name], count) for name, count in counts.items() if count]


def _counts(shape: Shape, prefill: Worker, decode: Worker) -> tuple[int, int]:
    """Return how many prefill and decode workers of these layouts serve the rate."""
    layouts = {names.ROLE_PREFILL: (prefill,), names.ROLE_DECODE: (decode,)}
    found = {role: count for role, _, count in _matched(shape.requests_per_s, layouts)}
    return found[names.ROLE_PREFILL], found[names.ROLE_DECODE]


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
