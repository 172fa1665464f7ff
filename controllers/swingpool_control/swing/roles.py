"""THE swing decision: which role each swing worker should have.

Each role has a *load* over the next seconds (`load`): what is asked of it, over what its workers do within the
objectives. 1 is as much as they can do.

- prefill: prompt tokens that arrive over those that are computed, or, if that is more, the time for which the next
  prompt waits over the time for which it may;
- decode: sequences that want tokens, or will in a moment, over those for which an iteration still meets the ITL
  objective; the same of tokens per second and of KV cache, if these are scarcer.

A load means a share of requests that will be late (`late`): next to none at 0.6, a tenth at 0.8, all at 1. The rule:

    of all ways to give swing workers from the less loaded role to the other,
        take the one after which the fewest requests are late, both roles together,
        counting the price of each flip: the requests that it disturbs, the prefix cache that it leaves cold
    act on it when observations have shown enough of its worth (`evidence`)

So several workers move at once when the need is plain, none moves while both roles have slack, and none moves only to
trade one shortage for another. It holds still under noise because what a move saves must add up over observations, two
at the least, and because it must save more than the dead band's share of what is late now; the way back takes more than
the way there. A worker that just moved stays for `minRoleDuration`. Loads are of whole roles: one hot worker is skew,
which moving others would not cure.

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
class Proposal:
    """What one observation speaks for."""

    to_role: str
    """The role under the higher load."""
    uids: tuple[str, ...]
    """Workers that should be given to it, in this order; none if it is best as it is."""
    saving: float
    """Share of requests that would no longer be late, less the price of the flips."""
    before: Mapping[str, float]
    """Load by role."""
    after: Mapping[str, float]
    """Load by role with all these moved."""

    @property
    def reason(self) -> str:
        """Why, in words."""
        hot, cold, count = self.to_role, other(self.to_role), len(self.uids)
        moved = "one worker" if count == 1 else f"{count} workers"
        return (
            f"{hot} is loaded {self.before[hot]:.2f} and {cold} {self.before[cold]:.2f}; "
            f"with {moved} moved {self.after[hot]:.2f} and {self.after[cold]:.2f}"
        )


def decide(seats: Sequence[Seat], asked: Asked, *, dead_band: float) -> Proposal:
    """Return what one observation speaks for; see the module's docstring for the rule.

    Args:
        seats: every worker that counts.
        asked: what is asked of both roles.
        dead_band: share of what is late now that must be saved for a move to be worth it, 0-1.
    """
    staying = {role: [seat for seat in seats if seat.role == role] for role in ROLES}
    before = {role: load(role, staying[role], asked) for role in ROLES}
    hot = max(ROLES, key=lambda role: before[role])
    cold = other(hot)
    late_now = sum(late(before[role]) for role in ROLES)
    givers = sorted((seat for seat in staying[cold] if seat.movable), key=lambda seat: (seat.held, seat.uid))
    best: tuple[str, ...] = ()
    best_saving, best_after, price = 0.0, before, 0.0
    given: list[Seat] = []
    for seat in givers[: len(staying[cold]) - 1]:
        given.append(seat)
        price += _price(seat, staying, asked)
        rest = [one for one in staying[cold] if one not in given]
        after = {hot: load(hot, [*staying[hot], *given], asked), cold: load(cold, rest, asked)}
        saving = late_now - sum(late(after[role]) for role in ROLES) - price
        if saving <= best_saving:
            break
        best, best_saving, best_after = tuple(one.uid for one in given), saving, after
    if best_saving <= dead_band * late_now:
        best, best_saving, best_after = (), 0.0, before
    return Proposal(to_role=hot, uids=best, saving=best_saving, before=before, after=best_after)


def _price(seat: Seat, staying: Mapping[str, Sequence[Seat]], asked: Asked) -> float:
    """What giving a worker away costs, as a share of requests."""
    held = sum(one.held for one in staying[seat.role])
    disturbed = DISTURBED * seat.held / held if held else 0.0
    cold_cache = asked.cached_share / len(staying[seat.role]) if seat.role == ROLES[0] else 0.0
    return FLIP_PRICE + disturbed + cold_cache
