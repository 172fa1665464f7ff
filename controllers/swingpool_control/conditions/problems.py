"""What is wrong with a pool and will not pass by itself: what was tried, what came of it, and what a user can do."""

from dataclasses import dataclass

from swingpool_control.api.v1alpha1 import Pool
from swingpool_control.conditions.conditions import Reason
from swingpool_control.figures import Unknown
from swingpool_control.view import ClusterView, PoolView, WorkerView

RESTARTS_OF_A_LOOP = 2
"""From so many restarts on, a worker that is not ready counts as crash looping, waiting for its next try or not."""

PULL_FAILURES = frozenset(
    {"ErrImagePull", "ImagePullBackOff", "InvalidImageName", "ErrImageNeverPull", "ImageInspectError"}
)

CAPACITY_REASONS = frozenset(
    {
        Reason.UNSCHEDULABLE,
        Reason.QUOTA_EXCEEDED,
        Reason.ADMISSION_REFUSED,
        Reason.PODS_FORBIDDEN,
        Reason.PODS_NOT_CREATED,
    }
)
"""Reasons why a worker that was asked for is not had."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """One thing that is wrong with one pool."""

    reason: Reason
    message: str


def find(view: ClusterView) -> tuple[Problem, ...]:
    """Return all problems of all pools, in the spec's order."""
    found: list[Problem] = []
    for pool in view.spec.pools:
        state = next(state for state in view.pools if state.pool == pool.name)
        workers = [worker for worker in view.workers if worker.pool == pool.name and not worker.deleting]
        found += [problem for problem in (_not_created(pool, state), _unschedulable(pool, workers)) if problem]
        found += _not_running(view, pool, workers)
        model = view.models.get(pool.name)
        if isinstance(model, Unknown):
            message = f"pool {pool.name}: {model.why}; until then its roles and size hold"
            found.append(Problem(reason=Reason.PROFILE_UNAVAILABLE, message=message))
    return tuple(found)


def _not_created(pool: Pool, state: PoolView) -> Problem | None:
    text = state.failure
    if not text:
        return None
    reason, remedy = Reason.PODS_NOT_CREATED, "see the pool's ReplicaSet for more"
    if "exceeded quota" in text:
        reason, remedy = Reason.QUOTA_EXCEEDED, "raise the ResourceQuota, or lower the pool's replicas"
    elif "admission webhook" in text or "failed calling webhook" in text:
        reason, remedy = Reason.ADMISSION_REFUSED, "make the webhook take the pod, or change the pool's podTemplate"
    elif "forbidden" in text:
        reason, remedy = Reason.PODS_FORBIDDEN, "allow such pods in the namespace, or change the pool's podTemplate"
    return Problem(reason=reason, message=f"pool {pool.name}: pods cannot be made: {text}; {remedy}")


def _unschedulable(pool: Pool, workers: list[WorkerView]) -> Problem | None:
    texts = [worker.unschedulable for worker in workers if worker.unschedulable]
    if not texts:
        return None
    wanted = f"{pool.accelerator.count} x {pool.accelerator.resource}"
    if pool.accelerator.product:
        wanted += f" on a node labelled {pool.accelerator.product_label}={pool.accelerator.product}"
    why = min(texts).split(" preemption:")[0].rstrip(". ")
    message = (
        f"pool {pool.name}: no node takes {len(texts)} of its workers, each of which needs {wanted}: {why}; "
        "add or free such nodes, correct pools[].accelerator, or lower the pool's replicas"
    )
    return Problem(reason=Reason.UNSCHEDULABLE, message=message)


def _not_running(view: ClusterView, pool: Pool, workers: list[WorkerView]) -> list[Problem]:
    found = []
    down = [worker for worker in workers if not worker.ready]
    if any(worker.waiting in PULL_FAILURES for worker in down):
        image = view.spec.engine.image or "of the manager's settings"
        message = (
            f"pool {pool.name}: the image {image} cannot be pulled; correct spec.engine.image, "
            "or give spec.engine.imagePullSecrets"
        )
        found.append(Problem(reason=Reason.IMAGE_PULL_FAILED, message=message))
    looping = [worker for worker in down if _is_looping(worker)]
    if looping:
        message = f"pool {pool.name}: workers end again and again after they start; read `kubectl logs -p` of its pods"
        found.append(Problem(reason=Reason.CRASH_LOOPING, message=message))
    other = {worker.waiting for worker in down if worker.waiting and worker.waiting not in PULL_FAILURES}
    if other - {"CrashLoopBackOff"}:
        why = ", ".join(sorted(other - {"CrashLoopBackOff"}))
        message = f"pool {pool.name}: containers cannot start: {why}; read the events of its pods"
        found.append(Problem(reason=Reason.CONTAINER_FAILED, message=message))
    return found


def _is_looping(worker: WorkerView) -> bool:
    return worker.waiting == "CrashLoopBackOff" or (
        worker.restarts >= RESTARTS_OF_A_LOOP and worker.waiting not in PULL_FAILURES
    )
