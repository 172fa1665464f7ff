"""What is asked now, moved into the pools' bounds, and into budgets that were lowered: where every plan starts."""

from collections.abc import Mapping
from dataclasses import dataclass, replace

from swingpool_control.api.scaling import Budgets
from swingpool_control.figures import Unknown
from swingpool_control.sizing import budget
from swingpool_control.sizing.budget import Bound
from swingpool_control.sizing.pools import PoolFacts
from swingpool_control.sizing.programme import Problem, split, totals


@dataclass(frozen=True, slots=True, kw_only=True)
class Allocation:
    """Workers by pool, and what kept pools below their fewest, if anything."""

    counts: Mapping[str, int]
    bound: Bound | None = None


def within_bounds(pools: tuple[PoolFacts, ...], budgets: Budgets) -> Allocation:
    """Return what is asked now, moved into each pool's bounds; raised only as far as the budgets allow."""
    counts = {pool.name: min(pool.asked, pool.most) for pool in pools}
    bound = None
    for pool in _cheapest_first(pools):
        while counts[pool.name] < pool.fewest:
            raised = counts | {pool.name: counts[pool.name] + 1}
            bound = budget.broken(budgets, pools, raised)
            if bound is not None:
                break
            counts = raised
    return Allocation(counts=counts, bound=bound)


def trim(pools: tuple[PoolFacts, ...], counts: Mapping[str, int], problem: Problem, budgets: Budgets) -> Allocation:
    """Return the workers that a budget leaves when it was lowered under what runs: dearest pools give first.

    Pods that end are not held against it: they go as fast as they can. No role loses its last worker.

    Args:
        pools: facts of all pools.
        counts: workers by pool.
        problem: what they must sustain.
        budgets: what may not be broken.
    """
    settled = tuple(replace(pool, present=0) for pool in pools)
    counts = dict(counts)
    bound: Bound | None = None
    for pool in reversed(_cheapest_first(pools)):
        if not pool.scales:
            continue
        while (over := budget.broken(budgets, settled, counts)) and counts[pool.name] > pool.fewest:
            lowered = counts | {pool.name: counts[pool.name] - 1}
            if not all(totals.totals(problem, split(problem, lowered)).workers.values()):
                break
            counts, bound = lowered, over
    return Allocation(counts=counts, bound=bound)


def _cheapest_first(pools: tuple[PoolFacts, ...]) -> list[PoolFacts]:
    """Pools by the price of a worker, then in the spec's order; one without a price first."""
    prices = {p.name: 0.0 if isinstance(p.price_per_hour, Unknown) else p.price_per_hour for p in pools}
    return sorted(pools, key=lambda pool: (prices[pool.name], pool.order))
