"""Solving the sizing programme: the best plan, or the least bad one, checked and with its reasons."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from swingpool_control.sizing.programme import bound, compact, rounding, search, shares, totals
from swingpool_control.sizing.programme.answer import Answer, PlannedWorkers
from swingpool_control.sizing.programme.arrays import Arrays, Reals, Wholes
from swingpool_control.sizing.programme.formulation import Formulation, formulate
from swingpool_control.sizing.programme.neighbourhood import Neighbourhood
from swingpool_control.sizing.programme.plans import Plans
from swingpool_control.sizing.programme.problem import ROLES, Problem
from swingpool_control.sizing.programme.reasons import Reasons
from swingpool_control.sizing.programme.rows import Solution, minimise
from swingpool_control.sizing.programme.totals import Serving
from swingpool_control.sizing.programme.trades import Trades

ROUNDING = 2e-6
"""By how much a need is raised when the solver, within its own tolerance, fell just short of it."""


LOOKS = 10
"""How often the quick search looks at neighbours."""

MORE = (1.03, 1.06, 1.0)
"""Times the need, for whose fractional plans roundings are tried: what sustains more can lose some by rounding."""

TRADES = 12
"""How many trades are made at most from each."""

OTHER_STARTS = (0.3, -0.3)
"""Where else it starts, if need be: how far above fractional numbers, before they are rounded."""

EXACT_PLACES = 12
"""Up to so many places, pools times roles, the exact search is quick too."""


def solve(problem: Problem, *, exact: bool | None = None) -> Answer:
    """Return the plan of least objective that keeps every constraint, or the least bad one with what it breaks.

    The least bad plan keeps the budgets and the most workers of pools, and misses as little as it can of the rest;
    `slack` says what weighs how much. The answer does not depend on the order of the pools.

    Args:
        problem: the problem.
        exact: whether to search until the plan is proved the best; if not, the plan is found in milliseconds, and the
            answer's gap says how much better another might be. None: exactly, if the problem is small.

    Raises:
        ArithmeticError: the solver gave up.
    """
    ordered = replace(problem, pools=tuple(sorted(problem.pools, key=lambda pool: pool.name)))
    if exact is None:
        exact = sum(len(pool.rates) for pool in problem.pools) <= EXACT_PLACES
    serving, gap, feasible = _search(ordered, exact=exact)
    return judge(problem, serving, gap=gap, feasible=feasible)


def judge(problem: Problem, serving: Serving, *, gap: float = 1.0, feasible: bool | None = None) -> Answer:
    """Return what is to be said of a plan, wherever it comes from.

    Args:
        problem: the problem.
        serving: workers by pool and role.
        gap: share of the objective by which a better plan might exist.
        feasible: whether it keeps every constraint; None: look.
    """
    known = totals.totals(problem, serving)
    why = Reasons(problem, serving)
    shared = shares.shares(problem, serving, known)
    counts = totals.counts(problem, serving)
    if feasible is None:
        feasible = not any(totals.broken(problem, serving)) and shares.are_carried(problem, serving)
    return Answer(
        pools=tuple(
            PlannedWorkers(
                pool=pool.name,
                workers=counts[pool.name],
                by_role={role: serving.get((pool.name, role), 0) for role in ROLES if role in pool.rates},
                shares={role: shared[pool.name, role] for role in ROLES if role in pool.rates},
            )
            for pool in problem.pools
        ),
        cost_per_hour=known.cost_per_hour,
        watts=known.watts,
        carbon_g_per_hour=known.carbon_g_per_hour,
        objective=known.objective,
        gap=gap,
        sustained=known.sustained,
        load=known.load,
        binding=why.binding(),
        violated=() if feasible else why.violated(),
        alternatives=why.alternatives(),
        thresholds=why.thresholds(),
    )


def _search(problem: Problem, *, exact: bool) -> tuple[dict[tuple[str, str], int], float, bool]:
    """Serving workers by pool and role, the gap left, and whether every constraint is kept."""
    quick = None if exact else _quickly(problem)
    if quick is not None and (quick.kept or quick.proved):
        return quick.serving, quick.gap, quick.kept
    kept = _exactly(problem)
    if kept is not None:
        return (*kept, True)
    if quick is not None and not problem.links:
        return quick.serving, quick.gap, False
    return (*_least_bad(problem), False)


def _exactly(problem: Problem) -> tuple[dict[tuple[str, str], int], float] | None:
    """The best plan; None if there is none."""
    stated = formulate(problem, with_slack=False)
    found = minimise(stated.columns, stated.rows, stated.cost)
    if found is None:
        return None
    serving = _serving(stated, found)
    if any(totals.broken(problem, serving)):
        # HiGHS keeps rows within its own tolerance, so a plan may fall just short of a need.
        raised = {role: need * (1 + ROUNDING) for role, need in problem.need.items()}
        stated = formulate(
            replace(problem, need=raised, kv_tokens=problem.kv_tokens * (1 + ROUNDING)), with_slack=False
        )
        found = minimise(stated.columns, stated.rows, stated.cost)
        if found is None:
            return None
        serving = _serving(stated, found)
    return serving, found.gap


@dataclass(frozen=True, slots=True, kw_only=True)
class _Quick:
    """What was found without HiGHS' search."""

    serving: dict[tuple[str, str], int]
    gap: float
    kept: bool
    """Whether it keeps everything."""
    proved: bool
    """Whether no plan keeps everything."""


