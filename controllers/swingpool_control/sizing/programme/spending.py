"""What a plan spends: its objective, and budgets over all pools.

Budgets hold at every moment of the way to the plan. What a pool may hold at once is the larger of what it is planned to
have, with the pods that a rolling update may add, and of the pods that exist, with those that end: an ending pod keeps
its accelerators until it is gone. Where what exists breaks a budget already (it was lowered), nothing is added to it;
idle workers, which no plan takes away, are never held against one.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from swingpool_control.sizing.programme.problem import ALL_PRODUCTS, ROLES, PoolOption, Problem, Weights
from swingpool_control.sizing.programme.rows import Columns, Rows, Terms


def objective_per_worker(weights: Weights, pool: PoolOption, role: str | None) -> float:
    """Return what one worker in a role, or an idle one, adds to the objective."""
    kilowatts = 0.0 if role is None else pool.watts_in(role) / 1000
    carbon_kg_per_hour = kilowatts * pool.carbon_g_per_kwh / 1000
    spent = weights.cost * pool.price_per_hour + weights.power * kilowatts + weights.carbon * carbon_kg_per_hour
    return spent + pool.surcharge


@dataclass(frozen=True, slots=True, kw_only=True)
class Budget:
    """One limit over several pools."""

    code: str
    message: str
    limit: float
    per_worker: Mapping[str, float]
    """What a worker counts for, by pool."""


def budgets(problem: Problem) -> Iterator[Budget]:
    """Yield the budgets of a problem."""
    limits = problem.limits
    for product, most in sorted(limits.accelerators.items()):
        which = "accelerators" if product == ALL_PRODUCTS else product
        covered = [pool for pool in problem.pools if product in (ALL_PRODUCTS, pool.product)]
        yield Budget(
            code="AcceleratorBudget",
            message=f"the budget of {most} {which}",
            limit=most,
            per_worker={pool.name: float(pool.accelerators) for pool in covered},
        )
    if limits.cost_per_hour is not None:
        prices = {pool.name: pool.price_per_hour for pool in problem.pools}
        message = f"the budget of {limits.cost_per_hour:g} per hour"
        yield Budget(code="CostBudget", message=message, limit=limits.cost_per_hour, per_worker=prices)
    if limits.watts is not None:
        watts = {pool.name: pool.watts_at_most for pool in problem.pools}
        message = f"the budget of {limits.watts:g} W"
        yield Budget(code="PowerBudget", message=message, limit=limits.watts, per_worker=watts)


def at_once(pool: PoolOption, workers: int) -> tuple[int, int]:
    """Return the workers that a pool of so many may have in its end, and on the way to it."""
    end = workers + (pool.surge if workers > 0 else 0)
    return end, max(end, pool.present)


def at_least(pool: PoolOption) -> tuple[int, int]:
    """Return what a pool has in every plan's end, and on the way to it."""
    return at_once(pool, pool.idle)


def broken(problem: Problem, counts: Mapping[str, int]) -> Budget | None:
    """Return the budget that so many workers by pool would break at some moment, or None."""
    planned = {pool.name: at_once(pool, counts[pool.name]) for pool in problem.pools}
    anyway = {pool.name: at_least(pool) for pool in problem.pools}
    for budget in budgets(problem):
        for when in (0, 1):
            held = sum(each * planned[name][when] for name, each in budget.per_worker.items())
            if held > _room(budget.limit):
                least = sum(each * anyway[name][when] for name, each in budget.per_worker.items())
                if held > _room(max(budget.limit, least)):
                    return budget
    return None


def add(problem: Problem, columns: Columns, rows: Rows, *, workers: Mapping[tuple[str, str], int]) -> None:
    """Add the rows of all budgets.

    Args:
        problem: the problem.
        columns: where what pools hold at once goes.
        rows: where rows go.
        workers: column of the serving workers by pool and role.
    """
    held = _Held(columns, rows, workers)
    for budget in budgets(problem):
        covered = [pool for pool in problem.pools if budget.per_worker.get(pool.name)]
        on_end, on_way = (
            max(budget.limit, sum(budget.per_worker[pool.name] * at_least(pool)[when] for pool in covered))
            for when in (0, 1)
        )
        way, fixed = _sum(covered, budget, held.way)
        rows.add(way, high=on_way - fixed)
        if on_way > on_end:
            end, fixed = _sum(covered, budget, held.end)
            rows.add(end, high=on_end - fixed)


def _room(limit: float) -> float:
    return limit + 1e-9 * max(1.0, abs(limit))


def _sum(
    pools: list[PoolOption], budget: Budget, held: Callable[[PoolOption], tuple[Terms, float]]
) -> tuple[Terms, float]:
    """Weighted terms over pools, and their constant part."""
    terms: Terms = []
    fixed = 0.0
    for pool in pools:
        each = budget.per_worker[pool.name]
        parts, constant = held(pool)
        terms += [(column, each * value) for column, value in parts]
        fixed += each * constant
    return terms, fixed


class _Held:
    """Columns of what pools hold, made when a budget asks for them."""

    def __init__(self, columns: Columns, rows: Rows, workers: Mapping[tuple[str, str], int]) -> None:
        self._columns = columns
        self._rows = rows
        self._workers = workers
        self._ends: dict[str, tuple[Terms, float]] = {}
        self._ways: dict[str, tuple[Terms, float]] = {}

    def end(self, pool: PoolOption) -> tuple[Terms, float]:
        """What a pool holds by plan, with a rolling update under way."""
        if pool.name not in self._ends:
            self._ends[pool.name] = self._end(pool)
        return self._ends[pool.name]

    def way(self, pool: PoolOption) -> tuple[Terms, float]:
        """The larger of that and of what exists."""
        if pool.present == 0:
            return self.end(pool)
        if pool.name not in self._ways:
            column = self._columns.add(pool.present, pool.present + pool.most + pool.surge, whole=False)
            end, fixed = self.end(pool)
            self._rows.add([(column, 1.0), *((index, -value) for index, value in end)], low=fixed)
            self._ways[pool.name] = ([(column, 1.0)], 0.0)
        return self._ways[pool.name]

    def _end(self, pool: PoolOption) -> tuple[Terms, float]:
        serving: Terms = [(self._workers[pool.name, role], 1.0) for role in ROLES if role in pool.rates]
        if not pool.surge:
            return serving, float(pool.idle)
        if pool.idle:
            return serving, float(pool.idle + pool.surge)
        some = self._columns.add(0, 1, whole=True)
        self._rows.add([(some, float(pool.most)), *((column, -1.0) for column, _ in serving)], low=0)
        return [*serving, (some, float(pool.surge))], 0.0
