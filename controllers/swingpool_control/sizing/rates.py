"""What workers of a pool sustain in each role within the objectives, as the sizing programme takes it.

The queueing model says how many requests per second n workers sustain; per worker that rises with n, since their queue
is one queue. The programme takes it in steps.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache

from swingpool_control import names
from swingpool_control.engine.model import PerformanceModel
from swingpool_control.observation import PERCENTILES
from swingpool_control.sizing import sustained
from swingpool_control.sizing.programme import Rates
from swingpool_control.sizing.queueing import Group, decode_rate, prefill_rate
from swingpool_control.sizing.traffic import Traffic

MOST_WORKERS = 512
"""Beyond so many workers of a role, one more adds what it adds there."""

RISE = 0.02
"""Share by which a rate must rise for another step: so far may the programme be on the safe side."""

SATURATED = 0.9
"""Share of its full rate that a worker is planned with where no objective can be met: at least nothing piles up."""

HANDOVER = 0.5
"""Share of the TTFT objective that waiting for decode workers may take; they are faster than a loose ITL objective."""

Limit = tuple[tuple[float, float], ...]
"""An objective: `(percentile, seconds)`, all of which must hold."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Latencies:
    """Both objectives."""

    ttft: Limit
    itl: Limit

    @classmethod
    def of(cls, *, ttft: Mapping[str, float], itl: Mapping[str, float]) -> "Latencies":
        """Return objectives that are given in seconds by the names of percentiles."""
        return cls(
            ttft=tuple((PERCENTILES[name], limit_s) for name, limit_s in ttft.items()),
            itl=tuple((PERCENTILES[name], limit_s) for name, limit_s in itl.items()),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Sustained:
    """What a pool's workers sustain."""

    rates: Mapping[str, Rates]
    """By role."""
    unreachable: frozenset[str]
    """Roles in which no number of them meets the objectives; their rates are those of workers that are nearly full."""


def sustains(
    model: PerformanceModel, *, traffic: Traffic, latencies: Latencies, roles: tuple[str, ...], most: int
) -> Sustained:
    """Return what workers sustain.

    Args:
        model: the workers' performance model.
        traffic: what comes in; its rate does not matter.
        latencies: the objectives.
        roles: the roles that they can have.
        most: the most workers that any role can have.
    """
    shape = traffic.at_rate(1.0)
    found = {role: _rates(model, shape, latencies, role, max(1, min(most, MOST_WORKERS))) for role in roles}
    return Sustained(
        rates={role: rates for role, (rates, _) in found.items()},
        unreachable=frozenset(role for role, (_, reachable) in found.items() if not reachable),
    )


def steps(each: tuple[float, ...]) -> Rates:
    """Return what 1, 2, ... workers sustain together as steps of what each adds."""
    found = [(1, each[0])]
    for workers, rate in enumerate(each[1:], start=2):
        if rate / workers > found[-1][1] * (1 + RISE):
            found.append((workers, rate / workers))
    return Rates(steps=tuple(found))


@lru_cache(maxsize=512)
def _rates(model: PerformanceModel, traffic: Traffic, latencies: Latencies, role: str, most: int) -> tuple[Rates, bool]:
    if role == names.ROLE_PREFILL:
        reserve_s = sustained.handover_s(model, itl_s=min(limit_s for _, limit_s in latencies.itl))
        each = _worst(
            latencies.ttft,
            lambda level, limit_s: sustained.prefill_rates(
                model,
                traffic=traffic,
                level=level,
                ttft_s=limit_s,
                handover_s=min(reserve_s, limit_s * HANDOVER),
                most=most,
            ),
        )
        full = prefill_rate(Group(model=model, workers=1), traffic)
    else:
        each = _worst(
            latencies.itl,
            lambda level, limit_s: sustained.decode_rates(
                model, traffic=traffic, level=level, itl_s=limit_s, most=most
            ),
        )
        full = decode_rate(model, traffic)
    if each[-1] > 0:
        return steps(each), True
    return Rates(steps=((1, SATURATED * full),)), False


def _worst(limit: Limit, rates: Callable[[float, float], tuple[float, ...]]) -> tuple[float, ...]:
    """What is sustained when all percentiles of an objective must hold."""
    return tuple(min(each) for each in zip(*(rates(level, limit_s) for level, limit_s in limit), strict=True))
