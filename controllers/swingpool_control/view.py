"""What the manager knows of one InferenceCluster at one moment: an immutable snapshot that every decision reads."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from swingpool_control.api.status import InferenceClusterStatus
from swingpool_control.api.v1alpha1 import InferenceClusterSpec
from swingpool_control.engine.calibration import Calibration
from swingpool_control.engine.model import PerformanceModel
from swingpool_control.figures import Unknown
from swingpool_control.observation import RouterObservation


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerView:
    """One worker pod."""

    pod: str
    uid: str
    pool: str
    role: str
    """Value of the role label; empty if it has none."""
    ready: bool
    deleting: bool
    unschedulable: str
    """Why the scheduler cannot place it; empty if it can or has."""
    waiting: str
    """Why its container does not run (ImagePullBackOff, CrashLoopBackOff, ...); empty if it runs."""
    created_unix_s: float
    restarts: int
    revision: str
    """Hash of the pod template it was made from."""
    flip: str
    """The flip annotation's text; empty if there is none."""
    drain: str
    """The drain annotation's text; empty if there is none."""
    deletion_cost: int
    asleep: str = ""
    """The annotation that says that it sleeps; empty if there is none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolView:
    """One pool's Deployment."""

    pool: str
    exists: bool
    replicas: int
    """`spec.replicas`: what was asked for last."""
    current: int
    """Pods that exist."""
    ready: int
    updated: int
    observed: bool
    """Whether the Deployment controller has seen the newest spec."""
    failure: str
    """Why pods cannot be made (quota, admission webhook, ...); empty if they can."""
    asleep: int = 0
    """Pods that sleep, and that the numbers above do not count."""
    surge: int = 0
    """Pods that a rolling update may add to `replicas`."""
    foreign_scaler: str = ""
    """Field manager, other than Swingpool, that set `spec.replicas`; empty if none did."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterView:
    """One InferenceCluster with everything that decisions about it need."""

    namespace: str
    name: str
    uid: str
    generation: int
    spec: InferenceClusterSpec
    status: InferenceClusterStatus
    """As it was last written; the persisted memory of flips and of the last plan."""
    pools: tuple[PoolView, ...]
    workers: tuple[WorkerView, ...]
    router: RouterObservation | Unknown
    """All pickers merged, or what workers say before an external router; or why nothing is known of them."""
    router_ready: bool
    """Whether a pod of the built-in router is ready; True with an external one."""
    uncertain: frozenset[str] = frozenset()
    """Uids of workers whose last change was not answered: it may have been made, so they serve no role for certain."""
    models: Mapping[str, PerformanceModel | Unknown] = field(default_factory=dict)
    """What one worker of each pool can do, by pool name, with `calibration`; a pool that is missing here is unknown."""
    calibration: Calibration = field(default_factory=Calibration)
    """By how much the workers are slower or faster than their profiles say."""
