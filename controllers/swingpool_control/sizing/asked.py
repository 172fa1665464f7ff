"""The sizing programme's problem, from what is known of a cluster.

Prices order the pools. Without any price an accelerator is the unit; a pool without one among others counts as dear as
the dearest accelerator. Of two that cost the same a swing pool comes first: it can do both.
"""

from collections.abc import Mapping

from swingpool_control.api.quantities import money
from swingpool_control.api.scaling import Scaling
from swingpool_control.api.v1alpha1 import PoolRole
from swingpool_control.figures import Unknown
from swingpool_control.sizing.need import Need
from swingpool_control.sizing.pools import PoolFacts
from swingpool_control.sizing.programme import Limits, PoolOption, Problem

FIXED_ROLE = 0.001
"""Share of its price that a worker of one role counts for more."""


def to_grow(facts: tuple[PoolFacts, ...], counts: Mapping[str, int], need: Need, scaling: Scaling) -> Problem:
    """Return the question what more workers, at least so many of each pool, cover a need.

    Args:
        facts: facts of all pools.
        counts: workers by pool to start from.
        need: what shall be covered.
        scaling: budgets, and whether a worker may be lost.
    """
    options = tuple(
        _option(
            pool,
            facts,
            fewest=counts[pool.name],
            most=_most(pool, counts[pool.name], scaling),
            idle=min(counts[pool.name], max(0, pool.asked - pool.useful)),
        )
        for pool in facts
    )
    return _problem(options, need, scaling)


def to_shrink(facts: tuple[PoolFacts, ...], counts: Mapping[str, int], need: Need, scaling: Scaling) -> Problem:
    """Return the question which workers, at most so many of each pool, are enough; those that serve nothing go first.

    Budgets are left out: fewer workers break none.
    """
    options = []
    for pool in facts:
        high = counts[pool.name]
        serving = max(0, high - max(0, pool.asked - pool.useful))
        low = min(high, pool.fewest) if pool.scales else high
        idle = max(0, low - serving)
        options.append(_option(pool, facts, fewest=low, most=max(low, serving), idle=idle, settled=True))
    return _problem(tuple(options), need, scaling, limited=False)


def as_is(facts: tuple[PoolFacts, ...], counts: Mapping[str, int], need: Need, scaling: Scaling) -> Problem:
    """Return the problem in which these numbers are one plan among all that bounds and budgets allow."""
    options = []
    for pool in facts:
        count = counts[pool.name]
        idle = min(count, max(0, pool.asked - pool.useful)) if count >= pool.asked else max(0, count - pool.useful)
        low = max(idle, min(count, pool.fewest))
        options.append(_option(pool, facts, fewest=low, most=_most(pool, count, scaling), idle=idle))
    return _problem(tuple(options), need, scaling)


def _most(pool: PoolFacts, count: int, scaling: Scaling) -> int:
    """The most workers that a pool may be given now, `count` at least."""
    if not pool.scales or pool.blocked:
        return count
    if scaling.budgets.cost_per_hour is not None and isinstance(pool.price_per_hour, Unknown):
        return max(count, min(pool.most, max(pool.fewest, pool.present)))
    return max(count, pool.most)


def _option(
    pool: PoolFacts, facts: tuple[PoolFacts, ...], *, fewest: int, most: int, idle: int, settled: bool = False
) -> PoolOption:
    price = _price(pool, facts)
    return PoolOption(
        name=pool.name,
        rates=pool.rates,
        fewest=fewest,
        most=most,
        price_per_hour=price,
        surcharge=0.0 if pool.role is PoolRole.SWING else price * FIXED_ROLE,
        product=pool.product,
        accelerators=pool.accelerators,
        kv_tokens=pool.kv_tokens,
        idle=idle,
        surge=pool.surge,
        present=0 if settled else pool.present,
        blocked=pool.blocked,
    )


def _price(pool: PoolFacts, facts: tuple[PoolFacts, ...]) -> float:
    """Price of a worker, or what stands for it."""
    if not isinstance(pool.price_per_hour, Unknown):
        return pool.price_per_hour
    known = [one.price_per_hour / one.accelerators for one in facts if not isinstance(one.price_per_hour, Unknown)]
    return pool.accelerators * max(known, default=1.0)


def _problem(options: tuple[PoolOption, ...], need: Need, scaling: Scaling, *, limited: bool = True) -> Problem:
    budgets = scaling.budgets
    limits = Limits(
        accelerators={budget.product: budget.max for budget in budgets.accelerators},
        cost_per_hour=None if budgets.cost_per_hour is None else money(budgets.cost_per_hour),
    )
    return Problem(
        pools=options,
        need=need.by_role(),
        kv_tokens=need.kv_tokens,
        limits=limits if limited else Limits(),
        spare_worker=scaling.lost_workers > 0,
    )
