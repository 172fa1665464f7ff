"""What a least bad plan may miss, and how much each miss weighs."""

from dataclasses import dataclass, field

from swingpool_control.sizing.programme.problem import ROLES, Problem
from swingpool_control.sizing.programme.rows import Columns, Terms

UNSTAFFED = 100.0
"""A worker lacking to a pool's fewest, or a role without any."""
UNCOVERED = 10.0
"""The whole need of the worse role: a request needs both, so what one sustains beyond the other is of little use."""
UNCOVERED_EACH = 1.0
"""The whole need of one role."""
UNSPARED = 0.1
"""The whole need of one role, after a worker is lost."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Slack:
    """Columns that say by how much something is missed; empty where nothing may be."""

    bounds: dict[str, int] = field(default_factory=dict)
    """By pool: workers lacking to its fewest."""
    staffed: dict[str, int] = field(default_factory=dict)
    """By role: 1 if it has no worker at all."""
    covered: dict[str, int] = field(default_factory=dict)
    """By role: share of its need that is not sustained."""
    spare: dict[str, int] = field(default_factory=dict)
    """By role: share of its need that is not sustained when a worker is lost."""
    worst: int | None = None
    """The larger of the shares in `covered`."""
    carried: int | None = None
    """Share of the traffic that no link carries."""

    @classmethod
    def of(cls, problem: Problem, columns: Columns) -> "Slack":
        """Return slack for everything that a problem asks for."""
        return cls(
            bounds={pool.name: columns.add(0, pool.fewest, whole=True) for pool in problem.pools if pool.fewest},
            staffed={role: columns.add(0, 1, whole=True) for role in ROLES},
            covered={role: columns.add(0, 1, whole=False) for role in ROLES},
            spare={role: columns.add(0, 1, whole=False) for role in ROLES if problem.spare_worker},
            worst=columns.add(0, 1, whole=False),
            carried=columns.add(0, 1, whole=False) if problem.links else None,
        )

    def weights(self) -> dict[int, float]:
        """Return what the least bad plan makes small."""
        weighed = dict.fromkeys((*self.bounds.values(), *self.staffed.values()), UNSTAFFED)
        weighed |= {column: UNCOVERED for column in (self.worst, self.carried) if column is not None}
        weighed |= dict.fromkeys(self.covered.values(), UNCOVERED_EACH)
        return weighed | dict.fromkeys(self.spare.values(), UNSPARED)


def term(column: int | None, amount: float = 1.0) -> Terms:
    """Return the term by which a row may be missed; none where it may not."""
    return [] if column is None else [(column, amount)]
