"""Service-level objectives: latencies to hold at percentiles."""

from itertools import combinations
from typing import Annotated

from pydantic import Field

from swingpool_control.api.base import ApiModel
from swingpool_control.api.quantities import PositiveDuration, is_duration
from swingpool_control.api.rules import Rule, rules

_PERCENTILES = ("p50", "p90", "p95", "p99")


def _ordered(lower: str, upper: str) -> Rule:
    return Rule(
        cel=f"!has(self.{lower}) || !{is_duration(f'self.{lower}')} || !has(self.{upper}) "
        f"|| !{is_duration(f'self.{upper}')} || duration(self.{lower}) <= duration(self.{upper})",
        message=f"{upper} is shorter than {lower}, which it cannot be: raise {upper} or lower {lower}",
        field=f".{upper}",
    )


class LatencyObjective(ApiModel):
    """A latency to hold at one or more percentiles; all that are given must hold."""

    model_config = rules(
        Rule(
            cel=" || ".join(f"has(self.{percentile})" for percentile in _PERCENTILES),
            message="give at least one percentile, such as p95: 500ms",
            reason="FieldValueRequired",
        ),
        *(_ordered(lower, upper) for lower, upper in combinations(_PERCENTILES, 2)),
    )

    p50: Annotated[PositiveDuration | None, Field(description="Half of all values must lie at or under this.")] = None
    p90: Annotated[PositiveDuration | None, Field(description="90% of all values must lie at or under this.")] = None
    p95: Annotated[PositiveDuration | None, Field(description="95% of all values must lie at or under this.")] = None
    p99: Annotated[PositiveDuration | None, Field(description="99% of all values must lie at or under this.")] = None


class Objectives(ApiModel):
    """Service-level objectives."""

    ttft: Annotated[
        LatencyObjective,
        Field(description="Time to first token, from a request's arrival at the router to its first token."),
    ]
    itl: Annotated[
        LatencyObjective, Field(description="Inter-token latency, the time between two tokens of one request.")
    ]
