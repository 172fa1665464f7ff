"""THE swing decision: which role each swing worker should have.

Each role has a *pressure*: what is asked of it, over what its workers do within the objectives. 1 is just enough.

- prefill: prompt tokens that arrive per second (at 80% load) or wait to be computed (within the TTFT objective),
  over the prompt tokens that its workers compute per second;
- decode: sequences that want tokens, over the sequences with which a decode iteration still meets the ITL objective,
  or the same with KV cache if that is scarcer.

The rule, every step:

    while the role with the higher pressure is above ENGAGE:
        take the swing worker of the other role that holds the least
        stop unless moving it lowers the higher of the two pressures by more than the dead band
        move it

So several workers may move at once when the need is plain, none moves while both roles have slack, and none moves only
to trade one shortage for another. It holds still under noise because a pressure counts only as far as two observations
in a row show it: the smaller of the two for the role that gains, the larger for the one that gives. A worker that just
moved stays for `minRoleDuration`. Totals decide, so that one hot worker moves nothing.

What may never happen whatever this says (the last ready worker of a role) stands in `guards`.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from swingpool_control.sizing.capacity import Capacity
from swingpool_control.sizing.demand import Demand, decode_pressure, prefill_pressure
from swingpool_control.swing.guards import ROLES, other

ENGAGE = 0.8
"""Pressure from which on a role is helped; under it every objective holds with room."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Seat:
    """One worker that serves, or will in a moment."""

    uid: str
    role: str
    """The role it has, or is changing to."""
    movable: bool
    """Whether it may be given the other role now."""
    held: int
    """Requests that it holds."""
    capacities: tuple[Capacity, Capacity]
    """What it does, by the shape of requests in the observation before last and in the last."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Move:
    """A worker that should change its role."""

    uid: str
    to_role: str
    reason: str


def decide(
    seats: tuple[Seat, ...], demands: tuple[Demand, Demand], *, ttft_s: float, dead_band: float
) -> tuple[Move, ...]:
    """Return the workers that should change their role now; see the module's docstring for the rule.

    Args:
        seats: every worker that counts.
        demands: what the observation before last and the last one showed.
        ttft_s: mean TTFT to reach.
        dead_band: share by which the higher pressure must fall for a move to be worth it, 0-1.
    """
    placed = {seat.uid: seat for seat in seats}
    moves: list[Move] = []
    roles = {uid: seat.role for uid, seat in placed.items()}
    hot, now = _hottest(placed, roles, demands, ttft_s)
    while now[hot] > ENGAGE:
        candidates = [seat for seat in seats if seat.movable and roles[seat.uid] == other(hot) == seat.role]
        if len([uid for uid in roles if roles[uid] == other(hot)]) < 2 or not candidates:
            break
        chosen = min(candidates, key=lambda seat: (seat.held, seat.uid))
        after = _pressures(placed, roles | {chosen.uid: hot}, demands, ttft_s, gains=hot)
        if max(after.values()) >= max(now.values()) * (1 - dead_band):
            break
        roles[chosen.uid] = hot
        moves.append(Move(uid=chosen.uid, to_role=hot, reason=_reason(now, after, hot)))
        now = after
    return tuple(moves)


def _hottest(
    placed: Mapping[str, Seat], roles: Mapping[str, str], demands: tuple[Demand, Demand], ttft_s: float
) -> tuple[str, dict[str, float]]:
    """Return the role that is surely under the higher pressure, with the pressures seen from its side."""
    sides = [(role, _pressures(placed, roles, demands, ttft_s, gains=role)) for role in ROLES]
    return max(sides, key=lambda side: side[1][side[0]] - side[1][other(side[0])])


def _pressures(
    placed: Mapping[str, Seat], roles: Mapping[str, str], demands: tuple[Demand, Demand], ttft_s: float, *, gains: str
) -> dict[str, float]:
    """Pressure by role: what both observations confirm for the role that gains, the worse for the other."""
    by_role: dict[str, list[float]] = {role: [] for role in ROLES}
    for index, demand in enumerate(demands):
        workers = {role: [placed[uid].capacities[index] for uid in roles if roles[uid] == role] for role in ROLES}
        prefill, decode = ROLES
        by_role[prefill].append(prefill_pressure(demand, workers[prefill], ttft_s=ttft_s))
        by_role[decode].append(decode_pressure(demand, workers[decode]))
    return {role: min(seen) if role == gains else max(seen) for role, seen in by_role.items()}


def _reason(before: Mapping[str, float], after: Mapping[str, float], hot: str) -> str:
    cold = other(hot)
    return (
        f"{hot} is under pressure {before[hot]:.2f} and {cold} under {before[cold]:.2f}; "
        f"with one worker moved {after[hot]:.2f} and {after[cold]:.2f}"
    )
