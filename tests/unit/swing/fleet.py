"""A small pure cluster: pods, Deployments that behave as Kubernetes', requests that take a performance model's time.

It carries out actions as the shell would, one by one, with the tests that a write makes, and checks after each that the
rules which no decision may break still hold.
"""

import json
from collections import deque
from dataclasses import dataclass, field
from typing import Any

from swingpool_control import names
from swingpool_control.actions import Action, EmitEvent, PatchWorker, SetReplicas
from swingpool_control.api.status import InferenceClusterStatus
from swingpool_control.api.v1alpha1 import InferenceClusterSpec
from swingpool_control.engine import profile
from swingpool_control.engine.linear import LinearModel
from swingpool_control.engine.model import PerformanceModel, decode_step_s, prefill_s
from swingpool_control.figures import Figure, Unknown
from swingpool_control.observation import Percentiles, RouterObservation, WorkerObservation
from swingpool_control.view import ClusterView, PoolView, WorkerView

MODEL: LinearModel = profile.built_in("demo").model()
T0 = 1_760_000_000.0
WINDOW_S = 10.0


def spec(pools: list[dict[str, Any]] | None = None, **parts: Any) -> InferenceClusterSpec:
    """The demo's cluster: one prefill, one decode, two swing workers; `parts` replace parts of the spec."""
    if pools is None:
        pools = [
            {"name": "prefill", "role": "Prefill"},
            {"name": "decode", "role": "Decode"},
            {"name": "swing", "role": "Swing", "replicas": {"min": 2, "max": 2}},
        ]
    base: dict[str, Any] = {
        "model": {"name": "demo"},
        "objectives": {"ttft": {"p95": "1s"}, "itl": {"p95": "40ms"}},
        "pools": pools,
        "engine": {"type": "Simulated"},
    }
    return InferenceClusterSpec.model_validate(base | parts)


@dataclass
class Request:
    isl: int
    osl: int
    arrived: float
    computed: float = 0.0
    generated: float = 0.0


@dataclass
class Pod:
    name: str
    pool: str
    role: str
    created: float
    uid: str = ""
    ready: bool = True
    deleting: bool = False
    unschedulable: str = ""
    waiting: str = ""
    flip: str = ""
    drain: str = ""
    cost: int = 0
    revision: str = "1"
    labels: dict[str, str] = field(default_factory=dict)
    role_since: float = 0.0
    first_served: float | None = None
    in_rotation: bool = True
    kept_tokens: int = 0
    """KV cache that others may fetch yet."""
    prefills: deque[Request] = field(default_factory=deque)
    decodes: list[Request] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.uid = self.uid or f"uid-{self.name}"
        self.role_since = self.role_since or self.created

    @property
    def serves(self) -> bool:
        return self.ready and not self.deleting and self.in_rotation

    @property
    def pending(self) -> int:
        return int(sum(request.isl - request.computed for request in self.prefills))

    @property
    def held(self) -> int:
        return len(self.prefills) + len(self.decodes)


