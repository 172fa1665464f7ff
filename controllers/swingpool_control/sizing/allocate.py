"""How many workers of which pool: the fewest more that cover a need, or the most that can go without uncovering it."""

from collections.abc import Mapping
from dataclasses import dataclass, replace

from swingpool_control import names
from swingpool_control.api.scaling import Budgets
from swingpool_control.api.v1alpha1 import PoolRole, ReplicaMode
from swingpool_control.figures import Unknown
from swingpool_control.sizing import budget
from swingpool_control.sizing.budget import Bound
from swingpool_control.sizing.need import ROLES, Need, offer, spread
from swingpool_control.sizing.pools import PoolFacts


@dataclass(frozen=True, slots=True, kw_only=True)
class Allocation:
    """Workers by pool, and what kept it from covering the need, if anything."""

    counts: Mapping[str, int]
    bound: Bound | None = None


def within_bounds(pools: tuple[PoolFacts, ...], budgets: Budgets) -> Allocation:
    """Return what is asked now, moved into each pool's bounds; raised only as far as the budgets allow."""
    counts = {pool.name: min(pool.asked, pool.most) for pool in pools}
    bound = None
    for pool in _cheapest_first(pools, None):
        while counts[pool.name] < pool.fewest:
            raised = counts | {pool.name: counts[pool.name] + 1}
            bound = budget.broken(budgets, pools, raised)
            if bound is not None:
                break
            counts = raised
    return Allocation(counts=counts, bound=bound)


def grow(pools: tuple[PoolFacts, ...], counts: Mapping[str, int], need: Need, budgets: Budgets) -> Allocation:
    """Return the workers with which the need is covered, never fewer of any pool: cheapest pools first.

    Args:
        pools: facts of all pools.
        counts: workers asked for, by pool, to start from.
        need: what shall be covered.
        budgets: what may not be broken.
    """
    counts = dict(counts)
    cover = spread(pools, counts, need)
    bound: Bound | None = None
    exhausted: set[str] = set()
    while True:
        wanting = [role for role in ROLES if cover.pressure(role) > 1.0 and role not in exhausted]
        if not wanting:
            # Swing workers of several kinds may be spread otherwise than in the order in which they were added.
            settled = spread(pools, counts, need)
            if not any(settled.pressure(role) > 1.0 for role in ROLES if role not in exhausted):
                return Allocation(counts=counts, bound=bound)
            cover = settled
            continue
        role = max(wanting, key=cover.pressure)
        chosen, why = _next(pools, counts, role, budgets)
        if chosen is None:
            exhausted.add(role)
            bound = bound or why
            continue
        counts[chosen.name] += 1
        cover.add(role, chosen.capacity)


def shrink(pools: tuple[PoolFacts, ...], counts: Mapping[str, int], need: Need) -> dict[str, int]:
    """Return the fewest workers, never more of any pool, that still cover the need: dearest pools go first."""
    counts = dict(counts)
    for pool in reversed(_cheapest_first(pools, None)):
        if pool.mode is not ReplicaMode.AUTO:
            continue
        low, high = min(pool.fewest, counts[pool.name]), counts[pool.name]
        while low < high:
            middle = (low + high) // 2
            if spread(pools, counts | {pool.name: middle}, need).complete:
                high = middle
            else:
                low = middle + 1
        counts[pool.name] = high
    return counts


def trim(pools: tuple[PoolFacts, ...], counts: Mapping[str, int], need: Need, budgets: Budgets) -> Allocation:
    """Return the workers that a budget leaves when it was lowered under what runs: dearest pools give first.

    Pods that end are not held against it: they go as fast as they can. No role loses its last worker.
    """
    settled = tuple(replace(pool, present=0) for pool in pools)
    counts = dict(counts)
    bound: Bound | None = None
    for pool in reversed(_cheapest_first(pools, None)):
        if pool.mode is not ReplicaMode.AUTO:
            continue
        while (over := budget.broken(budgets, settled, counts)) and counts[pool.name] > pool.fewest:
            lowered = counts | {pool.name: counts[pool.name] - 1}
            if not all(spread(pools, lowered, need).workers.values()):
                break
            counts, bound = lowered, over
    return Allocation(counts=counts, bound=bound)


def _next(
    pools: tuple[PoolFacts, ...], counts: Mapping[str, int], role: str, budgets: Budgets
) -> tuple[PoolFacts | None, Bound]:
    """The cheapest pool that can give a role one worker more; or None, and what the cheapest ones lacked."""
    why = Bound(code="NoPool", message=f"no pool in mode Auto can serve {role}")
    for pool in _cheapest_first(pools, role):
        if counts[pool.name] >= pool.most:
            why = Bound(code="MaxReplicas", message=f"replicas.max of pool {pool.name}")
        elif pool.blocked:
            why = Bound(code="NoCapacity", message=f"pool {pool.name} cannot get more workers")
        else:
            broken = budget.broken(budgets, pools, {**counts, pool.name: counts[pool.name] + 1})
            if broken is None:
                return pool, why
            why = broken
    return None, why


def _cheapest_first(pools: tuple[PoolFacts, ...], role: str | None) -> list[PoolFacts]:
    """Pools by price of what a worker does for a role (or of a worker, for none), then in the spec's order."""
    own = {names.ROLE_PREFILL: PoolRole.PREFILL, names.ROLE_DECODE: PoolRole.DECODE}
    able = [
        pool
        for pool in pools
        if role is None or (pool.mode is ReplicaMode.AUTO and pool.role in (own[role], PoolRole.SWING))
    ]
    return sorted((pool for pool in able), key=lambda pool: (_price(pool, role), pool.order))


def _price(pool: PoolFacts, role: str | None) -> float:
    price = 0.0 if isinstance(pool.price_per_hour, Unknown) else pool.price_per_hour
    if role is None:
        return price
    return price / max(1e-9, offer(pool.capacity, role)[0])
