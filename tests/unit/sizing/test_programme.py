"""The sizing programme: the best plan, whatever the order of pools, and a reason for everything."""

import itertools
from collections.abc import Iterator
from dataclasses import replace

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from swingpool_control.sizing.programme import (
    ALL_PRODUCTS,
    Answer,
    Limits,
    Link,
    PoolOption,
    Problem,
    Rates,
    judge,
    solve,
    split,
    totals,
)
from swingpool_control.sizing.programme.arrays import Arrays
from swingpool_control.sizing.programme.neighbourhood import NOTHING, Neighbourhood
from swingpool_control.sizing.programme.problem import ROLES
from swingpool_control.sizing.programme.search import after
from tests.unit.sizing.problems import DECODE, PREFILL, problems

PLENTY = settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.too_slow])
HARD = {"MaxReplicas", "NoCapacity", "AcceleratorBudget", "CostBudget", "PowerBudget"}
"""What even the least bad plan keeps."""


def flat(rate: float) -> Rates:
    return Rates(steps=((1, rate),))


def pool(name: str, price: float, *, most: int = 8, fewest: int = 0, **parts: object) -> PoolOption:
    both = {role: flat(1.0) for role in ROLES}
    rates = {PREFILL: both[PREFILL]} if name.startswith("prefill") else {DECODE: both[DECODE]}
    base: dict[str, object] = {
        "name": name,
        "rates": both if name.startswith("swing") else rates,
        "fewest": fewest,
        "most": most,
        "price_per_hour": price,
        "product": "H200",
    }
    return PoolOption(**(base | parts))  # type: ignore[arg-type]


def ask(*pools: PoolOption, prefill: float = 2.0, decode: float = 2.0, **parts: object) -> Problem:
    return Problem(pools=pools, need={PREFILL: prefill, DECODE: decode}, **parts)  # type: ignore[arg-type]


def every(problem: Problem) -> Iterator[dict[tuple[str, str], int]]:
    places = [(pool, role) for pool in problem.pools for role in ROLES if role in pool.rates]
    for numbers in itertools.product(*(range(pool.most - pool.idle + 1) for pool, _ in places)):
        yield {(pool.name, role): number for (pool, role), number in zip(places, numbers, strict=True)}


def by_place(answer: Answer) -> dict[tuple[str, str], int]:
    return {(one.pool, role): count for one in answer.pools for role, count in one.by_role.items()}


@PLENTY
@given(problem=problems(most_pools=2))
def test_the_plan_is_the_cheapest_of_all_that_keep_everything(problem: Problem) -> None:
    kept = [plan for plan in every(problem) if not any(totals.broken(problem, plan))]
    answer = solve(problem)
    assert answer.feasible == bool(kept)
    broken = {constraint.code for constraint in totals.broken(problem, by_place(answer))}
    if kept:
        assert not broken
        best = min(totals.totals(problem, plan).objective for plan in kept)
        assert answer.objective == pytest.approx(best, rel=1e-6, abs=1e-9)
    else:
        assert not broken & HARD


@PLENTY
@given(problem=problems(), exact=st.booleans(), order=st.randoms(use_true_random=False))
def test_the_order_of_pools_does_not_matter(problem: Problem, exact: bool, order: object) -> None:
    pools = list(problem.pools)
    order.shuffle(pools)  # type: ignore[attr-defined]
    one, two = solve(problem, exact=exact), solve(replace(problem, pools=tuple(pools)), exact=exact)
    assert one.counts() == two.counts()
    assert by_place(one) == by_place(two)


@PLENTY
@given(problem=problems(), factor=st.floats(1.0, 2.0))
def test_more_need_is_never_cheaper(problem: Problem, factor: float) -> None:
    more = replace(problem, need={role: need * factor for role, need in problem.need.items()})
    one, two = solve(problem), solve(more)
    if two.feasible:
        assert one.feasible
        assert one.objective <= two.objective * (1 + 1e-6) + 1e-9


@PLENTY
@given(problem=problems())
def test_what_is_found_quickly_is_as_good_as_its_gap_says(problem: Problem) -> None:
    quick, exact = solve(problem, exact=False), solve(problem, exact=True)
    assert quick.feasible == exact.feasible
    if exact.feasible:
        assert not any(totals.broken(problem, by_place(quick)))
        assert quick.objective >= exact.objective - 1e-6
        assert quick.objective * (1 - quick.gap) <= exact.objective + 1e-6


@PLENTY
@given(problem=problems(), data=st.data())
def test_neighbours_are_judged_as_plans_are(problem: Problem, data: st.DataObject) -> None:
    near = Neighbourhood(Arrays(problem))
    start = data.draw(st.lists(st.integers(0, 3), min_size=len(near.places), max_size=len(near.places)))
    serving = near.nearest({(pool.name, role): n for (pool, role), n in zip(near.places, start, strict=True)})
    moves = near.moves(serving)
    for source, target in itertools.product((*range(len(near.places)), NOTHING), repeat=2):
        if source != NOTHING and serving[source] == 0:
            continue
        plan = near.by_place(after(serving, (source, target)))
        known, broken = totals.totals(problem, plan), {one.code for one in totals.broken(problem, plan)}
        assert (moves.over[source, target] > 1e-9) == bool(broken & HARD)
        assert (moves.missed[source, target] > 1e-9) == bool(broken - HARD)
        assert moves.objective[source, target] == pytest.approx(known.objective)
        for at, role in enumerate(ROLES):
            assert moves.load[at][source, target] == pytest.approx(min(known.load[role], totals.STARVED), rel=1e-6)


