"""Budgets over all pools: accelerators by product, and money per hour. They hold at every moment of every transition.

What a pool may hold at once is the larger of what is asked of it, with the pods that a rolling update may add, and of
the pods that exist, with those that end: an ending pod keeps its accelerators until it is gone.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from swingpool_control.api.quantities import money
from swingpool_control.api.scaling import Budgets
from swingpool_control.figures import Unknown
from swingpool_control.sizing.pools import PoolFacts

ALL_PRODUCTS = "*"


@dataclass(frozen=True, slots=True, kw_only=True)
class Bound:
    """A budget that a number of workers would break."""

    code: str
    message: str


def broken(budgets: Budgets, pools: tuple[PoolFacts, ...], counts: Mapping[str, int]) -> Bound | None:
    """Return the budget that these workers would break at some moment, or None if all hold.

    Args:
        budgets: the budgets.
        pools: facts of all pools.
        counts: workers to ask for, by pool.
    """
    for budget in budgets.accelerators:
        covered = [pool for pool in pools if budget.product in (ALL_PRODUCTS, pool.product)]
        used = sum(_at_once(pool, counts[pool.name]) * pool.accelerators for pool in covered)
        if used > budget.max:
            which = "accelerators" if budget.product == ALL_PRODUCTS else budget.product
            kept = sum(pool.surge * pool.accelerators for pool in covered if counts[pool.name] > 0)
            spare = f", of which rolling updates need {kept}," if kept else ""
            return Bound(code="AcceleratorBudget", message=f"the budget of {budget.max} {which}{spare}")
    if budgets.cost_per_hour is None:
        return None
    return _broken_cost(money(budgets.cost_per_hour), pools, counts)


def _broken_cost(limit: float, pools: tuple[PoolFacts, ...], counts: Mapping[str, int]) -> Bound | None:
    spent = 0.0
    for pool in pools:
        workers = _at_once(pool, counts[pool.name])
        if isinstance(pool.price_per_hour, Unknown):
            if workers > max(pool.fewest, pool.present):
                return Bound(code="PriceUnknown", message=f"pool {pool.name} has no costPerHour to hold a budget by")
            continue
        spent += workers * pool.price_per_hour
    if spent > limit + 1e-9:
        return Bound(code="CostBudget", message=f"the budget of {limit:g} per hour")
    return None


def _at_once(pool: PoolFacts, count: int) -> int:
    surge = pool.surge if count > 0 else 0
    return max(count + surge, pool.present)
