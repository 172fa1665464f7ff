"""Shortage or skew: whether a role as a whole has too little, or one of its workers too much.

A shortage is what more workers cure. Skew is not: what was sent to one worker stays there, so no flip helps; the cause
is a worker that is slow, or requests that insist on it.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

from swingpool_control.swing.guards import ROLES
from swingpool_control.swing.load import Asked, Seat, own_load

SHORT = 1.0
"""Load of a role from which on it is short."""

SLACK = 0.8
"""Load of a role under which it is short no more, and a hot worker of it is skew: a load just at its limit sways."""

HOT_WORKER = 1.5
"""Load of one worker by what it holds alone from which on it is hot."""


class State(StrEnum):
    """How a role is."""

    ENOUGH = "Enough"
    SHORTAGE = "Shortage"
    SKEW = "Skew"


@dataclass(frozen=True, slots=True, kw_only=True)
class Balance:
    """How a role is, and since when."""

    role: str
    state: State
    worker: str = ""
    """The hot worker's uid; empty if there is none."""
    since_unix_s: float


def judge(
    seats: Sequence[Seat], asked: Asked, loads: Mapping[str, float], before: tuple[Balance, ...], *, now_unix_s: float
) -> tuple[Balance, ...]:
    """Return how each role is, with the time since when if it was so before.

    Args:
        seats: every worker that counts.
        asked: what is asked of both roles.
        loads: by role.
        before: the answer of the step before.
        now_unix_s: the time.
    """
    known = {item.role: item for item in before}
    found = []
    for role in ROLES:
        was_short = role in known and known[role].state is State.SHORTAGE
        short = loads[role] >= (SLACK if was_short else SHORT)
        sitting = [seat for seat in seats if seat.role == role]
        state, worker = (State.SHORTAGE, "") if short else _state(role, sitting, asked, loads[role])
        same = role in known and (known[role].state, known[role].worker) == (state, worker)
        since = known[role].since_unix_s if same else now_unix_s
        found.append(Balance(role=role, state=state, worker=worker, since_unix_s=since))
    return tuple(found)


def _state(role: str, seats: Sequence[Seat], asked: Asked, load: float) -> tuple[State, str]:
    """Return how a role is that is not short."""
    hottest = max(seats, key=lambda seat: (own_load(role, seat, asked), seat.uid), default=None)
    if hottest is not None and load < SLACK and len(seats) > 1 and own_load(role, hottest, asked) >= HOT_WORKER:
        return State.SKEW, hottest.uid
    return State.ENOUGH, ""
