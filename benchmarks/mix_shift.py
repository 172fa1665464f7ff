"""Traffic whose cost stays and whose mix turns from prompts to generation: the same workers under every policy.

Two kinds of requests take turns, each for five minutes, with ten seconds from one to the other. Their rates are
chosen by the performance model such that either kind asks for the same share of all workers. There are eight
accelerators for every policy; those that start workers may use them as they like, and a worker beyond them waits
until another has ended. Then each gets more, until it meets what ours does with eight. All run by the demo profile,
which is invented: small rates load it, so that everything is simulated in minutes; what is compared is the policies,
not the hardware.
"""

import heapq
import sys
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from random import Random

from benchmarks.harness import Run, main
from benchmarks.side_by_side import Case, figures, simulate
from swingpool_control.engine.profile import built_in
from swingpool_control.simulation.policies.catalogue import POLICIES
from swingpool_control.simulation.result import Result
from swingpool_control.simulation.traffic import Arrival
from swingpool_control.sizing.capacity import Shape, capacity
from swingpool_control.sizing.objectives import mean_itl_s, mean_ttft_s

WORKERS = 8
SHARE = 0.7
"""Of the workers' capacity that the traffic asks for, whatever its mix."""
TURN_S = 10.0
STARTUP_S = 60.0
ENOUGH = 0.99
PROMPTS = Shape(isl_tokens=1200, osl_tokens=20)
GENERATION = Shape(isl_tokens=80, osl_tokens=150)

PEERS = ("hpa", "hpa-kv", "keda-slo", "keda-tokens", "dynamo-classic", "dynamo", "dynamo-throughput")
OTHERS = ("kthena", "splitwise", "no-swing")
MORE = (10, 12, 16)
"""Accelerators that peers get until they meet what ours does."""


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
    period_s, periods = (100.0, 2) if run.quick else (300.0, 4)
    case = _case(())
    kinds = (_needs(case, PROMPTS), _needs(case, GENERATION))
    for name, kind in zip(("prompt-heavy", "generation-heavy"), kinds, strict=True):
        run.say(
            f"{name}: {kind.rate:.1f} requests/s ask for {kind.rate * kind.prefill:.1f} prefill and "
            f"{kind.rate * kind.decode:.1f} decode workers of {WORKERS}"
        )
    arrivals = list(_arrivals(kinds, period_s, periods, run.seed))
    case = _case(arrivals)
    ours = _fixed(run, case, "ours", {"prefill": 1, "decode": 1, "swing": WORKERS - 2})
    statics = {}
    for prefill in (4, 5, 6) if run.quick else range(1, WORKERS):
        split = f"static {prefill}/{WORKERS - prefill}"
        statics[split] = _fixed(run, case, "static", {"prefill": prefill, "decode": WORKERS - prefill}, label=split)
    begin = kinds[0]
    peers = {name: _scaled(run, case, name, WORKERS, begin) for name in (("hpa-kv", "dynamo") if run.quick else PEERS)}
    others = {name: _scaled(run, case, name, WORKERS, begin) for name in (() if run.quick else OTHERS)}
    found = {"ours": ours} | statics | peers | others
    best = max(statics | peers, key=lambda name: (statics | peers)[name].attainment or 0.0)
    run.figures |= {
        "requests": len(arrivals),
        "workers": WORKERS,
        "policies": {name: figures(result) for name, result in found.items()},
        "best_of_the_others": best,
    }
    run.at_least("attainment of ours", ours.attainment or 0.0, ENOUGH)
    run.at_most(
        f"attainment of the best static split, HPA, KEDA recipe or Dynamo rule ({best})",
        found[best].attainment or 0.0,
        0.80,
    )
    if not run.quick:
        half = [one for one in arrivals if one.at_s < period_s * periods / 2]
        _more(run, _case(half), kinds, (*PEERS, *OTHERS[:2]))


def _more(run: Run, case: Case, kinds: tuple[Needs, Needs], peers: Iterable[str]) -> None:
    """Find how many workers more each policy needs to meet 99 %, over one turn there and back."""
    run.say(f"how many workers more each needs to meet {ENOUGH:.0%}")
    extra: dict[str, int | str] = {}
    wanted = [max(kind.rate * getattr(kind, role) for kind in kinds) for role in ("prefill", "decode")]
    for workers in range(WORKERS + 1, MORE[-1] + 1):
        prefill = round(workers * wanted[0] / sum(wanted))
        label = f"static {prefill}/{workers - prefill}"
        split = {"prefill": prefill, "decode": workers - prefill}
        if (_fixed(run, case, "static", split, label=label).attainment or 0.0) >= ENOUGH:
            extra["static"] = workers - WORKERS
            break
    for name in peers:
        reached = 0.0
        for workers in MORE:
            reached = _scaled(run, case, name, workers, kinds[0]).attainment or 0.0
            if reached >= ENOUGH:
                extra[name] = workers - WORKERS
                break
        extra.setdefault(name, f"more than {MORE[-1] - WORKERS}: {reached:.1%} with {MORE[-1]} workers")
    run.figures["extra_workers_to_match"] = extra
    for name, count in extra.items():
        run.say(f"  {name}: {count}")


def _fixed(run: Run, case: Case, policy: str, counts: Mapping[str, int], *, label: str = "") -> Result:
    """Simulate with so many workers of each pool from the first to the last second."""
    spec = (case.swinging() if "swing" in counts else case.fixed()).model_dump(by_alias=True, mode="json")
    for pool in spec["pools"]:
        pool["replicas"] = {"mode": "Fixed", "count": counts[pool["name"]]}
    fixed = type(case.fixed()).model_validate(spec)
    return simulate(run, case, POLICIES[policy], replicas=counts, spec=fixed, label=label or policy)


def _scaled(run: Run, case: Case, policy: str, accelerators: int, begin: Needs) -> Result:
    """Simulate a policy that may use so many accelerators as it likes, and begins with the first mix's best split."""
    allowed = replace(case, accelerators=accelerators, most=accelerators - 1)
    prefill = min(accelerators - 1, max(1, round(accelerators * begin.prefill / (begin.prefill + begin.decode))))
    start = {"prefill": prefill, "decode": accelerators - prefill}
    label = f"{policy} with {accelerators}"
    return simulate(run, allowed, POLICIES[policy], replicas=start, spec=allowed.fixed(), label=label)


def _case(arrivals: Iterable[Arrival]) -> Case:
    return Case(
        profile="demo",
        objectives={"ttft": {"p95": "1500ms"}, "itl": {"p95": "60ms"}},
        arrivals=lambda: arrivals,
        start={},
        startup_s=STARTUP_S,
        most=WORKERS,
    )


def _needs(case: Case, shape: Shape) -> Needs:
    objectives = case.fixed().objectives
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


if __name__ == "__main__":
    sys.exit(main("mix_shift", measure, takes="ten to twenty minutes"))
