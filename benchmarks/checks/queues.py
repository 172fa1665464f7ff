"""One worker against closed forms of queueing theory.

Prefill of one prompt at a time is a queue with one server: M/D/1 if all prompts are alike, M/G/1 if not, whose mean
wait is Pollaczek's and Khinchine's. Decode whose steps take time in proportion to its sequences is M/G/1 under
processor sharing, where a request of x seconds takes x / (1 - load) on the average, whatever the distribution.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from random import Random
from statistics import fmean

from benchmarks.checks.simulated import DECODE, PREFILL, WHOLE, Noting, outcomes, split
from benchmarks.harness import Run
from swingpool_control.engine.linear import LinearModel, StepCost
from swingpool_control.engine.model import prefill_s
from swingpool_control.engine.profile import built_in
from swingpool_control.simulation.traffic import Arrival

WITHIN, EXACT = 0.03, 1e-6
PROMPT = 512
LONGEST = 16_384
SEQUENCE_S = 1e-3

Lengths = Callable[[Random], int]


def check(run: Run) -> None:
    """Compare mean times in the system."""
    kinds: dict[str, Lengths] = {"M/D/1": lambda _: PROMPT, "M/G/1": spread}
    for load in (0.6,) if run.quick else (0.3, 0.6):
        requests = round((3_000 if run.quick else 40_000) / (1 - load))
        for kind, length in kinds.items():
            _told(run, f"{kind}, load {load}", one_server(length, load, requests, run.seed))
        _told(run, f"M/G/1 shared, load {load}", shared(load, requests, run.seed))


@dataclass(frozen=True, slots=True, kw_only=True)
class Times:
    """Mean times in the system, seconds."""

    seen_s: float
    theory_s: float
    """In the long run."""
    path_s: float | None = None
    """By Lindley's recursion for these very requests, from one's wait to the next one's: no chance is left in it."""


def _told(run: Run, name: str, times: Times) -> None:
    error = abs(times.seen_s / times.theory_s - 1)
    path = "" if times.path_s is None else f", for these very requests {times.path_s:.4f} s"
    run.say(f"{name}: {times.seen_s:.4f} s in the system, theory says {times.theory_s:.4f} s{path}")
    if times.path_s is not None:
        run.at_most(f"{name}: relative error for these very requests", abs(times.seen_s / times.path_s - 1), EXACT)
    run.at_most(f"{name}: relative error of the mean time in the system", error, WITHIN)


def spread(random: Random) -> int:
    return min(max(1, round(random.lognormvariate(6.0, 0.9))), LONGEST)


def _arrivals(rate: float, requests: int, random: Random, made: Callable[[Random], tuple[int, int]]) -> list[Arrival]:
    at_s, found = 0.0, []
    for _ in range(requests):
        at_s += random.expovariate(rate)
        found.append(Arrival(at_s, *made(random)))
    return found


def one_server(length: Lengths, load: float, requests: int, seed: int) -> Times:
    """Return the mean time until a prompt is computed, and what it should be for the prompts that were drawn."""
    model = replace(built_in("demo").model(), max_sequences=1, max_batched_tokens=LONGEST, kv_capacity_tokens=10**9)
    random = Random(seed)
    mean_s = fmean(prefill_s(model, prompt_tokens=length(random)) for _ in range(20_000))
    arrivals = _arrivals(load / mean_s, requests, random, lambda random: (length(random), 1))
    noting = Noting()
    quick = replace(model, step=replace(model.step, base_s=1e-6, sequence_s=0.0), max_sequences=128)
    found = outcomes(arrivals, split(noting), {PREFILL: model, DECODE: quick}, workers={PREFILL: 1, DECODE: 1})
    seen_s = fmean(noting.computed_s[one.number] - one.arrival.at_s for one in found)
    services_s = [prefill_s(model, prompt_tokens=one.prompt_tokens) for one in arrivals]
    rate = len(arrivals) / arrivals[-1].at_s
    mean_s, square_s2 = fmean(services_s), fmean(one * one for one in services_s)
    return Times(
        seen_s=seen_s,
        theory_s=mean_s + rate * square_s2 / (2 * (1 - rate * mean_s)),
        path_s=mean_s + _mean_wait_s([one.at_s for one in arrivals], services_s),
    )


def _mean_wait_s(arrivals_s: Sequence[float], services_s: Sequence[float]) -> float:
    free_s = total_s = 0.0
    for at_s, service_s in zip(arrivals_s, services_s, strict=True):
        begin_s = max(free_s, at_s)
        total_s += begin_s - at_s
        free_s = begin_s + service_s
    return total_s / len(services_s)


def shared(load: float, requests: int, seed: int) -> Times:
    """Return the mean time that answers take on a worker whose steps take a millisecond for each sequence."""
    cost = StepCost(
        base_s=1e-9,
        prefill_base_s=0.0,
        prefill_token_s=0.0,
        prefill_context_token2_s=0.0,
        sequence_s=SEQUENCE_S,
        context_token_s=0.0,
    )
    model = LinearModel(
        name="shared",
        step=cost,
        kv_capacity_tokens=10**9,
        kv_bytes_per_token=1.0,
        max_batched_tokens=10**6,
        max_sequences=10**6,
        link_bytes_per_s=1e12,
        link_latency_s=0.0,
        startup_s=0.0,
    )
    random = Random(seed)
    mean_tokens = fmean(_answer(random) for _ in range(20_000))
    # A prompt of one token is a sequence like any other.
    arrivals = _arrivals(load / (mean_tokens * SEQUENCE_S), requests, random, lambda random: (1, _answer(random)))
    found = outcomes(arrivals, WHOLE, {PREFILL: model, DECODE: model}, workers={PREFILL: 0, DECODE: 1})
    rate = len(arrivals) / arrivals[-1].at_s
    alone_s = fmean(one.output_tokens for one in arrivals) * SEQUENCE_S
    return Times(seen_s=fmean(one.end_s - one.arrival.at_s for one in found), theory_s=alone_s / (1 - rate * alone_s))


def _answer(random: Random) -> int:
    return min(max(1, round(random.lognormvariate(4.5, 0.8))), LONGEST)
