"""What the demo sees, once a second: the one record from which the live view, the picture and the report are made."""

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from e2e.load.background import Load
from e2e.system.kubernetes import Kubernetes
from e2e.system.waiting import TRANSIENT
from swingpool_control import names
from swingpool_control.api.quantities import seconds
from swingpool_control.timestamps import unix_seconds


@dataclass(frozen=True, slots=True, kw_only=True)
class Worker:
    """One worker at one moment."""

    name: str
    pool: str
    role: str
    ready: bool
    prefills: int
    decodes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Flip:
    """One change of role; times are seconds since the load started, None where that has not happened."""

    worker: str
    source: str
    target: str
    decided_s: float
    serving_s: float | None
    outcome: str
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Moment:
    """Everything at one moment."""

    now_s: float
    workers: tuple[Worker, ...]
    pools: tuple[dict[str, Any], ...]
    """As in the InferenceCluster's status."""
    ready: str
    """Its Ready condition's reason and message, or why nothing is known."""
    load: dict[str, Any]
    """The load generator's last snapshot."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Objective:
    """One objective of the sample."""

    metric: str
    percentile: str
    limit_s: float


def objectives(spec: dict[str, Any]) -> tuple[Objective, ...]:
    """Return the objectives of an InferenceCluster's spec."""
    return tuple(
        Objective(metric=metric, percentile=percentile, limit_s=seconds(limit))
        for metric, limits in spec["objectives"].items()
        for percentile, limit in limits.items()
    )


def read_flips(status: dict[str, Any], *, start_unix_s: float) -> list[Flip]:
    """Return the flips that a status tells, oldest first."""
    found = [
        Flip(
            worker=flip["worker"],
            source=flip["from"],
            target=flip["to"],
            decided_s=round(unix_seconds(flip["decidedAt"]) - start_unix_s, 3),
            serving_s=round(unix_seconds(flip["servingAt"]) - start_unix_s, 3) if flip.get("servingAt") else None,
            outcome=flip["outcome"],
            reason=flip["reason"],
        )
        for flip in status.get("flips") or ()
    ]
    return sorted(found, key=lambda flip: flip.decided_s)


@dataclass(slots=True, kw_only=True)
class Watch:
    """Looks at the cluster and keeps what it saw. A look that fails keeps the last one and says so."""

    kube: Kubernetes
    namespace: str
    cluster: str
    load: Load
    moments: list[Moment] = field(default_factory=list)
    flips: dict[tuple[str, float], Flip] = field(default_factory=dict)
    """By worker and time of decision: the status keeps only the last few."""
    clock: Callable[[], float] = time.time

    def look(self) -> Moment | None:
        """Take one look; None before the load has begun."""
        start = self.load.start_unix_s
        if start is None:
            return None
        now_s = self.clock() - start
        try:
            moment = self._read(now_s, start)
        except TRANSIENT as error:
            last = self.moments[-1] if self.moments else None
            moment = Moment(
                now_s=now_s,
                workers=last.workers if last else (),
                pools=last.pools if last else (),
                ready=f"no answer: {error}",
                load=self.load.last,
            )
        self.moments.append(moment)
        return moment

    def _read(self, now_s: float, start: float) -> Moment:
        found = self.kube.inference_cluster(namespace=self.namespace, name=self.cluster)
        status = found.get("status") or {}
        for flip in read_flips(status, start_unix_s=start):
            self.flips[flip.worker, flip.decided_s] = flip
        held = {
            worker["pod"]: worker
            for worker in self.kube.router_state(namespace=self.namespace, cluster=self.cluster).get("workers") or ()
        }
        workers = tuple(
            Worker(
                name=pod.name,
                pool=pod.pool,
                role=pod.role,
                ready=pod.serves,
                prefills=held.get(pod.name, {}).get("prefills_in_flight", 0),
                decodes=held.get(pod.name, {}).get("decodes_in_flight", 0),
            )
            for pod in self.kube.workers(namespace=self.namespace, cluster=self.cluster)
        )
        ready = next((item for item in status.get("conditions") or () if item["type"] == "Ready"), None)
        return Moment(
            now_s=now_s,
            workers=tuple(sorted(workers, key=_order)),
            pools=tuple(status.get("pools") or ()),
            ready=f"{ready['reason']}: {ready['message']}" if ready else "no status yet",
            load=self.load.last,
        )

    def flips_in_order(self) -> list[Flip]:
        """Return every flip decided since the load began, oldest first."""
        return sorted((flip for flip in self.flips.values() if flip.decided_s >= 0), key=lambda flip: flip.decided_s)


def _order(worker: Worker) -> tuple[int, str, str]:
    pools = {names.ROLE_PREFILL: 0, "swing": 1, names.ROLE_DECODE: 2}
    return pools.get(worker.pool, 3), worker.pool, worker.name
