"""Every policy under real and drawn loads, each with workers that start in one minute and in five.

Azure's conversations (three times their rate), Azure's code completions (their lengths, with arrivals as bursty as
theirs without the gaps of minutes that the sample has), Mooncake's synthetic trace with its shared prefixes, and a
day whose rate swings 4.9-fold, run through in four hours. All but Mooncake's run by the demo profile, which is invented
and slow enough that these rates need several workers; Mooncake's prompts need an H200's memory.

All begin with the workers that the load's first minute needs; half of ours may swing, and, of the schedule's that knows
the future, all but one in each role. A cell holds if no policy without foresight that costs at most as much as ours
serves more requests within both objectives. Beside it stands the schedule that knows the future. A fixed fleet has
as many workers as ours has on the average, rounded down, split as the load asks: it, too, knows more than it could.
"""

import math
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from random import Random
from typing import Any

from benchmarks.harness import DATA, Run, main
from benchmarks.side_by_side import H200, Case, figures, simulate
from swingpool.traffic import azure
from swingpool.traffic.read import Scaling, read
from swingpool.traffic.synthetic import Seeds
from swingpool_control.api.quantities import seconds
from swingpool_control.engine.profile import built_in
from swingpool_control.simulation.policies.catalogue import POLICIES
from swingpool_control.simulation.policies.clairvoyant import Need, need
from swingpool_control.simulation.result import Result
from swingpool_control.simulation.traffic import Arrival

CONV, CODE = "traces/AzureLLMInferenceTrace_conv.csv", "traces/AzureLLMInferenceTrace_code.csv"
MOONCAKE = "traces/mooncake_synthetic_trace.jsonl"
STARTUPS_S = (60.0, 300.0)
CAUSAL = (
    "no-swing",
    "hpa",
    "hpa-kv",
    "keda-slo",
    "keda-tokens",
    "dynamo-classic",
    "dynamo",
    "dynamo-throughput",
    "kthena",
)
QUICK = ("keda-slo", "dynamo")
DAY_S = 4 * 3600.0
"""How long the day takes: a sixth of one, so that workers take six times as much of it to start."""
CODE_S = 1800.0
MOST = 24


@dataclass(frozen=True, slots=True, kw_only=True)
class Workload:
    """One kind of load and the cluster that it meets."""

    arrivals: Callable[[int], Iterator[Arrival]]
    """By seed."""
    profile: str
    ttft: str
    itl: str
    prefixes: bool = False


def measure(run: Run) -> None:
    if run.data(CONV, CODE, MOONCAKE) is None:
        return
    cells: dict[str, dict[str, Any]] = {}
    for name, workload in _workloads(quick=run.quick).items():
        for startup_s in STARTUPS_S[: 1 if run.quick else None]:
            cell = f"{name}, start-up {startup_s:.0f} s"
            cells[cell] = run.part(cell, partial(_cell, run, cell, workload, startup_s))
            _judge(run, cell, cells[cell])
    run.figures["cells"] = cells


