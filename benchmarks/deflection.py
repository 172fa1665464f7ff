"""Prompts that decode workers compute themselves: mixed traffic on two prefill and two decode workers.

Short questions come steadily, long documents in between; the prefill workers are busy, the decode workers have some
room. Both runs place by the same late binding; the second may deflect, within limits that follow from the objective of
ITL, which counts by the strict reading: the share of all times between two tokens that lie within the objective.
"""

import sys
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from random import Random

from benchmarks.harness import Run, main
from swingpool_control.api.v1alpha1 import InferenceClusterSpec
from swingpool_control.placement.dispatcher import Dispatcher
from swingpool_control.placement.limits import NO_DEFLECTION
from swingpool_control.placement.settings import PlacementSettings
from swingpool_control.simulation.cluster import Simulation
from swingpool_control.simulation.outcome import Outcome
from swingpool_control.simulation.placer import Placer
from swingpool_control.simulation.policies.interface import Placing, Policy
from swingpool_control.simulation.policies.static import Static
from swingpool_control.simulation.settings import Settings
from swingpool_control.simulation.traffic import Arrival

PROFILE = "llama-3.1-8b-fp8-h200"
TTFT_S, ITL_S = 1.0, 0.040
SHORT_PER_S, LONG_PER_S = 30.0, 3.4
SHORT, LONG = (64, 512), (8_000, 24_000)
"""Prompt tokens, from and to."""
OUTPUT = (60, 220)


def measure(run: Run) -> None:
    lasts_s = 60.0 if run.quick else 600.0
    arrivals = list(_arrivals(lasts_s, run.seed))
    p95, attained = {}, {}
    for name in ("without", "with"):
        ended: list[Outcome] = []
        placing = Placing(placer=partial(_placer, name == "with"), late_binding=True, deflection=True)
        policy = Policy(name=name, about="", make=partial(Static, placing=placing))
        settings = Settings(policy=policy, prefix_caching=False)
        simulation = Simulation(_spec(), arrivals, settings, failures=Random(0), ended=ended.append)
        result = simulation.run()
        itl = next(one for one in result.objectives if one.metric == "itl")
        met = [one.mean_itl_s is None or one.mean_itl_s <= ITL_S for one in ended]
        p95[name], attained[name] = result.ttft.p95_s or 0.0, itl.share or 0.0
        whole = len(arrivals) - result.transfers
        run.say(
            f"{name} deflection: TTFT p50 {result.ttft.p50_s:.3f} s, p95 {result.ttft.p95_s:.3f} s, p99 "
            f"{result.ttft.p99_s:.3f} s; {itl.share:.2%} of the times between tokens, and the mean of "
            f"{sum(met) / len(met):.2%} of the requests, within {1000 * ITL_S:g} ms; {whole} of {len(arrivals)} "
            "deflected"
        )
        run.figures |= {
            f"ttft_p95_s_{name}": result.ttft.p95_s,
            f"ttft_p50_s_{name}": result.ttft.p50_s,
            f"itl_attainment_{name}": itl.share,
            f"itl_attainment_by_mean_{name}": sum(met) / len(met),
            f"deflected_{name}": whole,
        }
    run.at_most("p95 TTFT with deflection against without", p95["with"] / p95["without"], 0.5)
    run.at_least("ITL attainment with deflection", attained["with"], 0.99)


def _placer(deflects: bool, settings: PlacementSettings) -> Placer:
    return Dispatcher(settings if deflects else replace(settings, limits=NO_DEFLECTION))


def _arrivals(lasts_s: float, seed: int) -> Iterator[Arrival]:
    random = Random(seed)
    at_s = 0.0
    while (at_s := at_s + random.expovariate(SHORT_PER_S + LONG_PER_S)) < lasts_s:
        lengths = SHORT if random.random() < SHORT_PER_S / (SHORT_PER_S + LONG_PER_S) else LONG
        yield Arrival(at_s, random.randint(*lengths), random.randint(*OUTPUT))


def _spec() -> InferenceClusterSpec:
    return InferenceClusterSpec.model_validate(
        {
            "model": {"name": "nvidia/Llama-3.1-8B-Instruct-FP8"},
            "objectives": {"ttft": {"p95": f"{TTFT_S:g}s"}, "itl": {"p95": f"{1000 * ITL_S:g}ms"}},
            "profile": {"builtIn": PROFILE},
            "pools": [
                {"name": name, "role": name.capitalize(), "replicas": {"mode": "Fixed", "count": 2}}
                for name in ("prefill", "decode")
            ],
        }
    )


if __name__ == "__main__":
    sys.exit(main("deflection", measure, takes="two minutes"))
