"""The rounds of whoever decides, under the virtual clock: shows the cluster, carries out what is asked."""

from collections.abc import Mapping

from swingpool_control.actions import Action, PatchWorker, SetLimits, SetReplicas
from swingpool_control.api.status import FlipRecord, InferenceClusterStatus
from swingpool_control.api.v1alpha1 import InferenceClusterSpec
from swingpool_control.engine.model import PerformanceModel
from swingpool_control.simulation.counters import Counters
from swingpool_control.simulation.events import Timeline
from swingpool_control.simulation.pickers import Pickers
from swingpool_control.simulation.pods import Pods
from swingpool_control.simulation.policies.interface import Deciding
from swingpool_control.simulation.settings import START_UNIX_S
from swingpool_control.view import ClusterView


class Control:
    """Lets a policy decide once a period, and is the board that it looks at.

    Args:
        timeline: the clock.
        spec: the cluster's spec.
        models: performance model by pool.
        policy: who decides.
        pods: what is acted on.
        router: what is observed.
        counters: totals of all requests.
    """

    def __init__(
        self,
        timeline: Timeline,
        spec: InferenceClusterSpec,
        models: Mapping[str, PerformanceModel],
        policy: Deciding,
        *,
        pods: Pods,
        router: Pickers,
        counters: Counters,
    ) -> None:
        self._timeline = timeline
        self._spec = spec
        self._models = models
        self._policy = policy
        self._pods = pods
        self._router = router
        self._counters = counters
        self.seen = router.observe()
        """What the router told at the begin of the newest round."""

    @property
    def flips(self) -> tuple[FlipRecord, ...]:
        """All that are remembered, newest first."""
        return self._policy.flips

    def round(self) -> None:
        """Let the policy look and act."""
        self.seen = self._router.observe()
        self._policy.round(self, now_unix_s=START_UNIX_S + self._timeline.now_s)

    def view(self, status: InferenceClusterStatus) -> ClusterView:
        """Return the cluster as the manager sees it now; the router's figures are those of the round's begin."""
        return ClusterView(
            namespace="simulated",
            name="simulated",
            uid="simulated",
            generation=1,
            spec=self._spec,
            status=status,
            pools=self._pods.pool_views(),
            workers=self._pods.worker_views(),
            router=self.seen,
            router_ready=True,
            models=self._models,
        )

    def counters(self) -> Counters:
        """Return the totals up to now."""
        return self._counters.copy()

    def act(self, actions: tuple[Action, ...]) -> list[str]:
        """Carry out actions in their order; return the uids of workers whose change was refused."""
        refused = []
        for action in actions:
            if isinstance(action, PatchWorker) and not self._pods.patch(action):
                refused.append(action.uid)
            elif isinstance(action, SetReplicas):
                self._pods.scale(action.pool, action.replicas)
            elif isinstance(action, SetLimits):
                self._router.limit(action.limits)
        return refused