def _quickly(problem: Problem) -> _Quick | None:
    """A plan near those of the compact programme; None if the search found none that keeps the budgets."""
    arrays = Arrays(problem)
    stated, plans = compact.Compact(arrays), Plans(arrays)
    at_best = stated.at_best()
    if at_best is None:
        return None
    held = [at_best]
    if at_best.missed > 0:
        return _walk(arrays, held, None)
    trades = Trades(arrays, plans)
    for more in MORE:
        near = stated.after(held[-1], more=more)
        if near is None:
            break
        held.append(near)
        start = rounding.rounded(arrays, plans, near.workers)
        if start is not None:
            kept = trades.best(start, trades=TRADES)
            if shares.are_carried(problem, arrays.by_place(kept)):
                return _with_gap(arrays, held, kept)
    return _walk(arrays, held, trades)


def _walk(arrays: Arrays, held: Sequence[compact.Held], trades: Trades | None) -> _Quick | None:
    """A plan found by single moves, bettered by trades if it keeps everything."""
    problem, near = arrays.problem, Neighbourhood(arrays)
    best: search.Found | None = None
    for start, prices in _starts(held):
        found = search.improve(near, start, prices=prices, looks=LOOKS)
        if found is None:
            continue
        if found.missed <= 0 and shares.are_carried(problem, found.serving):
            serving = arrays.nearest(found.serving)
            better = serving if trades is None else trades.best(serving, trades=TRADES)
            carried = shares.are_carried(problem, arrays.by_place(better))
            return _with_gap(arrays, held, better if carried else serving)
        if best is None or found.missed < best.missed:
            best = found
    if best is None:
        return None
    missed = held[0].missed
    proved = missed > 0 and not problem.links
    return _Quick(serving=best.serving, gap=max(0.0, best.missed - missed), kept=False, proved=proved)


def _with_gap(arrays: Arrays, held: Sequence[compact.Held], serving: Wholes) -> _Quick:
    """A plan that keeps everything, and by how much a better one might undercut it."""
    objective, under = arrays.fixed + float(arrays.unit @ serving), max(0.0, bound.bound(arrays, held[-1]))
    gap = max(0.0, 1 - under / objective) if objective > 0 else 0.0
    return _Quick(serving=arrays.by_place(serving), gap=gap, kept=True, proved=False)


def _starts(held: Sequence[compact.Held]) -> Iterator[tuple[Wholes, Reals]]:
    """Yield plans to walk from, with prices to walk by: fractions rounded in several ways."""
    yield _rounded(held[-1], 0.0), held[-1].dear
    if held[0].missed > 0:
        return
    for above in OTHER_STARTS:
        for one in reversed(held[-2:]):
            yield _rounded(one, above), one.dear


def _rounded(held: compact.Held, above: float) -> Wholes:
    """Return whole numbers of workers near those that much above a solution's."""
    return np.maximum(0, np.rint(held.workers + above)).astype(np.int64)


def _least_bad(problem: Problem) -> tuple[dict[tuple[str, str], int], float]:
    """The plan that misses least of what is needed, and of such plans the best; and the gap of what it misses."""
    stated = formulate(problem, with_slack=True)
    missed = stated.slack.weights()
    least = minimise(stated.columns, stated.rows, missed)
    if least is None:
        raise ArithmeticError("no numbers of workers keep the budgets, not even none")
    stated.rows.add(list(missed.items()), high=least.objective * (1 + 1e-9) + 1e-7)
    found_whole = minimise(stated.columns, stated.rows, stated.cost) or least
    return _serving(stated, found_whole), found_whole.gap


def _serving(stated: Formulation, found: Solution) -> dict[tuple[str, str], int]:
    return {key: found.whole(column) for key, column in stated.workers.items()}
