"""The conditions of an InferenceCluster, their reasons, and how one is set: quietly.

A condition's message never carries a figure that moves by itself: whoever watches is told when something happens.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum
from typing import Literal

from swingpool_control.api.status import Condition
from swingpool_control.timestamps import rfc3339

Status = Literal["True", "False", "Unknown"]

MAX_MESSAGE = 4096


class Type(StrEnum):
    """Aspects of the state, in the order in which they are shown."""

    READY = "Ready"
    """It serves as this generation of the spec asks."""
    PROGRESSING = "Progressing"
    """It is on its way there."""
    DEGRADED = "Degraded"
    """Something is wrong that will not pass by itself."""
    METRICS_AVAILABLE = "MetricsAvailable"
    """Decisions have the figures they need."""
    OBJECTIVES_MET = "ObjectivesMet"
    """TTFT and ITL hold as clients see them."""
    ROLES_BALANCED = "RolesBalanced"
    """No role is short of workers, and no worker of a role is loaded far beyond the others."""
    CAPACITY_AVAILABLE = "CapacityAvailable"
    """Every worker that was asked for can be had."""
    SCALING_LIMITED = "ScalingLimited"
    """More workers are needed than bounds and budgets allow."""
    FOREIGN_SCALER = "ForeignScaler"
    """Something else scales a pool that Swingpool scales; only there if it happened."""


class Reason(StrEnum):
    """Why a condition is as it is."""

    SERVING = "Serving"
    INVALID_SPEC = "InvalidSpec"
    APPLY_FAILED = "ApplyFailed"
    APPLYING = "Applying"
    ROUTER_NOT_READY = "RouterNotReady"
    NO_PREFILL_WORKER = "NoPrefillWorker"
    NO_DECODE_WORKER = "NoDecodeWorker"
    POOLS_NOT_READY = "PoolsNotReady"
    ROLLING_OUT = "RollingOut"
    WORKERS_STARTING = "WorkersStarting"
    WORKERS_DRAINING = "WorkersDraining"
    STABLE = "Stable"
    AS_EXPECTED = "AsExpected"
    PROFILE_UNAVAILABLE = "ProfileUnavailable"
    UNSCHEDULABLE = "Unschedulable"
    QUOTA_EXCEEDED = "QuotaExceeded"
    ADMISSION_REFUSED = "AdmissionRefused"
    PODS_FORBIDDEN = "PodsForbidden"
    PODS_NOT_CREATED = "PodsNotCreated"
    IMAGE_PULL_FAILED = "ImagePullFailed"
    CRASH_LOOPING = "CrashLooping"
    CONTAINER_FAILED = "ContainerFailed"
    ROUTER_ANSWERS = "RouterAnswers"
    WAITING_FOR_ROUTER = "WaitingForRouter"
    ROUTER_UNREACHABLE = "RouterUnreachable"
    WORKERS_SILENT = "WorkersSilent"
    MET = "Met"
    MISSED = "Missed"
    NO_TRAFFIC = "NoTraffic"
    BALANCED = "Balanced"
    SHORTAGE = "Shortage"
    SKEW = "Skew"
    ALL_PLACED = "AllPlaced"
    WITHIN_LIMITS = "WithinLimits"
    SCALED_BY_ANOTHER = "ScaledByAnother"
    NONE_SEEN = "NoneSeen"


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """What one look found of one aspect."""

    type: Type
    status: Status
    reason: str
    message: str


def set_condition(before: Condition | None, finding: Finding, *, generation: int, now_unix_s: float) -> Condition:
    """Return the condition after a look; its transition time moves only when its status does.

    Args:
        before: as it was last written; None if it was not there.
        finding: what was found.
        generation: of the spec that it was judged on.
        now_unix_s: the time.
    """
    same = before is not None and before.status == finding.status
    return Condition(
        type=finding.type.value,
        status=finding.status,
        observed_generation=generation,
        last_transition_time=before.last_transition_time if before is not None and same else rfc3339(now_unix_s),
        reason=str(finding.reason),
        message=finding.message[:MAX_MESSAGE],
    )


def find(conditions: Iterable[Condition], kind: Type) -> Condition | None:
    """Return the condition of a type, or None."""
    return next((condition for condition in conditions if condition.type == kind.value), None)
