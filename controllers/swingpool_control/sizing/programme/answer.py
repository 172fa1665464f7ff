"""What the sizing programme answers: numbers, what bound them, and what else would have cost or changed."""

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedWorkers:
    """What one pool gets."""

    pool: str
    workers: int
    """All that the pool has, idle ones included."""
    by_role: Mapping[str, int]
    """Serving workers by role."""
    shares: Mapping[str, float]
    """Share of the traffic that they serve in each role, 0-1."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Constraint:
    """A constraint that bound a plan, or that it could not keep."""

    code: str
    """In one CamelCase word."""
    message: str
    """In words, with its figures."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Alternative:
    """A neighbour of the plan: one worker more or less, or one in the other role."""

    change: str
    """In words, such as `one worker less in pool decode`."""
    cost_per_hour: float
    """More than the plan's; negative is less."""
    watts: float
    """More than the plan's."""
    load: Mapping[str, float]
    """Need over what the role would sustain; above 1 is too much."""
    breaks: Constraint | None
    """What it would break; None if it is merely dearer, or as good."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Threshold:
    """The load at which the plan changes."""

    role: str
    requests_per_s: float
    change: str
    """In words, such as `one more prefill worker at 14.2 requests/s`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """A plan and its reasons."""

    pools: tuple[PlannedWorkers, ...]
    """In the problem's order."""
    cost_per_hour: float
    watts: float
    """As planned, every worker loaded in its role."""
    carbon_g_per_hour: float
    objective: float
    """What was made small: the weighted sum."""
    gap: float
    """Share of the objective by which a better plan might exist at most; 0 is proved the best."""
    sustained: Mapping[str, float]
    """Requests per second that each role sustains within the objectives."""
    load: Mapping[str, float]
    """Need over what is sustained, by role; above 1 is too much."""
    binding: Constraint | None
    """What makes the plan as large as it is; None if nothing does."""
    violated: tuple[Constraint, ...]
    """What no plan could keep, by this least bad one; empty if all holds."""
    alternatives: tuple[Alternative, ...]
    thresholds: tuple[Threshold, ...]
    """By role, lowest rate first."""

    @property
    def feasible(self) -> bool:
        """Whether everything holds."""
        return not self.violated

    def counts(self) -> dict[str, int]:
        """Return the workers by pool."""
        return {pool.pool: pool.workers for pool in self.pools}
