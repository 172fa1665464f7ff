"""From objectives at percentiles to the mean latency that a plan must reach.

The performance model predicts means. Queueing spreads TTFT widely and ITL little, so a percentile's objective is
divided by how far that percentile lies above the mean in a system that is loaded as planned.
"""

from swingpool_control.api.quantities import seconds
from swingpool_control.api.v1alpha1 import LatencyObjective, Objectives

TTFT_OVER_MEAN = {"p50": 1.0, "p90": 1.6, "p95": 2.0, "p99": 3.0}
ITL_OVER_MEAN = {"p50": 1.0, "p90": 1.1, "p95": 1.15, "p99": 1.25}


def by_percentile(objective: LatencyObjective) -> dict[str, float]:
    """Return the objective in seconds by percentile, only those that are given."""
    given = {name: getattr(objective, name) for name in TTFT_OVER_MEAN}
    return {name: seconds(text) for name, text in given.items() if text is not None}


def mean_ttft_s(objectives: Objectives) -> float:
    """Return the mean TTFT in seconds with which every TTFT objective is expected to hold."""
    return _mean(objectives.ttft, TTFT_OVER_MEAN)


def mean_itl_s(objectives: Objectives) -> float:
    """Return the mean ITL in seconds with which every ITL objective is expected to hold."""
    return _mean(objectives.itl, ITL_OVER_MEAN)


def _mean(objective: LatencyObjective, over_mean: dict[str, float]) -> float:
    limits = by_percentile(objective)
    if not limits:
        raise ValueError("an objective without any percentile: give at least one of p50, p90, p95, p99")
    return min(limit / over_mean[name] for name, limit in limits.items())
