"""What a decision asks the shell to do. The shell carries these out one by one and decides nothing itself."""

from dataclasses import dataclass, field
from typing import Literal

from swingpool_control.placement.limits import DeflectionLimits


@dataclass(frozen=True, slots=True, kw_only=True)
class PatchWorker:
    """Change labels and annotations of one worker pod in a single write.

    The write must fail, and be decided anew, if the pod is not `uid` any more or its role label is not `expected_role`.
    A value of None removes the key.
    """

    pod: str
    uid: str
    expected_role: str
    labels: dict[str, str | None] = field(default_factory=dict)
    annotations: dict[str, str | None] = field(default_factory=dict)
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineCall:
    """Tell one worker's engine to sleep or to wake, and write `then` once it has answered that it does.

    It takes as long as weights take to move. A call that is under way already is not made again.
    """

    pod: str
    uid: str
    call: Literal["sleep", "wake"]
    then: PatchWorker | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SetReplicas:
    """Set the replicas of one pool's Deployment."""

    pool: str
    replicas: int
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class EmitEvent:
    """Tell the user, by a Kubernetes Event on the InferenceCluster."""

    type: Literal["Normal", "Warning"]
    reason: str
    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class SetLimits:
    """Tell every picker how far it may mix the two phases on one worker, from now on."""

    limits: DeflectionLimits
    reason: str


Action = PatchWorker | EngineCall | SetReplicas | EmitEvent | SetLimits
