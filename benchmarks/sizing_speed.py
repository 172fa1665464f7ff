"""How long the sizing programme takes for a large cluster: 10 accelerator types, 20 pools, 1,000 accelerators.

Timed is everything that `solve` does: building the programme, solving it, and its reasons. Rates come in as tables, as
they do in the live loop. Both clocks are shown: time on the wall, and the process's own, which other work does not
lengthen as much. The plans' quality stands beside: the gap that is proved, and for some how much dearer they are than
the best, which HiGHS searches for to the end.
"""

import random
import statistics
import sys
import time

from benchmarks.harness import Run, main
from benchmarks.sizing_problems import problem
from swingpool_control.sizing.programme import Problem, solve

KINDS, POOLS, ACCELERATORS = 10, 20, 1000
MOST_WORKERS = (5, 60)
"""Least and most of the pools' `most`."""
SEARCHED = 40
"""Problems of which the best plan is searched for."""


def measure(run: Run) -> None:
    """Solve random large problems."""
    rng = random.Random(run.seed)
    count = 8 if run.quick else 300
    asked = [_problem(rng) for _ in range(count)]
    solve(asked[0])
    wall_ms, own_ms, gaps, feasible = [], [], [], 0
    for number, one in enumerate(asked, start=1):
        started, own_started = time.perf_counter(), time.process_time()
        answer = solve(one)
        wall_ms.append((time.perf_counter() - started) * 1e3)
        own_ms.append((time.process_time() - own_started) * 1e3)
        feasible += answer.feasible
        if answer.feasible:
            gaps.append(answer.gap)
        if number % 50 == 0:
            run.say(f"{number} of {count}: median {statistics.median(wall_ms):.1f} ms on the wall")
    dearer = [share for one in asked[: 3 if run.quick else SEARCHED] if (share := _dearer(one)) is not None]
    run.figures |= {
        "problems": count,
        "problems_with_a_plan": feasible,
        "wall_ms": _percentiles(wall_ms),
        "own_ms": _percentiles(own_ms),
        "proved_gap": _percentiles(gaps),
    }
    if dearer:
        run.figures["compared_with_the_best"] = len(dearer)
        run.figures["dearer_than_the_best"] = _percentiles(dearer)
        run.say(f"{len(dearer)} plans are dearer than the best by {run.figures['dearer_than_the_best']}")
    run.say(f"wall {run.figures['wall_ms']} ms, the process's own {run.figures['own_ms']} ms")
    run.at_most("p99 on the wall, ms", _percentiles(wall_ms)["p99"], 50.0)


def _problem(rng: random.Random) -> Problem:
    return problem(rng, kinds=KINDS, pools=POOLS, most=MOST_WORKERS, accelerator_limit=ACCELERATORS, sites=1)


def _dearer(asked: Problem) -> float | None:
    """By which share the plan is dearer than the best; None if there is none that keeps everything."""
    best, plan = solve(asked, exact=True), solve(asked)
    if not best.feasible or best.objective <= 0:
        return None
    return plan.objective / best.objective - 1


def _percentiles(values: list[float]) -> dict[str, float]:
    ordered = sorted(values) or [0.0]
    at = {"p50": 0.5, "p90": 0.9, "p99": 0.99, "most": 1.0}
    return {name: round(ordered[min(len(ordered) - 1, int(share * len(ordered)))], 4) for name, share in at.items()}


if __name__ == "__main__":
    sys.exit(main("sizing_speed", measure, takes="about two minutes, most of it the search for the best plans"))
