"""Pods and Deployments as Kubernetes keeps them: made, started, ended, chosen for deletion, changed by patches."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Final

from swingpool_control import names
from swingpool_control.actions import PatchWorker
from swingpool_control.api.quantities import money, seconds
from swingpool_control.api.v1alpha1 import InferenceClusterSpec, Pool, PoolRole, ReplicaMode
from swingpool_control.engine.model import PerformanceModel
from swingpool_control.simulation.events import Timeline
from swingpool_control.simulation.runner import Runner
from swingpool_control.simulation.settings import START_UNIX_S, Settings
from swingpool_control.simulation.tariff import Steps, constant
from swingpool_control.view import PoolView, WorkerView

SURGE: Final = 1
"""Pods that a rolling update of a pool may add, as the manager renders Deployments."""

REVISION: Final = "simulated"
LOOK_S: Final = 0.5
"""How often an ending pod is looked at."""


@dataclass(slots=True, kw_only=True, eq=False)
class Pod:
    """One worker pod."""

    name: str
    pool: Pool
    role: str
    runner: Runner
    created_s: float
    number: int
    placed_s: float | None = None
    """When it got its accelerators; None while it waits for them."""
    ready: bool = False
    deleting: bool = False
    flip: str = ""
    drain: str = ""
    deletion_cost: int = 0
    restarts: int = 0
    hangs_until_s: float = 0.0
    """It answers nothing before."""
    silent_until_s: float = 0.0
    """Its figures cannot be read before."""

    @property
    def uid(self) -> str:
        """Its name's: no name is used twice here."""
        return f"uid-{self.name}"

    def view(self) -> WorkerView:
        """Return the pod as the manager sees it."""
        return WorkerView(
            pod=self.name,
            uid=self.uid,
            pool=self.pool.name,
            role=self.role,
            ready=self.ready,
            deleting=self.deleting,
            unschedulable="" if self.placed_s is not None else "insufficient accelerators",
            waiting="",
            created_unix_s=START_UNIX_S + self.created_s,
            restarts=self.restarts,
            revision=REVISION,
            flip=self.flip,
            drain=self.drain,
            deletion_cost=self.deletion_cost,
        )


@dataclass(slots=True)
class Spent:
    """What pods have used."""

    accelerator_s: float = 0.0
    """Seconds, times the accelerators of the pod."""
    money: float = 0.0
    """Of pools that have a price."""
    preemptions: int = 0


