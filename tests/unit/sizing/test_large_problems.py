"""Twenty pools of ten accelerator types: a plan that keeps everything is found without the long search."""

from random import Random

import numpy as np
import pytest

from benchmarks.sizing_problems import problem
from swingpool_control.sizing.programme import compact, rounding, solve, solver, totals
from swingpool_control.sizing.programme.arrays import Arrays
from swingpool_control.sizing.programme.plans import Plans
from swingpool_control.sizing.programme.problem import Problem
from swingpool_control.sizing.programme.trades import Trades


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


@pytest.mark.parametrize("seed", range(12))
def test_plans_are_judged_together_as_they_are_one_by_one(seed: int) -> None:
    random = Random(seed)
    asked = problem(random, kinds=2, pools=3, most=(1, 6), accelerator_limit=30, sites=1)
    arrays = Arrays(asked)
    tried = np.array([[random.randint(0, 5) for _ in arrays.places] for _ in range(60)])
    alone = [not list(totals.broken(asked, arrays.by_place(one))) for one in tried]
    assert Plans(arrays).first_kept(tried) == next((at for at, kept in enumerate(alone) if kept), None)
    for one, kept in zip(tried, alone, strict=True):
        assert (Plans(arrays).first_kept(one[None, :]) is not None) == kept


@pytest.mark.parametrize("seed", range(8))
def test_trades_keep_everything_and_save(seed: int) -> None:
    arrays = Arrays(large(seed))
    plans, stated = Plans(arrays), compact.Compact(arrays)
    at_best = stated.at_best()
    assert at_best is not None
    near = stated.after(at_best, more=1.06)
    assert near is not None
    start = rounding.rounded(arrays, plans, near.workers)
    assert start is not None
    trades = Trades(arrays, plans)
    few, many = trades.best(start, trades=1), trades.best(start, trades=20)
    assert arrays.unit @ many <= arrays.unit @ few <= arrays.unit @ start
    for one in (start, few, many):
        assert not list(totals.broken(arrays.problem, arrays.by_place(one)))