def _cell(run: Run, cell: str, workload: Workload, startup_s: float) -> dict[str, Any]:
    """Simulate every policy on one cell; return the figures of each."""
    arrivals = list(workload.arrivals(run.seed))
    run.say(f"{cell}: {len(arrivals):,} requests in {arrivals[-1].at_s:,.0f} s")
    needed = _need(workload, arrivals)
    prefill, decode, _ = needed.over(0.0, STARTUPS_S[0])
    case = Case(
        profile=workload.profile,
        objectives={"ttft": {"p95": workload.ttft}, "itl": {"p95": workload.itl}},
        arrivals=lambda: arrivals,
        start={"prefill": prefill, "decode": decode, "swing": 0},
        startup_s=startup_s,
        most=MOST,
        prefix_caching=workload.prefixes,
    )
    fixed = {"prefill": (prefill + 1) // 2, "decode": (decode + 1) // 2}
    swinging = fixed | {"swing": prefill + decode - sum(fixed.values())}
    ours = simulate(run, case, POLICIES["ours"], replicas=swinging)
    found = {"ours": ours}
    for name in QUICK if run.quick else CAUSAL:
        found[name] = simulate(run, case, POLICIES[name])
    split = _split(needed, ours)
    label = f"static {split['prefill']}/{split['decode']}"
    found[label] = simulate(run, case, POLICIES["static"], replicas=split, label=label)
    known = simulate(run, case, POLICIES["clairvoyant"], replicas=case.swinging_start())
    return {
        "requests": len(arrivals),
        "policies": {name: figures(result) for name, result in found.items()},
        "clairvoyant": figures(known),
    }


def _judge(run: Run, cell: str, found: dict[str, Any]) -> None:
    """Say who does better for no more than ours costs, and how far the schedule that knows the future is away."""
    policies, known = found["policies"], found["clairvoyant"]
    ours = policies["ours"]
    affordable = {name: one for name, one in policies.items() if one["gpu_hours"] <= ours["gpu_hours"]}
    better = [name for name, one in affordable.items() if one["attainment"] > ours["attainment"]]
    best = max(one["attainment"] for one in affordable.values())
    run.say(
        f"  {cell}: ours {ours['attainment']:.2%} at {ours['gpu_hours']:.2f} GPU-h; "
        + (f"better at no more cost: {', '.join(better)}" if better else "nobody without foresight does better")
        + f"; with foresight {known['attainment']:.2%} at {known['gpu_hours']:.2f} GPU-h"
    )
    found["better_at_no_more_cost"] = better
    found["gap_to_clairvoyant_attainment"] = round(known["attainment"] - ours["attainment"], 4)
    found["gpu_hours_over_clairvoyant"] = round(ours["gpu_hours"] / known["gpu_hours"], 3)
    margin = ours["attainment"] - best
    run.at_least(f"{cell}: attainment of ours less that of the best at equal or less cost", margin, 0.0)


def _need(workload: Workload, arrivals: list[Arrival]) -> Need:
    model = built_in(workload.profile).model()
    limits_s = (seconds(workload.ttft), seconds(workload.itl))
    return need(arrivals, prefill=model, decode=model, objectives_s=limits_s)


def _split(needed: Need, ours: Result) -> dict[str, int]:
    """As many workers as ours has on the average, split as the load asks."""
    workers = max(2, math.floor(ours.accelerator_hours * 3600 / ours.simulated_s))
    prefill, decode = sum(needed.prefill), sum(needed.decode)
    first = min(workers - 1, max(1, round(workers * prefill / (prefill + decode))))
    return {"prefill": first, "decode": workers - first}


# Loads


def _workloads(*, quick: bool) -> dict[str, Workload]:
    conversations = Workload(
        arrivals=partial(_trace, CONV, Scaling(rate=3.0, until_s=500.0 if quick else 1200.0)),
        profile="demo",
        ttft="1s",
        itl="60ms",
    )
    if quick:
        return {"Azure conv x3": conversations}
    return {
        "Azure conv x3": conversations,
        "Azure code": Workload(arrivals=_code, profile="demo", ttft="2s", itl="60ms"),
        "Mooncake synthetic x3": Workload(
            arrivals=partial(_trace, MOONCAKE, Scaling(rate=3.0)),
            profile=H200,
            ttft="5s",
            itl="30ms",
            prefixes=True,
        ),
        "a day, 4.9-fold": Workload(arrivals=_day, profile="demo", ttft="2s", itl="60ms"),
    }


def _trace(name: str, scaling: Scaling, seed: int) -> Iterator[Arrival]:
    return read(Path(DATA / name), seeds=Seeds(arrivals=seed, lengths=seed), scaling=scaling)


def _code(seed: int) -> Iterator[Arrival]:
    """Half an hour of the trace's requests in their order, as often as it takes, at gaps of a Gamma distribution."""
    random = Random(f"code {seed}")
    pairs = [(one.prompt_tokens, one.output_tokens) for one in azure.read(DATA / CODE)]
    rate, variation = 8.0, 3.0
    shape = 1 / variation**2
    at_s, number = 0.0, 0
    while (at_s := at_s + random.gammavariate(shape, 1 / (shape * rate))) < CODE_S:
        yield Arrival(at_s, *pairs[number % len(pairs)])
        number += 1


def _day(seed: int) -> Iterator[Arrival]:
    """A day of Poisson arrivals whose rate swings 4.9-fold, with its low at the begin."""
    random = Random(f"day {seed}")
    low, high = 0.7, 0.7 * 4.9
    at_s = 0.0
    while (at_s := at_s + random.expovariate(high)) < DAY_S:
        rate = low + (high - low) * (1 - math.cos(2 * math.pi * at_s / DAY_S)) / 2
        lengths = (round(mean * random.lognormvariate(-0.18, 0.6)) for mean in (3000, 600))
        prompt, output = (min(max(1, length), 20_000) for length in lengths)
        if random.random() < rate / high:
            yield Arrival(at_s, prompt, output)


if __name__ == "__main__":
    sys.exit(main("policies", measure, takes="a quarter of an hour with a compiled core"))