class Fleet:
    """Pods, Deployments and requests under a clock that only `run` moves."""

    def __init__(self, wanted: InferenceClusterSpec, *, model: PerformanceModel = MODEL, start_s: float = 2.0) -> None:
        self.spec = wanted
        self.model = model
        self.start_s = start_s
        self.now = T0
        self.generation = 1
        self.status = InferenceClusterStatus()
        self.pods: list[Pod] = []
        self.replicas: dict[str, int] = {}
        self.made = 0
        self.queue: deque[Request] = deque()
        self.handed: deque[Request] = deque()
        self.finished: list[tuple[float, Request]] = []
        self.arrivals: deque[tuple[float, Request]] = deque()
        self.router_known = True
        self.lost = 0
        self.arrived = [0, 0]
        self.events: list[EmitEvent] = []
        self.refused: list[PatchWorker] = []
        self.failure: dict[str, str] = {}
        self.unschedulable_pools: set[str] = set()
        self.min_serving = {names.ROLE_PREFILL: 0, names.ROLE_DECODE: 0}
        for pool in wanted.pools:
            self.replicas[pool.name] = pool.replicas.fewest
            for _ in range(self.replicas[pool.name]):
                self.create(pool.name, ready=True)

    def create(self, pool: str, *, ready: bool = False) -> Pod:
        role = {p.name: p.role.value for p in self.spec.pools}[pool]
        self.made += 1
        pod = Pod(
            name=f"{pool}-{self.made}",
            pool=pool,
            role=names.ROLE_PREFILL if role == "Prefill" else names.ROLE_DECODE,
            created=self.now,
            ready=ready,
        )
        if pool in self.unschedulable_pools:
            pod.unschedulable = "0/2 nodes are available: 2 Insufficient nvidia.com/gpu."
        self.pods.append(pod)
        return pod

    def pod(self, name: str) -> Pod:
        return next(pod for pod in self.pods if pod.name == name)

    def of(self, pool: str) -> list[Pod]:
        return [pod for pod in self.pods if pod.pool == pool and not pod.deleting]

    def serving(self, role: str) -> list[Pod]:
        return [pod for pod in self.pods if pod.serves and pod.role == role]

    def roles(self, pool: str = "swing") -> list[str]:
        return [pod.role for pod in self.of(pool)]

    # --- what decisions see -------------------------------------------------------------------------------------

    def view(self) -> ClusterView:
        return ClusterView(
            namespace="default",
            name="chat",
            uid="cluster-uid",
            generation=self.generation,
            spec=self.spec,
            status=self.status,
            pools=tuple(self._pool(pool.name) for pool in self.spec.pools),
            workers=tuple(self._worker(pod) for pod in self.pods),
            router=self.observation() if self.router_known else Unknown("no picker answered"),
            router_ready=True,
            models={pool.name: self.model for pool in self.spec.pools},
        )

    def _pool(self, name: str) -> PoolView:
        pods = self.of(name)
        return PoolView(
            pool=name,
            exists=True,
            replicas=self.replicas[name],
            current=len(pods),
            ready=sum(pod.ready for pod in pods),
            updated=len(pods),
            observed=True,
            failure=self.failure.get(name, ""),
        )

    def _worker(self, pod: Pod) -> WorkerView:
        return WorkerView(
            pod=pod.name,
            uid=pod.uid,
            pool=pod.pool,
            role=pod.role,
            ready=pod.ready,
            deleting=pod.deleting,
            unschedulable=pod.unschedulable,
            waiting=pod.waiting,
            created_unix_s=pod.created,
            restarts=0,
            revision=pod.revision,
            flip=pod.flip,
            drain=pod.drain,
            deletion_cost=pod.cost,
        )

    def observation(self) -> RouterObservation:
        while self.arrivals and self.arrivals[0][0] <= self.now - WINDOW_S:
            self.arrivals.popleft()
        recent = [request for at, request in self.finished[-500:] if at > self.now - WINDOW_S]
        tokens = sum(request.isl for _, request in self.arrivals)
        none = Percentiles(p50=NO, p90=NO, p95=NO, p99=NO, count=0)
        return RouterObservation(
            picker="picker-0",
            at_unix_s=self.now,
            window_s=WINDOW_S,
            requests_per_s=len(self.arrivals) / WINDOW_S,
            prompt_tokens_per_s=tokens / WINDOW_S,
            mean_isl_tokens=tokens / len(self.arrivals) if self.arrivals else NO,
            mean_osl_tokens=sum(request.osl for request in recent) / len(recent) if recent else NO,
            ttft_s=none,
            itl_s=none,
            queued_requests=len(self.queue),
            workers=tuple(self._sight(pod) for pod in self.pods),
            arrived_requests=float(self.arrived[0]),
            arrived_prompt_tokens=float(self.arrived[1]),
        )

    def _sight(self, pod: Pod) -> WorkerObservation:
        answers = pod.ready and pod.in_rotation
        held = pod.kept_tokens + sum(request.isl + request.generated for request in pod.decodes)
        served: Figure = Unknown("none yet") if pod.first_served is None else pod.first_served
        return WorkerObservation(
            pod=pod.name,
            address="10.0.0.1:8000",
            role=pod.role,
            role_since_unix_s=pod.role_since,
            in_rotation=pod.serves and pod.role != names.ROLE_DRAINING,
            why_not="" if pod.serves else "not ready",
            pending_prefill_tokens=pod.pending,
            prefills_in_flight=len(pod.prefills),
            decodes_in_flight=len(pod.decodes),
            prefills_served=0,
            decodes_served=0,
            first_served_in_role_unix_s=served,
            running=float(len(pod.decodes)) if answers else NO,
            waiting=0.0 if answers else NO,
            kv_usage=held / self.model.kv_capacity_tokens if answers else NO,
            scraped_unix_s=self.now if answers else NO,
        )

    # --- what the shell does ------------------------------------------------------------------------------------

    def apply(self, actions: tuple[Action, ...]) -> None:
        for action in actions:
            if isinstance(action, PatchWorker):
                self.patch(action)
            elif isinstance(action, SetReplicas):
                self.replicas[action.pool] = action.replicas
                self.reconcile()
            elif isinstance(action, EmitEvent):
                self.events.append(action)
            self.check()

    def patch(self, action: PatchWorker) -> None:
        pod = next((pod for pod in self.pods if pod.uid == action.uid), None)
        if pod is None or pod.role != action.expected_role:
            self.refused.append(action)
            return
        role = action.labels.get(names.LABEL_ROLE, pod.role)
        assert role is not None
        if role != pod.role:
            pod.role, pod.role_since, pod.first_served = role, self.now, None
        pod.labels |= {key: value for key, value in action.labels.items() if value is not None}
        for key, value in action.annotations.items():
            if key == names.ANNOTATION_FLIP:
                pod.flip = value or ""
            elif key == names.ANNOTATION_DRAIN:
                pod.drain = value or ""
            elif key == names.ANNOTATION_DELETION_COST:
                pod.cost = int(value or 0)
        assert not pod.drain or json.loads(pod.drain)

    def check(self) -> None:
        """The last ready worker of each role stays, unless it went by itself."""
        for role, least in self.min_serving.items():
            assert len(self.serving(role)) >= least, f"no worker serves {role}"

    def guard(self) -> None:
        """From now on each role that is served must stay so, until something is taken away."""
        self.min_serving = {role: min(1, len(self.serving(role))) for role in self.min_serving}

    def reconcile(self) -> None:
        """What the ReplicaSet controller does: create, or delete in its order of preference."""
        for pool, wanted in self.replicas.items():
            pods = self.of(pool)
            for _ in range(wanted - len(pods)):
                if pool not in self.failure:
                    self.create(pool)
            victims = sorted(pods, key=lambda pod: (not pod.unschedulable, pod.ready, pod.cost, -pod.created))
            for pod in victims[: max(0, len(pods) - wanted)]:
                self.lost += pod.held
                pod.deleting = True

    # --- requests -----------------------------------------------------------------------------------------------

    def arrive(self, isl: int, osl: int) -> None:
        request = Request(isl=isl, osl=osl, arrived=self.now)
        self.arrivals.append((self.now, request))
        self.arrived = [self.arrived[0] + 1, self.arrived[1] + isl]
        self.queue.append(request)

    def run(self, seconds: float, *, dt: float = 0.05) -> None:
        for _ in range(round(seconds / dt)):
            self.now += dt
            self._route()
            for pod in self.pods:
                self._work(pod, dt)
        for pod in self.pods:
            if not pod.ready and not pod.unschedulable and not pod.waiting and self.now - pod.created >= self.start_s:
                pod.ready = True
        self.pods = [pod for pod in self.pods if not (pod.deleting and not pod.held)]

    def _route(self) -> None:
        while self.queue and (workers := self.serving(names.ROLE_PREFILL)):
            min(workers, key=lambda pod: pod.pending).prefills.append(self.queue.popleft())
        while self.handed and (workers := self.serving(names.ROLE_DECODE)):
            pod = min(workers, key=lambda pod: len(pod.decodes))
            pod.decodes.append(self.handed.popleft())
            self._serve(pod, names.ROLE_DECODE)

    def _serve(self, pod: Pod, role: str) -> None:
        if pod.role == role and pod.first_served is None:
            pod.first_served = self.now

    def _work(self, pod: Pod, dt: float) -> None:
        if not pod.ready:
            return
        share = 0.5 if pod.prefills and pod.decodes else 1.0
        left = dt * share
        while pod.prefills and left > 0:
            request = pod.prefills[0]
            rate = request.isl / prefill_s(self.model, prompt_tokens=request.isl)
            done = min(request.isl - request.computed, left * rate)
            request.computed += done
            left -= done / rate
            if request.computed >= request.isl - 1e-6:
                self.handed.append(pod.prefills.popleft())
                self._serve(pod, names.ROLE_PREFILL)
        if pod.decodes:
            context = int(sum(request.isl + request.generated for request in pod.decodes))
            step = decode_step_s(self.model, sequences=len(pod.decodes), context_tokens=context)
            for request in pod.decodes:
                request.generated += dt * share / step
            self.finished += [(self.now, request) for request in pod.decodes if request.generated >= request.osl]
            pod.decodes = [request for request in pod.decodes if request.generated < request.osl]


NO = Unknown("nothing was seen")
