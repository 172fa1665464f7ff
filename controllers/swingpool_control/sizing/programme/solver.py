"""Solving the sizing programme: the best plan, or the least bad one, checked and with its reasons."""

from dataclasses import replace

from swingpool_control.sizing.programme import search, shares, totals
from swingpool_control.sizing.programme.answer import Answer, PlannedWorkers
from swingpool_control.sizing.programme.formulation import Formulation, formulate
from swingpool_control.sizing.programme.neighbourhood import Neighbourhood, Reals
from swingpool_control.sizing.programme.problem import ROLES, Problem
from swingpool_control.sizing.programme.reasons import Reasons
from swingpool_control.sizing.programme.rows import Relaxed, Solution, minimise, relax
from swingpool_control.sizing.programme.totals import Serving

ROUNDING = 2e-6
"""By how much a need is raised when the solver, within its own tolerance, fell just short of it."""


LOOKS = 40
"""How often the quick search looks at neighbours."""

STARTS = ((0.0, LOOKS), (0.3, 2 * LOOKS), (-0.3, 2 * LOOKS))
"""Where it starts, until a plan is found: how far above the relaxed plan, and for how many looks."""

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
    stated = formulate(problem, with_slack=False)
    relaxed = relax(stated.columns, stated.rows, stated.cost)
    if relaxed is not None:
        kept = _exactly(problem, stated) if exact else _quickly(problem, stated, relaxed)
        if kept is not None:
            return (*kept, True)
    return (*_least_bad(problem, exact=exact), False)


def _exactly(problem: Problem, stated: Formulation) -> tuple[dict[tuple[str, str], int], float] | None:
    """The best plan; None if there is none."""
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


def _quickly(
    problem: Problem, stated: Formulation, relaxed: Relaxed
) -> tuple[dict[tuple[str, str], int], float] | None:
    """A plan near the relaxed one, with how far from the best it may be; None if the search found none."""
    near = Neighbourhood(problem)
    prices = _prices(near, stated, relaxed)
    for above, looks in STARTS:
        start = {key: relaxed.values[column] + above for key, column in stated.workers.items()}
        found = search.improve(near, start, prices=prices, looks=looks)
        if found is not None and found.missed <= 0 and shares.are_carried(problem, found.serving):
            break
    else:
        return _exactly(problem, stated)
    best = relaxed.objective + near.fixed
    return found.serving, max(0.0, 1 - best / found.objective) if found.objective > 0 else 0.0


def _prices(near: Neighbourhood, stated: Formulation, relaxed: Relaxed) -> Reals:
    """What a worker in each place costs, with what the budgets it uses up are worth elsewhere."""
    prices = near.unit.copy()
    for row, budget in stated.budgets:
        for place, (pool, _) in enumerate(near.places):
            prices[place] += relaxed.prices[row] * budget.per_worker.get(pool.name, 0.0)
    return prices


def _least_bad(problem: Problem, *, exact: bool) -> tuple[dict[tuple[str, str], int], float]:
    """The plan that misses least of what is needed, and of such plans the best; and the gap of what it misses."""
    stated = formulate(problem, with_slack=True)
    missed = stated.slack.weights()
    if not exact and not problem.links:
        relaxed = relax(stated.columns, stated.rows, missed)
        near = Neighbourhood(problem)
        if relaxed is not None:
            start = {key: relaxed.values[column] for key, column in stated.workers.items()}
            found = search.improve(near, start, prices=_prices(near, stated, relaxed), looks=LOOKS)
            if found is not None and found.missed > 0:
                return found.serving, max(0.0, found.missed - relaxed.objective)
    least = minimise(stated.columns, stated.rows, missed)
    if least is None:
        raise ArithmeticError("no numbers of workers keep the budgets, not even none")
    stated.rows.add(list(missed.items()), high=least.objective * (1 + 1e-9) + 1e-7)
    found_whole = minimise(stated.columns, stated.rows, stated.cost) or least
    return _serving(stated, found_whole), found_whole.gap


def _serving(stated: Formulation, found: Solution) -> dict[tuple[str, str], int]:
    return {key: found.whole(column) for key, column in stated.workers.items()}
