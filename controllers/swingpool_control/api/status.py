"""`InferenceCluster` status: what Swingpool tells a user. Written only when it changes."""

from typing import Annotated, Literal

from pydantic import Field

from swingpool_control.api.base import ApiModel
from swingpool_control.api.rules import LIST_ATOMIC, list_map

Timestamp = Annotated[
    str,
    Field(
        max_length=40,
        pattern=r"^[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}(\.[0-9]{1,9})?Z$",
        json_schema_extra={"format": "date-time"},
    ),
]
"""RFC 3339, UTC."""

Count = Annotated[int, Field(ge=0, le=1_000_000)]
Generation = Annotated[int, Field(ge=0, le=2**53)]


class Condition(ApiModel):
    """One aspect of the state, in the form that `kubectl wait` understands."""

    type: Annotated[str, Field(min_length=1, max_length=316, description="Aspect of the state.")]
    status: Annotated[Literal["True", "False", "Unknown"], Field(description="True, False or Unknown.")]
    observed_generation: Annotated[
        Generation | None, Field(description="Generation of the spec that it was judged on.")
    ] = None
    last_transition_time: Annotated[Timestamp, Field(description="When its status changed last.")]
    reason: Annotated[str, Field(min_length=1, max_length=1024, description="Why, in one CamelCase word.")]
    message: Annotated[str, Field(max_length=32768, description="Why, in a sentence, with the remedy if there is one.")]


class PoolStatus(ApiModel):
    """State of one pool."""

    name: Annotated[str, Field(max_length=63, description="Name of the pool.")]
    role: Annotated[str, Field(max_length=16, description="Role of the pool.")]
    desired: Annotated[Count, Field(description="Workers that the plan wants.")]
    current: Annotated[Count, Field(description="Workers that exist.")]
    ready: Annotated[Count, Field(description="Workers that serve or could.")]
    prefill: Annotated[Count, Field(description="Workers in role prefill.")] = 0
    decode: Annotated[Count, Field(description="Workers in role decode.")] = 0
    draining: Annotated[Count, Field(description="Workers that finish what they hold and get nothing new.")] = 0
    asleep: Annotated[Count, Field(description="Workers that sleep until they are needed; none of the above.")] = 0
    unschedulable: Annotated[Count, Field(description="Workers that no node can take.")] = 0


class PlannedPool(ApiModel):
    """What the last plan wants of one pool."""

    name: Annotated[str, Field(max_length=63, description="Name of the pool.")]
    replicas: Annotated[Count, Field(description="Workers.")]


class Reason(ApiModel):
    """One reason of a plan."""

    code: Annotated[str, Field(max_length=63, description="The reason in one CamelCase word.")]
    message: Annotated[str, Field(max_length=1024, description="The reason in a sentence, with the figures.")]


class ObservedFigure(ApiModel):
    """A figure that a plan saw."""

    name: Annotated[str, Field(max_length=63, description="Name, with its unit.")]
    value: Annotated[str, Field(max_length=256, description="Its value, or `unknown:` and why.")]


class PlanAlternative(ApiModel):
    """What a plan could have done otherwise."""

    change: Annotated[str, Field(max_length=256, description="What would be different.")]
    cost_per_hour: Annotated[
        str, Field(max_length=32, description="Money per hour beyond the plan's, such as `+12.4`; empty if unknown.")
    ] = ""
    breaks: Annotated[
        str, Field(max_length=512, description="The constraint that it would break; empty if it is merely dearer.")
    ] = ""


class PlanThreshold(ApiModel):
    """What would change a plan."""

    at: Annotated[str, Field(max_length=64, description="From which load on, such as `14.2 requests/s`.")]
    change: Annotated[str, Field(max_length=256, description="What the plan would be then.")]


class Plan(ApiModel):
    """The last plan that differed from the one before it."""

    at: Annotated[Timestamp, Field(description="When it was made.")]
    pools: Annotated[
        tuple[PlannedPool, ...],
        Field(max_length=16, description="Workers by pool.", json_schema_extra=list_map()),
    ] = ()
    prefill_workers: Annotated[Count, Field(description="Workers wanted in role prefill.")] = 0
    decode_workers: Annotated[Count, Field(description="Workers wanted in role decode.")] = 0
    binding: Annotated[str, Field(max_length=256, description="The constraint that bound.")] = ""
    reasons: Annotated[tuple[Reason, ...], Field(max_length=16, description="Why.", json_schema_extra=LIST_ATOMIC)] = ()
    observed: Annotated[
        tuple[ObservedFigure, ...],
        Field(max_length=32, description="The figures that it saw.", json_schema_extra=LIST_ATOMIC),
    ] = ()
    forecast: Annotated[
        tuple[ObservedFigure, ...],
        Field(max_length=16, description="The figures that it expected.", json_schema_extra=LIST_ATOMIC),
    ] = ()
    alternatives: Annotated[
        tuple[PlanAlternative, ...],
        Field(max_length=16, description="What else could have been.", json_schema_extra=LIST_ATOMIC),
    ] = ()
    thresholds: Annotated[
        tuple[PlanThreshold, ...],
        Field(max_length=16, description="What would change it.", json_schema_extra=LIST_ATOMIC),
    ] = ()


class FlipRecord(ApiModel):
    """One change of role of one worker."""

    worker: Annotated[str, Field(max_length=253, description="The worker's pod.")]
    from_: Annotated[str, Field(alias="from", max_length=16, description="Role before.")]
    to: Annotated[str, Field(max_length=16, description="Role after.")]
    decided_at: Annotated[Timestamp, Field(description="When it was decided.")]
    serving_at: Annotated[Timestamp | None, Field(description="When the first request was served in the new role.")] = (
        None
    )
    outcome: Annotated[
        Literal["InProgress", "Serving", "Aborted", "WorkerLost"],
        Field(
            description="How far it got. Serving: a request was served in the new role. Aborted: the role was put "
            "back. WorkerLost: the worker went away."
        ),
    ]
    reason: Annotated[str, Field(max_length=1024, description="Why it was decided.")]


class InferenceClusterStatus(ApiModel):
    """What Swingpool sees and does."""

    observed_generation: Annotated[
        Generation | None, Field(description="Generation of the spec that this status is of.")
    ] = None
    conditions: Annotated[
        tuple[Condition, ...], Field(max_length=32, description="State by aspect.", json_schema_extra=list_map("type"))
    ] = ()
    pools: Annotated[
        tuple[PoolStatus, ...], Field(max_length=16, description="State by pool.", json_schema_extra=list_map())
    ] = ()
    workers: Annotated[str, Field(max_length=32, description="Ready and wanted workers, as `4/4`.")] = ""
    roles: Annotated[str, Field(max_length=64, description="Ready workers by role, as `2 prefill, 2 decode`.")] = ""
    endpoint: Annotated[str, Field(max_length=512, description="Where clients send requests.")] = ""
    plan: Annotated[Plan | None, Field(description="The last plan that differed from the one before it.")] = None
    flips: Annotated[
        tuple[FlipRecord, ...],
        Field(max_length=20, description="The last flips, newest first.", json_schema_extra=LIST_ATOMIC),
    ] = ()
