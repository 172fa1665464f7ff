"""Several pickers that share nothing: whether they stay balanced, and what it costs that none sees all requests.

The workers, traces and loads of `benchmarks.placement`. Requests go to any picker, as connections are spread over a
Service's pods; a picker knows what it sent itself, and once a second what each worker says that it runs. One picker
that sees all is the same run with one. Told, they know besides what lies in every worker's cache, as workers publish it
with `router.builtIn.kvEvents`. The others' rules are given as many routers, each of which knows its own requests.
"""

import itertools
import sys

from benchmarks.harness import Run, main
from benchmarks.peer_routers import PEERS, Peer
from benchmarks.placement import (
    AZURE_CODE,
    AZURE_CONV,
    MOONCAKE,
    NEAR,
    PROFILE,
    Found,
    Make,
    Trace,
    cell_of,
    live,
    peer_of,
    simulate,
    told,
    traces,
)
from swingpool_control.engine.profile import built_in
from swingpool_control.simulation.traffic import Arrival

PICKERS = (1, 2, 4)
MOST = PICKERS[-1]
BALANCED = 1.25
"""Times the mean that the busiest prefill worker may compute, where prompts share nothing."""
BLIND = "round robin"
"""What several routers can do that know nothing."""


def measure(run: Run) -> None:
    if run.data(AZURE_CONV, AZURE_CODE, MOONCAKE) is None:
        return
    loads = (0.85,) if run.quick else (0.7, 0.85, 0.95)
    count = 700 if run.quick else 4_000
    model = built_in(PROFILE).model()
    ttft: dict[str, dict[str, float]] = {}
    against, itl_kept, busiest, cost, hits, told_hits, best, best_mean = [], [], [], [], [], [], [], []
    for trace in traces():
        if run.quick and trace.keeps_times:
            continue  # a minute is too short for conversations
        for load in loads[:1] if trace.keeps_times else loads:
            cell = f"{trace.name} at {load:g}"
            prefill, arrivals = cell_of(model.faster(1 / trace.slower), trace, load, count, run.seed)
            ours = _ours(run, cell, trace, arrivals, prefill)
            others = _others(run, cell, trace, arrivals, prefill)
            found = {f"ours_{number}": one for number, one in ours.items()} | others
            ttft[cell] = {name: round(one.ttft_p95_s, 4) for name, one in found.items()}
            alone, many = ours[1], ours[MOST]
            cost.append(round(many.ttft_p95_s / alone.ttft_p95_s, 3))
            against.append(many.ttft_p95_s / others[BLIND].ttft_p95_s)
            best.append(round(many.ttft_p95_s / min(one.ttft_p95_s for one in others.values()), 3))
            best_mean.append(round(many.ttft_mean_s / min(one.ttft_mean_s for one in others.values()), 3))
            if trace.keeps_times:
                following = simulate(trace, arrivals, prefill, told, pickers=MOST)
                _say(run, f"{cell}, ours, {MOST} pickers that are told", following)
                ttft[cell]["ours_4_told"] = round(following.ttft_p95_s, 4)
                told_hits.append(round(following.hit_rate / alone.hit_rate, 3))
                hits.append(round(many.hit_rate / alone.hit_rate, 3))
            else:
                busiest.append(many.busiest)
                itl_kept.append(alone.itl_attainment - many.itl_attainment)
    run.figures |= {"ttft_p95_s": ttft, "p95_of_four_against_one": cost, "hit_rate_of_four_against_one": hits}
    run.figures |= {"hit_rate_of_four_that_are_told_against_one": told_hits}
    run.figures |= {"p95_of_four_against_best_other": best, "mean_of_four_against_best_other": best_mean}
    run.at_most("p95 TTFT of four pickers against round robin by four, in the worst cell", max(against), 1.0)
    run.at_most(
        "prompt tokens of the busiest worker over the mean, with four pickers, in the worst cell",
        max(busiest),
        BALANCED,
    )
    run.at_most("ITL attainment that four pickers are behind one, in the worst cell", max(itl_kept), NEAR)


def _ours(run: Run, cell: str, trace: Trace, arrivals: list[Arrival], prefill: int) -> dict[int, Found]:
    found = {}
    for number in PICKERS:
        found[number] = simulate(trace, arrivals, prefill, live, pickers=number)
        _say(run, f"{cell}, ours, {number} pickers", found[number])
    return found


def _others(run: Run, cell: str, trace: Trace, arrivals: list[Arrival], prefill: int) -> dict[str, Found]:
    found = {}
    for name, peer in PEERS.items():
        found[name] = simulate(trace, arrivals, prefill, _routers(peer, run.seed), pickers=MOST)
        _say(run, f"{cell}, {name}, {MOST} routers", found[name])
    return found


def _routers(peer: type[Peer], seed: int) -> Make:
    """Return what makes one router after another, each of which draws for itself."""
    seeds = itertools.count(seed)
    return lambda settings, engines: peer_of(peer, next(seeds), settings, engines)


def _say(run: Run, what: str, found: Found) -> None:
    run.say(
        f"{what}: TTFT p95 {found.ttft_p95_s:.3f} s, mean {found.ttft_mean_s:.3f} s; ITL met by "
        f"{found.itl_attainment:.2%}; busiest worker {found.busiest:.2f} of the mean; prefix hits {found.hit_rate:.1%}"
    )


if __name__ == "__main__":
    sys.exit(main("pickers", measure, takes="four minutes"))
