"""THE swing decision: which role each swing worker should have.

Each role has a *load* over the next seconds (`load`): what is asked of it, over what its workers do within the
objectives. 1 is as much as they can do.

- prefill: prompt tokens that arrive over those that are computed, more by what waits too long already;
- decode: sequences that want tokens, or will in a moment, over those for which an iteration still meets the ITL
  objective; the same of tokens per second and of KV cache, if these are scarcer.

A load means a share of requests that will be late (`late`): few at 0.6, a fifth at 0.8, all at 1. The rule:

    for each role, of all ways to give it swing workers of the other,
        find the one that saves most: requests late now, less those late then, both roles together,
        less the price of each flip: the requests that it disturbs, the prefix cache that it leaves cold
    act on it when observations have shown enough of its worth (`evidence`)

So several workers move at once when the need is plain, none moves while both roles have slack, and none moves only to
trade one shortage for another. It holds still under noise because what a move saves must add up over observations, two
at the least, while what it would have cost in others counts against it; because it must save more than the dead band's
share of what is late; and because the way back takes more than the way there. A worker that just moved stays for
`minRoleDuration`. Loads are of whole roles: one hot worker is skew, which moving others would not cure.

What may never happen whatever this says (the last ready worker of a role) stands in `guards`.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from swingpool_control.swing.guards import ROLES, other
from swingpool_control.swing.load import Asked, Seat, late, load

FLIP_PRICE = 0.02
"""What any flip costs, as a share of requests: it takes a moment, and it may be the wrong one."""

DISTURBED = 0.2
"""Share of the requests on a worker that suffer from the other phase beside them after a flip."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Move:
    """A worker that should change its role."""

    uid: str
    to_role: str
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Option:
    """The best that giving workers to one role could do."""

    to_role: str
    uids: tuple[str, ...]
    """Workers to give to it, in this order; at least one."""
    saving: float
    """Share of requests that would no longer be late, less the price of the flips; below 0 if that costs more."""
    worthwhile: bool
    """Whether it saves more than the dead band."""
    before: Mapping[str, float]
    """Load by role."""
    after: Mapping[str, float]
    """Load by role with all these moved."""

    @property
    def reason(self) -> str:
        """Why, in words."""
        gains, gives, count = self.to_role, other(self.to_role), len(self.uids)
        moved = "one worker" if count == 1 else f"{count} workers"
        return (
            f"{gains} is loaded {self.before[gains]:.2f} and {gives} {self.before[gives]:.2f}; "
            f"with {moved} moved {self.after[gains]:.2f} and {self.after[gives]:.2f}"
        )


def loads(seats: Sequence[Seat], asked: Asked) -> dict[str, float]:
    """Return the load of each role as roles are."""
    return {role: load(role, [seat for seat in seats if seat.role == role], asked) for role in ROLES}


def decide(seats: Sequence[Seat], asked: Asked, *, dead_band: float) -> dict[str, Option]:
    """Return the best way to give workers to each role, by that role; see the module's docstring for the rule.

    A role is missing if no worker can be given to it.

    Args:
        seats: every worker that counts.
        asked: what is asked of both roles.
        dead_band: share of what is late now that must be saved for a move to be worth it, 0-1.
    """
    before = loads(seats, asked)
    options = (_option(seats, asked, before, to_role=role, dead_band=dead_band) for role in ROLES)
    return {option.to_role: option for option in options if option is not None}


def _option(
    seats: Sequence[Seat], asked: Asked, before: Mapping[str, float], *, to_role: str, dead_band: float
) -> Option | None:
    """Give workers one by one, those that hold the least first, for as long as each saves more: losses are convex."""
    gains, gives = ([seat for seat in seats if seat.role == role] for role in (to_role, other(to_role)))
    givers = sorted((seat for seat in gives if seat.movable), key=lambda seat: (seat.held, seat.uid))
    late_now = sum(late(load_now) for load_now in before.values())
    best: Option | None = None
    price = 0.0
    for count in range(1, min(len(givers), len(gives) - 1) + 1):
        moved = givers[:count]
        price += _price(givers[count - 1], gives, asked)
        staying = [seat for seat in gives if seat not in moved]
        after = {to_role: load(to_role, [*gains, *moved], asked), other(to_role): load(other(to_role), staying, asked)}
        saving = late_now - sum(late(load_then) for load_then in after.values()) - price
        if best is not None and saving <= best.saving:
            break
        best = Option(
            to_role=to_role,
            uids=tuple(seat.uid for seat in moved),
            saving=saving,
            worthwhile=saving > dead_band * late_now,
            before=before,
            after=after,
        )
    return best


def _price(seat: Seat, gives: Sequence[Seat], asked: Asked) -> float:
    """What giving a worker away costs, as a share of requests."""
    held = sum(one.held for one in gives)
    disturbed = DISTURBED * seat.held / held if held else 0.0
    cold_cache = asked.cached_share / len(gives) if seat.role == ROLES[0] else 0.0
    return FLIP_PRICE + disturbed + cold_cache
