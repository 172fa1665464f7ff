"""Twenty pools of ten accelerator types: a plan that keeps everything is found without the long search."""

from random import Random

import pytest

from benchmarks.sizing_problems import problem
from swingpool_control.sizing.programme import solve, solver, totals
from swingpool_control.sizing.programme.problem import Problem


def large(seed: int) -> Problem:
    return problem(Random(seed), kinds=10, pools=20, most=(5, 60), accelerator_limit=1000, sites=1)


@pytest.mark.parametrize("seed", range(6))
def test_large_problems_need_no_long_search(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    def never(_: Problem) -> None:
        raise AssertionError("it searched long")

    monkeypatch.setattr(solver, "_exactly", never)
    asked = large(seed)
    answer = solve(asked)
    assert answer.feasible
    assert 0.0 <= answer.gap < 0.3
    serving = {(pool.pool, role): count for pool in answer.pools for role, count in pool.by_role.items()}
    assert not list(totals.broken(asked, serving))