def test_a_swing_worker_in_each_role_is_cheaper_than_two_of_one_role() -> None:
    answer = solve(ask(pool("prefill", 3.0), pool("decode", 3.0), pool("swing", 2.0), prefill=2.5, decode=1.5))
    assert answer.counts() == {"prefill": 0, "decode": 0, "swing": 5}
    assert by_place(answer)["swing", PREFILL] == 3
    assert answer.cost_per_hour == 10.0


def test_pooled_workers_are_loaded_more_closely() -> None:
    pooled = Rates(steps=((1, 0.5), (3, 1.0)))
    first, second = (
        replace(pool(name, price), rates={PREFILL: pooled}) for name, price in (("prefill", 1.0), ("prefill-2", 1.1))
    )
    answer = solve(ask(first, second, pool("decode", 1.0)))
    assert answer.counts()["prefill"] == 3, "two of them would sustain half as much each"


def test_a_spare_worker_stands_in_for_any_that_is_lost() -> None:
    problem = ask(pool("prefill", 1.0), pool("decode", 1.0), spare_worker=True)
    assert solve(problem).counts() == {"prefill": 3, "decode": 3}


def test_the_kv_cache_asks_for_decode_workers() -> None:
    answer = solve(ask(pool("prefill", 1.0), pool("decode", 1.0, kv_tokens=100.0), decode=0.5, kv_tokens=350.0))
    assert answer.counts() == {"prefill": 2, "decode": 4}
    assert answer.load[DECODE] == pytest.approx(350 / 400)


def test_what_a_link_cannot_carry_is_served_where_it_was_computed() -> None:
    pools = (
        pool("prefill", 1.0, site="here"),
        pool("decode-here", 5.0, site="here"),
        pool("decode-there", 1.0, site="there"),
    )
    unlimited = solve(ask(*pools))
    assert unlimited.counts() == {"prefill": 2, "decode-here": 0, "decode-there": 2}
    link = Link(from_site="here", to_site="there", bytes_per_s=100.0)
    limited = solve(ask(*pools, links=(link,), kv_bytes_per_request=100.0))
    assert limited.counts() == {"prefill": 2, "decode-here": 1, "decode-there": 1}
    shares = {one.pool: one.shares for one in limited.pools}
    assert shares["decode-there"][DECODE] == pytest.approx(0.5)


def test_without_a_plan_the_least_bad_one_names_what_is_in_the_way() -> None:
    limits = Limits(accelerators={ALL_PRODUCTS: 6})
    answer = solve(ask(pool("prefill", 1.0), pool("decode", 1.0), prefill=5.0, decode=4.0, limits=limits))
    assert not answer.feasible
    assert answer.counts() == {"prefill": 3, "decode": 3}
    assert [constraint.code for constraint in answer.violated][:2] == ["AcceleratorBudget", "PrefillCapacity"]
    assert answer.violated[0].message == "the budget of 6 accelerators"
    assert answer.violated[1].message == "prefill sustains 3 of 5 requests/s"


def test_both_roles_are_kept_equal_where_not_all_can_be_sustained() -> None:
    answer = solve(ask(pool("swing", 1.0, most=9), prefill=20.0, decode=10.0))
    assert by_place(answer) == {("swing", PREFILL): 6, ("swing", DECODE): 3}
    assert answer.sustained == {PREFILL: 6.0, DECODE: 3.0}


def test_a_plan_says_what_would_change_it() -> None:
    answer = solve(ask(pool("prefill", 3.0, fewest=1), pool("decode", 2.0), prefill=1.5, decode=1.9))
    assert answer.thresholds[0].change == "one more prefill worker at 2 requests/s"
    assert answer.binding is not None
    assert answer.binding.code == "PrefillCapacity"
    less = next(one for one in answer.alternatives if one.change == "one prefill worker less in pool prefill")
    assert less.cost_per_hour == -3.0
    assert less.breaks is not None
    assert less.breaks.message == "prefill would be loaded to 150% within the objectives"
    more = next(one for one in answer.alternatives if one.change == "one decode worker more in pool decode")
    assert (more.cost_per_hour, more.breaks) == (2.0, None)


def test_a_flip_is_told_where_the_other_role_can_spare_a_worker() -> None:
    problem = ask(pool("prefill", 1.0, most=1, fewest=1), pool("swing", 1.0, fewest=4), prefill=1.0, decode=2.5)
    answer = judge(problem, {("prefill", PREFILL): 1, ("swing", PREFILL): 0, ("swing", DECODE): 4})
    assert answer.thresholds[0].change == "one worker of pool swing to prefill at 1 requests/s"


def test_swing_workers_go_where_the_load_is_higher() -> None:
    problem = ask(pool("prefill", 1.0), pool("swing", 1.0), prefill=3.0, decode=2.0)
    counts = {"prefill": 1, "swing": 4}
    assert split(problem, counts) == {("prefill", PREFILL): 1, ("swing", PREFILL): 2, ("swing", DECODE): 2}


@pytest.mark.parametrize(
    ("steps", "message"),
    [
        ((), "first step for 1 worker"),
        (((2, 1.0),), "first step for 1 worker"),
        (((1, 2.0), (2, 1.0)), "must rise"),
        (((1, float("nan")),), "finite"),
    ],
)
def test_rates_that_fall_are_refused(steps: tuple[tuple[int, float], ...], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Rates(steps=steps)