class Pods:
    """All worker pods of a cluster.

    Args:
        timeline: the clock.
        spec: the cluster's spec.
        models: performance model by pool.
        settings: how to simulate.
        make_runner: makes a pod's engine.
        changed: told of each pod that changed, appeared or is gone.
    """

    def __init__(
        self,
        timeline: Timeline,
        spec: InferenceClusterSpec,
        models: dict[str, PerformanceModel],
        settings: Settings,
        *,
        make_runner: Callable[[Pool], Runner],
        changed: Callable[[Pod], None],
    ) -> None:
        self._timeline = timeline
        self._spec = spec
        self._models = models
        self._settings = settings
        self._make_runner = make_runner
        self._changed = changed
        self._pools = {pool.name: pool for pool in spec.pools}
        self.prices = {pool.name: price_of(pool, settings) for pool in spec.pools}
        """Money per worker and hour; None where there is no price."""
        self._made = 0
        self.pods: dict[str, Pod] = {}
        """All that exist, by name."""
        self.replicas: dict[str, int] = {}
        self.starts = 0
        """Pods made after the beginning."""
        self._gone = Spent()
        """By pods that are gone."""

    def begin(self) -> None:
        """Make the pods that are ready at the start."""
        for pool in self._spec.pools:
            self.replicas[pool.name] = self._settings.replicas.get(pool.name, at_creation(pool))
            for _ in range(self.replicas[pool.name]):
                pod = self._make(pool)
                pod.placed_s = self._timeline.now_s
                self._ready(pod)

    def pool_views(self) -> tuple[PoolView, ...]:
        """Return the Deployments as the manager sees them."""
        return tuple(self._pool_view(pool) for pool in self._spec.pools)

    def worker_views(self) -> tuple[WorkerView, ...]:
        """Return the pods as the manager sees them."""
        views = [pod.view() for pod in self.pods.values()]
        return tuple(sorted(views, key=lambda worker: (worker.pool, worker.created_unix_s, worker.pod)))

    def patch(self, action: PatchWorker) -> bool:
        """Change a pod's role and annotations; False if it is not the pod, or not in the role, that was meant."""
        pod = self.pods.get(action.pod)
        if pod is None or pod.uid != action.uid or pod.role != action.expected_role:
            return False
        role = action.labels.get(names.LABEL_ROLE)
        pod.role = pod.role if role is None else role
        for key, value in action.annotations.items():
            if key == names.ANNOTATION_FLIP:
                pod.flip = value or ""
            elif key == names.ANNOTATION_DRAIN:
                pod.drain = value or ""
            elif key == names.ANNOTATION_DELETION_COST:
                pod.deletion_cost = int(value or 0)
        self._changed(pod)
        return True

    def scale(self, pool: str, replicas: int) -> None:
        """Set a pool's replicas; its controller follows."""
        self.replicas[pool] = replicas
        self._timeline.after(self._settings.latencies.controller_s, lambda: self._follow(pool))

    def crash(self, pod: Pod) -> None:
        """End a pod's engine; its container starts anew."""
        if pod.name not in self.pods:
            return
        pod.restarts += 1
        pod.ready = False
        self._changed(pod)
        pod.runner.crash()
        self._timeline.after(self._settings.failures.restart_s + self._startup_s(pod.pool), lambda: self._ready(pod))

    def spent(self) -> Spent:
        """Return what all pods have used up to now."""
        total = Spent(self._gone.accelerator_s, self._gone.money, self._gone.preemptions)
        for pod in self.pods.values():
            self._count(pod, total)
        return total

    def _pool_view(self, pool: Pool) -> PoolView:
        alive = [pod for pod in self.pods.values() if pod.pool is pool and not pod.deleting]
        return PoolView(
            pool=pool.name,
            exists=True,
            replicas=self.replicas[pool.name],
            current=len(alive),
            ready=sum(pod.ready for pod in alive),
            updated=len(alive),
            observed=True,
            failure="",
            surge=SURGE,
        )

    def _make(self, pool: Pool) -> Pod:
        self._made += 1
        pod = Pod(
            name=f"{pool.name}-{self._made}",
            pool=pool,
            role=names.ROLE_PREFILL if pool.role is PoolRole.PREFILL else names.ROLE_DECODE,
            runner=self._make_runner(pool),
            created_s=self._timeline.now_s,
            number=self._made,
        )
        self.pods[pod.name] = pod
        return pod

    def _ready(self, pod: Pod) -> None:
        if pod.name in self.pods and not pod.deleting:
            pod.ready = True
            self._changed(pod)

    def _startup_s(self, pool: Pool) -> float:
        given = self._settings.startup_s
        return self._models[pool.name].startup_s if given is None else given

    def _follow(self, pool_name: str) -> None:
        """Do what the Deployment's and ReplicaSet's controllers do."""
        pool = self._pools[pool_name]
        alive = [pod for pod in self.pods.values() if pod.pool is pool and not pod.deleting]
        beyond = len(alive) - self.replicas[pool_name]
        for _ in range(-beyond):
            self.starts += 1
            self._make(pool)
        self._place()
        cheapest = sorted(alive, key=lambda pod: (pod.ready, pod.deletion_cost, -pod.created_s, -pod.number))
        for pod in cheapest[: max(0, beyond)]:
            self._end(pod)

    def _place(self) -> None:
        """Give waiting pods accelerators, oldest first, as far as there are any; the newest must not overtake."""
        total = self._settings.accelerators
        held = sum(pod.pool.accelerator.count for pod in self.pods.values() if pod.placed_s is not None)
        for pod in [pod for pod in self.pods.values() if pod.placed_s is None and not pod.deleting]:
            if total is not None and held + pod.pool.accelerator.count > total:
                return
            held += pod.pool.accelerator.count
            pod.placed_s = self._timeline.now_s
            self._timeline.after(self._startup_s(pod.pool), partial(self._ready, pod))

    def _end(self, pod: Pod) -> None:
        pod.deleting = True
        self._changed(pod)
        latest_s = self._timeline.now_s + seconds(self._spec.engine.max_request_duration)

        def look() -> None:
            if pod.runner.empty or self._timeline.now_s >= latest_s:
                self._timeline.after(self._settings.latencies.terminate_s, lambda: self._remove(pod))
            else:
                self._timeline.after(LOOK_S, look)

        self._timeline.after(LOOK_S, look)

    def _remove(self, pod: Pod) -> None:
        pod.ready = False
        self._count(pod, self._gone)
        del self.pods[pod.name]
        self._changed(pod)
        pod.runner.crash()
        self._place()

    def _count(self, pod: Pod, spent: Spent) -> None:
        lived_s = 0.0 if pod.placed_s is None else self._timeline.now_s - pod.placed_s
        spent.accelerator_s += lived_s * pod.pool.accelerator.count
        price = self.prices[pod.pool.name]
        if price is not None and pod.placed_s is not None:
            spent.money += price.over(pod.placed_s, self._timeline.now_s) / 3600
        spent.preemptions += pod.runner.preemptions


def price_of(pool: Pool, settings: Settings) -> Steps | None:
    """Return the money per worker and hour of a pool over time; None if it has no price."""
    given = settings.tariff.workers.get(pool.name)
    if given is not None or pool.cost_per_hour is None:
        return given
    return constant(money(pool.cost_per_hour))


def at_creation(pool: Pool) -> int:
    """Return how many workers the manager creates a pool with."""
    if pool.replicas.mode is ReplicaMode.FIXED and pool.replicas.count is not None:
        return pool.replicas.count
    return pool.replicas.min
