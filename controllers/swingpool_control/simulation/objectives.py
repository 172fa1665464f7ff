"""Which requests met the objectives, and whether the objectives held."""

from dataclasses import dataclass

from swingpool_control.api.v1alpha1 import LatencyObjective, Objectives
from swingpool_control.observation import PERCENTILES
from swingpool_control.sizing.objectives import by_percentile


@dataclass(frozen=True, slots=True, kw_only=True)
class Limit:
    """One objective: a latency at a percentile."""

    metric: str
    """`ttft` or `itl`."""
    percentile: str
    limit_s: float

    @property
    def share(self) -> float:
        """Share of all values that must lie within the limit."""
        return PERCENTILES[self.percentile]


def limits(objectives: Objectives) -> tuple[Limit, ...]:
    """Return all objectives, TTFT's before ITL's, low percentiles before high ones."""
    return tuple(
        Limit(metric=metric, percentile=percentile, limit_s=limit_s)
        for metric, objective in (("ttft", objectives.ttft), ("itl", objectives.itl))
        for percentile, limit_s in by_percentile(objective).items()
    )


def good_s(objective: LatencyObjective) -> float:
    """Return the latency up to which a request is a good one: the limit at the highest percentile that is given."""
    return max(by_percentile(objective).values())
