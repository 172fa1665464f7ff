"""The mixed-integer programme of a problem.

Unknown are the workers of every pool in every role it can have: whole numbers. What each need, budget and link adds to
the programme stands in `coverage`, `spending` and `flows`.

With slack, what is needed may be missed, at a price in columns that the least bad plan makes small first. Budgets and
the most workers of a pool are never missed.
"""

from dataclasses import dataclass, field

from swingpool_control.sizing.programme import coverage, flows, spending
from swingpool_control.sizing.programme.problem import ROLES, Problem
from swingpool_control.sizing.programme.rows import Columns, Rows, Terms
from swingpool_control.sizing.programme.slack import Slack


@dataclass(frozen=True, slots=True, kw_only=True)
class Formulation:
    """A problem as columns and rows."""

    columns: Columns
    rows: Rows
    workers: dict[tuple[str, str], int]
    """Column of the serving workers by pool and role."""
    cost: dict[int, float]
    """The objective by column, but for idle workers."""
    slack: Slack = field(default_factory=Slack)
    """Empty if nothing may be missed."""


def formulate(problem: Problem, *, with_slack: bool) -> Formulation:
    """Return the programme of a problem.

    Args:
        problem: the problem.
        with_slack: whether needs, and the fewest workers of pools, may be missed.
    """
    columns, rows = Columns(), Rows()
    workers: dict[tuple[str, str], int] = {}
    cost: dict[int, float] = {}
    for pool in problem.pools:
        for role in ROLES:
            if role in pool.rates:
                column = columns.add(0, pool.most - pool.idle, whole=True)
                workers[pool.name, role] = column
                cost[column] = spending.objective_per_worker(problem.weights, pool, role)
    slack = Slack.of(problem, columns) if with_slack else Slack()
    for pool in problem.pools:
        total: Terms = [(workers[pool.name, role], 1.0) for role in ROLES if role in pool.rates]
        lacking: Terms = [(slack.bounds[pool.name], 1.0)] if pool.name in slack.bounds else []
        rows.add(total, high=pool.most - pool.idle)
        rows.add(total + lacking, low=pool.fewest - pool.idle)
    steps = {role: coverage.add(problem, role, columns, rows, workers=workers, slack=slack) for role in ROLES}
    spending.add(problem, columns, rows, workers=workers)
    flows.add(problem, columns, rows, steps=steps, slack=slack)
    return Formulation(columns=columns, rows=rows, workers=workers, cost=cost, slack=slack)
