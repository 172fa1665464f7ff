"""Traffic whose cost stays and whose mix turns from prompts to generation: swinging workers against every fixed split.

Two kinds of requests take turns, each for five minutes, with ten seconds from one to the other. Their rates are chosen
by the performance model such that either kind asks for the same share of all workers. Both policies have the same
workers from the first to the last second. They run by the demo profile, which is invented: small rates load it, so that
all splits are simulated in minutes; what is compared is the splits, not the hardware.
"""

import heapq
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from random import Random

from benchmarks.harness import Run, main
from swingpool_control.api.v1alpha1 import InferenceClusterSpec
from swingpool_control.engine.profile import built_in
from swingpool_control.simulation.cluster import Simulation
from swingpool_control.simulation.policies.catalogue import POLICIES
from swingpool_control.simulation.result import Result
from swingpool_control.simulation.settings import Settings
from swingpool_control.simulation.traffic import Arrival
from swingpool_control.sizing.capacity import Shape, capacity
from swingpool_control.sizing.objectives import mean_itl_s, mean_ttft_s

WORKERS = 8
SHARE = 0.7
"""Of the workers' capacity that the traffic asks for, whatever its mix."""
TURN_S = 10.0
OBJECTIVES = {"ttft": {"p95": "1500ms"}, "itl": {"p95": "60ms"}}
PROMPTS = Shape(isl_tokens=1200, osl_tokens=20)
GENERATION = Shape(isl_tokens=80, osl_tokens=150)


@dataclass(frozen=True, slots=True)
class Needs:
    """One kind of request: workers by role that one of it per second keeps busy."""

    shape: Shape
    prefill: float
    decode: float

    @property
    def rate(self) -> float:
        """Requests per second that ask for the share of all workers."""
        return SHARE * WORKERS / (self.prefill + self.decode)


def measure(run: Run) -> None:
    period_s, periods = (60.0, 2) if run.quick else (300.0, 4)
    kinds = (_needs(PROMPTS), _needs(GENERATION))
    for name, kind in zip(("prompt-heavy", "generation-heavy"), kinds, strict=True):
        run.say(
            f"{name}: {kind.rate:.1f} requests/s ask for {kind.rate * kind.prefill:.1f} prefill and "
            f"{kind.rate * kind.decode:.1f} decode workers of {WORKERS}"
        )
    arrivals = list(_arrivals(kinds, period_s, periods, run.seed))
    ours = _simulate(arrivals, {"prefill": 1, "decode": 1, "swing": WORKERS - 2}, "ours")
    _tell(run, "ours", ours)
    statics = {}
    for prefill in range(1, WORKERS):
        split = f"{prefill}/{WORKERS - prefill}"
        statics[split] = _simulate(arrivals, {"prefill": prefill, "decode": WORKERS - prefill, "swing": 0}, "static")
        _tell(run, f"static {split}", statics[split])
    best = max(statics, key=lambda split: statics[split].attainment or 0.0)
    run.figures |= {
        "requests": len(arrivals),
        "workers": WORKERS,
        "attainment_ours": round(ours.attainment or 0.0, 4),
        "attainment_static": {split: round(result.attainment or 0.0, 4) for split, result in statics.items()},
        "best_static_split": best,
        "flips": len(ours.flips),
        "ttft_p95_s_ours": ours.ttft.p95_s,
        "ttft_p95_s_best_static": statics[best].ttft.p95_s,
        "goodput_per_s_ours": ours.goodput_per_s,
        "goodput_per_s_best_static": statics[best].goodput_per_s,
    }
    run.at_least("attainment of ours", ours.attainment or 0.0, 0.99)
    run.at_most("attainment of the best static split", statics[best].attainment or 0.0, 0.80)


def _tell(run: Run, name: str, result: Result) -> None:
    run.say(
        f"{name}: {result.attainment:.1%} met TTFT and ITL; TTFT p95 {result.ttft.p95_s:.2f} s, "
        f"ITL p95 {1000 * (result.itl.p95_s or 0.0):.0f} ms, {len(result.flips)} flips, "
        f"{result.accelerator_hours:.2f} accelerator hours"
    )


def _needs(shape: Shape) -> Needs:
    objectives = _spec({"prefill": 1, "decode": 1, "swing": 0}).objectives
    able = capacity(built_in("demo").model(), shape=shape, ttft_s=mean_ttft_s(objectives), itl_s=mean_itl_s(objectives))
    return Needs(
        shape, prefill=shape.isl_tokens / able.prefill_tokens_per_s, decode=shape.osl_tokens / able.decode_tokens_per_s
    )


def _arrivals(kinds: tuple[Needs, Needs], period_s: float, periods: int, seed: int) -> Iterator[Arrival]:
    streams = (_stream(kind, turn, period_s, periods, Random(f"{seed} {turn}")) for turn, kind in enumerate(kinds))
    return heapq.merge(*streams, key=lambda arrival: arrival.at_s)


def _stream(kind: Needs, turn: int, period_s: float, periods: int, random: Random) -> Iterator[Arrival]:
    """One kind's requests: Poisson at its full rate, thinned to the share that is its turn's."""
    at_s = random.expovariate(kind.rate)
    while at_s < periods * period_s:
        number, since_s = divmod(at_s, period_s)
        ramp = min(1.0, since_s / TURN_S) if number else 1.0
        share = ramp if number % 2 == turn else 1.0 - ramp
        prompt, output = (
            round(mean * random.uniform(0.7, 1.3)) for mean in (kind.shape.isl_tokens, kind.shape.osl_tokens)
        )
        if random.random() < share:
            yield Arrival(at_s, prompt, output)
        at_s += random.expovariate(kind.rate)


def _spec(counts: dict[str, int]) -> InferenceClusterSpec:
    return InferenceClusterSpec.model_validate(
        {
            "model": {"name": "demo"},
            "engine": {"type": "Simulated"},
            "objectives": OBJECTIVES,
            "profile": {"builtIn": "demo"},
            "pools": [
                {"name": name, "role": name.capitalize(), "replicas": {"mode": "Fixed", "count": count}}
                for name, count in counts.items()
            ],
        }
    )


def _simulate(arrivals: list[Arrival], counts: dict[str, int], policy: str) -> Result:
    settings = Settings(policy=POLICIES[policy], prefix_caching=False)
    return Simulation(_spec(counts), arrivals, settings, failures=Random(0)).run()


if __name__ == "__main__":
    sys.exit(main("mix_shift", measure, takes="three to six minutes"))
