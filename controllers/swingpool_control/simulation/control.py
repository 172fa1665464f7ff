"""The manager's rounds under the virtual clock: the live loops' own functions, called on their own periods."""

from collections.abc import Mapping

from swingpool_control.actions import Action, PatchWorker, SetReplicas
from swingpool_control.api.status import FlipRecord, InferenceClusterStatus
from swingpool_control.api.v1alpha1 import InferenceClusterSpec
from swingpool_control.engine.model import PerformanceModel
from swingpool_control.observation import RouterObservation
from swingpool_control.simulation.events import Timeline
from swingpool_control.simulation.pods import Pods
from swingpool_control.simulation.router import Router
from swingpool_control.simulation.settings import START_UNIX_S, Policy
from swingpool_control.sizing import step as sizing
from swingpool_control.sizing.memory import SizingMemory
from swingpool_control.swing import step as swing
from swingpool_control.swing.memory import SwingMemory
from swingpool_control.view import ClusterView


class Control:
    """Decides and acts, once a period.

    Args:
        timeline: the clock.
        spec: the cluster's spec.
        models: performance model by pool.
        policy: which loops decide.
        pods: what is acted on.
        router: what is observed.
    """

    def __init__(
        self,
        timeline: Timeline,
        spec: InferenceClusterSpec,
        models: Mapping[str, PerformanceModel],
        policy: Policy,
        *,
        pods: Pods,
        router: Router,
    ) -> None:
        self._timeline = timeline
        self._spec = spec
        self._models = models
        self._policy = policy
        self._pods = pods
        self._router = router
        self._status = InferenceClusterStatus()
        self._swing_memory = SwingMemory()
        self._sizing_memory = SizingMemory()
        self._size_next_s = 0.0
        self.flips: tuple[FlipRecord, ...] = ()
        """All that are remembered, newest first."""

    def round(self) -> None:
        """Look, size if it is due, swing."""
        now_s = self._timeline.now_s
        router = self._router.observe()
        if self._policy.sizing and now_s >= self._size_next_s:
            sized = sizing.step(self._view(router), self._sizing_memory, now_unix_s=START_UNIX_S + now_s)
            self._sizing_memory = sized.memory
            self._size_next_s = now_s + sized.next_step_s
            self._carry_out(sized.actions)
        if self._policy.swing:
            moved = swing.step(self._view(router), self._swing_memory, now_unix_s=START_UNIX_S + now_s)
            self._swing_memory = moved.memory
            for uid in self._carry_out(moved.actions):
                self._swing_memory = self._swing_memory.refused(uid)
            if moved.memory.flips != self.flips:
                self.flips = moved.memory.flips
                self._status = InferenceClusterStatus(flips=moved.flips)

    def _view(self, router: RouterObservation) -> ClusterView:
        return ClusterView(
            namespace="simulated",
            name="simulated",
            uid="simulated",
            generation=1,
            spec=self._spec,
            status=self._status,
            pools=self._pods.pool_views(),
            workers=self._pods.worker_views(),
            router=router,
            router_ready=True,
            models=self._models,
        )

    def _carry_out(self, actions: tuple[Action, ...]) -> list[str]:
        """Carry out actions in their order; return the uids of workers whose change was refused."""
        refused = []
        for action in actions:
            if isinstance(action, PatchWorker) and not self._pods.patch(action):
                refused.append(action.uid)
            elif isinstance(action, SetReplicas):
                self._pods.scale(action.pool, action.replicas)
        return refused
