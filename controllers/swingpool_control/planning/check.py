"""The plan checked by simulation: a worker more where it does not hold, one less where it still does.

Formulas know neither prefix caches nor deflection, and flips only as roles that may differ from stretch to stretch. So
the mix that they propose is simulated with the traffic itself, and what the simulation shows has the last word.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace

from swingpool_control.api.v1alpha1 import InferenceClusterSpec, PoolRole
from swingpool_control.planning.mix import Mix, Workers, cost_per_hour
from swingpool_control.simulation.result import Result

KINDS = ("swing", "prefill", "decode")
MOST_CHECKS = 10

Simulate = Callable[[Mix], Result]


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """One mix that was simulated."""

    mix: Mix
    result: Result
    change: str
    """How it differs from the mix that was simulated before it."""

    @property
    def holds(self) -> bool:
        """Whether every objective was met and no request was lost."""
        return holds(self.result)


def holds(result: Result) -> bool:
    """Return whether every objective was met and no request was lost."""
    return result.finished and not result.refused + result.failed and all(one.holds for one in result.objectives)


def checked(spec: InferenceClusterSpec, proposed: Mix, simulate: Simulate) -> tuple[Check, ...]:
    """Simulate a mix and its neighbours; return all that was tried, in order.

    Args:
        spec: what was asked for: limits of the pools, prices.
        proposed: where to begin.
        simulate: runs the traffic on a mix.
    """
    tried = [Check(mix=proposed, result=simulate(proposed), change="as computed")]
    step = 1
    while not tried[-1].holds and len(tried) < MOST_CHECKS:
        grown = _grown(spec, tried[-1], step)
        if grown is None:
            return tuple(tried)
        change, mix = grown
        tried.append(Check(mix=mix, result=simulate(mix), change=change))
        step *= 2
    if tried[-1].holds:
        _shrink(spec, tried, simulate)
    return tuple(tried)


def best(tried: tuple[Check, ...]) -> Check | None:
    """Return the cheapest of those that held; None if none did."""
    return min((one for one in tried if one.holds), key=lambda one: one.mix.cost_per_hour, default=None)


def _shrink(spec: InferenceClusterSpec, tried: list[Check], simulate: Simulate) -> None:
    """Take away one worker after the other, each kind until it is missed; swing workers stand for both others."""
    held = tried[-1]
    for kind in KINDS:
        while len(tried) < MOST_CHECKS and (kind == "swing" or not any(one.swing for one in held.mix.workers)):
            smaller = _smaller(spec, held.mix, kind)
            if smaller is None or any(one.mix.workers == smaller[1].workers for one in tried):
                break
            change, mix = smaller
            tried.append(Check(mix=mix, result=simulate(mix), change=change))
            if not tried[-1].holds:
                break
            held = tried[-1]


def _smaller(spec: InferenceClusterSpec, mix: Mix, kind: str) -> tuple[str, Mix] | None:
    """Return a mix with one worker less of a kind, from the dearest pool that has one; None if that cannot be."""
    prices = {one.pool: cost_per_hour(spec, _alone(mix, one)) / one.total for one in mix.workers if one.total}
    having = [one for one in mix.workers if getattr(one, kind) > 0]
    if not having:
        return None
    chosen = max(having, key=lambda one: prices[one.pool])
    smaller = _with(spec, mix, chosen, kind, -1)
    prefill, decode, swing = (
        sum(getattr(one, name) for one in smaller.workers) for name in ("prefill", "decode", "swing")
    )
    if max(0, 1 - prefill) + max(0, 1 - decode) > swing:
        return None
    return f"one {kind} worker less in {chosen.pool}", smaller


def _grown(spec: InferenceClusterSpec, last: Check, step: int) -> tuple[str, Mix] | None:
    """Return a mix with more workers for the role that missed its objective; None if every pool is full."""
    ttft_held = all(one.holds for one in last.result.objectives if one.metric == "ttft")
    role = "decode" if ttft_held else "prefill"
    swings = any(one.swing for one in last.mix.workers)
    able = {PoolRole.SWING: "swing" if swings else role}
    able[PoolRole.DECODE if role == "decode" else PoolRole.PREFILL] = role
    rooms = [
        (one, able[pool.role], (pool.replicas.most or 0) - one.total)
        for pool, one in zip(spec.pools, last.mix.workers, strict=True)
        if pool.role in able and (pool.replicas.most or 0) > one.total
    ]
    if not rooms:
        return None
    chosen, kind, room = min(rooms, key=lambda one: (one[0].total == 0, one[0].pool))
    added = min(step, room)
    return f"{added} {kind} worker{'s' if added > 1 else ''} more in {chosen.pool}", _with(
        spec, last.mix, chosen, kind, added
    )


def _with(spec: InferenceClusterSpec, mix: Mix, chosen: Workers, kind: str, step: int) -> Mix:
    changed = replace(chosen, **{kind: getattr(chosen, kind) + step})
    changed = replace(changed, least_swing=min(changed.least_swing, changed.swing))
    workers = tuple(changed if one is chosen else one for one in mix.workers)
    return replace(mix, workers=workers, cost_per_hour=cost_per_hour(spec, workers))


def _alone(mix: Mix, kept: Workers) -> tuple[Workers, ...]:
    return tuple(
        one if one is kept else replace(one, prefill=0, decode=0, swing=0, least_swing=0) for one in mix.workers
    )
