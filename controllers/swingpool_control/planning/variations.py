"""How a plan would be another one: with other objectives, rates and prices, or without one of the accelerator types.

All by the formulas alone: they are many, and only the plan itself is simulated.
"""

from dataclasses import dataclass

from swingpool_control.api.quantities import money
from swingpool_control.api.v1alpha1 import LatencyObjective, Objectives
from swingpool_control.planning.mix import Asked, Mix, mix

RATES = (0.25, 0.5, 0.75, 1.0, 1.25, 1.5, 2.0, 3.0)
PRICES = (0.5, 0.75, 1.5, 2.0)
_PERCENTILES = ("p99", "p95", "p90", "p50")


@dataclass(frozen=True, slots=True, kw_only=True)
class Variation:
    """What was changed, and the mix that follows."""

    change: str
    factor: float | None
    """What a rate or price was multiplied with; None for other changes."""
    mix: Mix


def at_rates(asked: Asked) -> tuple[Variation, ...]:
    """Return the mixes for more and fewer requests."""
    return tuple(
        Variation(change=f"{factor:g} times the requests", factor=factor, mix=mix(asked.scaled(factor)))
        for factor in RATES
    )


def at_median(asked: Asked) -> Variation:
    """Return the mix that holds the same latencies only for half of the requests."""
    objectives = asked.spec.objectives
    eased = Objectives(ttft=_median(objectives.ttft), itl=_median(objectives.itl))
    return Variation(change="the same latencies at p50 only", factor=None, mix=mix(asked.with_objectives(eased)))


def without_each(asked: Asked) -> tuple[Variation, ...]:
    """Return the mixes without one of the pools; none where there is only one."""
    pools = asked.spec.pools
    return tuple(
        Variation(
            change=f"without {missing.name}",
            factor=None,
            mix=mix(asked.with_pools(tuple(pool for pool in pools if pool is not missing))),
        )
        for missing in pools
        if len(pools) > 1
    )


def at_prices(asked: Asked) -> tuple[Variation, ...]:
    """Return the mixes with one pool at another price; none without prices or with one pool only."""
    pools = asked.spec.pools
    if len(pools) < 2:
        return ()
    found = []
    for number, pool in enumerate(pools):
        if pool.cost_per_hour is None:
            continue
        for factor in PRICES:
            price = f"{money(pool.cost_per_hour) * factor:.4f}"
            dearer = pool.model_copy(update={"cost_per_hour": price})
            changed = (*pools[:number], dearer, *pools[number + 1 :])
            found.append(
                Variation(
                    change=f"{pool.name} at {factor:g} times its price",
                    factor=factor,
                    mix=mix(asked.with_pools(changed)),
                )
            )
    return tuple(found)


def _median(objective: LatencyObjective) -> LatencyObjective:
    highest = next(value for name in _PERCENTILES if (value := getattr(objective, name)) is not None)
    return LatencyObjective(p50=highest)
