"""`InferenceCluster` status: what Swingpool tells a user. Written only when it changes."""

from typing import Annotated

from pydantic import Field

from swingpool_control.api.v1alpha1 import ApiModel

Timestamp = Annotated[str, Field(max_length=40, json_schema_extra={"format": "date-time"})]
"""RFC 3339, UTC."""


class Condition(ApiModel):
    """One aspect of the state, in the form that `kubectl wait` understands."""

    type: Annotated[str, Field(min_length=1, max_length=316, description="Aspect of the state.")]
    status: Annotated[str, Field(pattern="^(True|False|Unknown)$", description="True, False or Unknown.")]
    observed_generation: Annotated[int | None, Field(ge=0, description="Generation of the spec it was judged on.")] = (
        None
    )
    last_transition_time: Annotated[Timestamp, Field(description="When `status` changed last.")]
    reason: Annotated[str, Field(min_length=1, max_length=1024, description="Why, in one CamelCase word.")]
    message: Annotated[str, Field(max_length=32768, description="Why, in a sentence, with the remedy if there is one.")]


class PoolStatus(ApiModel):
    """State of one pool."""

    name: Annotated[str, Field(max_length=63, description="Name of the pool.")]
    role: Annotated[str, Field(max_length=16, description="Role of the pool.")]
    desired: Annotated[int, Field(ge=0, description="Workers the plan wants.")]
    current: Annotated[int, Field(ge=0, description="Workers that exist.")]
    ready: Annotated[int, Field(ge=0, description="Workers that serve or could.")]
    prefill: Annotated[int, Field(ge=0, description="Workers in role prefill.")] = 0
    decode: Annotated[int, Field(ge=0, description="Workers in role decode.")] = 0
    draining: Annotated[int, Field(ge=0, description="Workers that finish what they hold and get nothing new.")] = 0
    unschedulable: Annotated[int, Field(ge=0, description="Workers that no node can take.")] = 0


class PlannedPool(ApiModel):
    """What the last plan wants of one pool."""

    name: Annotated[str, Field(max_length=63, description="Name of the pool.")]
    replicas: Annotated[int, Field(ge=0, description="Workers.")]


class Reason(ApiModel):
    """One reason of a plan."""

    code: Annotated[str, Field(max_length=63, description="The reason in one CamelCase word.")]
    message: Annotated[str, Field(max_length=1024, description="The reason in a sentence, with the figures.")]


class ObservedFigure(ApiModel):
    """A figure that a plan saw."""

    name: Annotated[str, Field(max_length=63, description="Name, with its unit.")]
    value: Annotated[str, Field(max_length=256, description="Its value, or `unknown:` and why.")]


class Plan(ApiModel):
    """The last plan that differed from the one before it."""

    at: Annotated[Timestamp, Field(description="When it was made.")]
    pools: Annotated[list[PlannedPool], Field(max_length=16, description="Workers by pool.")] = []
    prefill_workers: Annotated[int, Field(ge=0, description="Workers wanted in role prefill.")] = 0
    decode_workers: Annotated[int, Field(ge=0, description="Workers wanted in role decode.")] = 0
    binding: Annotated[str, Field(max_length=256, description="The constraint that bound.")] = ""
    reasons: Annotated[list[Reason], Field(max_length=16, description="Why.")] = []
    observed: Annotated[list[ObservedFigure], Field(max_length=32, description="What it saw.")] = []


class FlipRecord(ApiModel):
    """One change of role of one worker."""

    worker: Annotated[str, Field(max_length=253, description="The pod.")]
    from_: Annotated[str, Field(alias="from", max_length=16, description="Role before.")]
    to: Annotated[str, Field(max_length=16, description="Role after.")]
    decided_at: Annotated[Timestamp, Field(description="When it was decided.")]
    serving_at: Annotated[Timestamp | None, Field(description="When the first request was served in the new role.")] = (
        None
    )
    outcome: Annotated[str, Field(pattern="^(InProgress|Serving|Aborted|WorkerLost)$", description="How far it got.")]
    reason: Annotated[str, Field(max_length=1024, description="Why it was decided.")]


class InferenceClusterStatus(ApiModel):
    """What Swingpool sees and does."""

    observed_generation: Annotated[int | None, Field(ge=0, description="Generation of the spec this status is of.")] = (
        None
    )
    conditions: Annotated[list[Condition], Field(max_length=32, description="State by aspect.")] = []
    pools: Annotated[list[PoolStatus], Field(max_length=16, description="State by pool.")] = []
    workers: Annotated[str, Field(max_length=32, description="Ready and wanted workers, as `4/4`.")] = ""
    roles: Annotated[str, Field(max_length=64, description="Ready workers by role, as `2 prefill, 2 decode`.")] = ""
    endpoint: Annotated[str, Field(max_length=512, description="Where clients send requests.")] = ""
    plan: Annotated[Plan | None, Field(description="The last plan that differed from the one before it.")] = None
    flips: Annotated[list[FlipRecord], Field(max_length=20, description="The last flips, newest first.")] = []
