"""Role labels that no decision of ours explains are put right: a worker without a role serves nobody.

A pod may lose its way when a user edits labels, when a drain's or a flip's annotation is removed by hand, or when it
cannot be read. A swing worker that a user gave the other role keeps it: that is a role as good as any.
"""

from swingpool_control import names
from swingpool_control.actions import PatchWorker
from swingpool_control.api.v1alpha1 import Pool, PoolRole
from swingpool_control.swing import flip
from swingpool_control.swing.guards import ROLES
from swingpool_control.view import ClusterView, WorkerView


def home_role(pool: Pool) -> str:
    """Return the role in which a pool's workers start."""
    return names.ROLE_PREFILL if pool.role is PoolRole.PREFILL else names.ROLE_DECODE


def allowed_roles(pool: Pool) -> tuple[str, ...]:
    """Return the roles that a pool's workers may have."""
    return ROLES if pool.role is PoolRole.SWING else (home_role(pool),)


def repair(view: ClusterView, worker: WorkerView) -> PatchWorker | None:
    """Return the write that puts a worker's role label right, or None if nothing is wrong with it."""
    pool = next((pool for pool in view.spec.pools if pool.name == worker.pool), None)
    if pool is None or worker.deleting or worker.drain:
        return None
    state = flip.parse(worker.flip)
    if state is not None and pool.role is PoolRole.SWING:
        return None
    unreadable = bool(worker.flip)
    if worker.role in allowed_roles(pool) and not unreadable:
        return None
    role = worker.role if worker.role in allowed_roles(pool) else home_role(pool)
    return PatchWorker(
        pod=worker.pod,
        uid=worker.uid,
        expected_role=worker.role,
        labels=flip.role_labels(view.spec, role),
        annotations={names.ANNOTATION_FLIP: None} if unreadable else {},
        reason=f"role was {worker.role or 'missing'} without a flip or a drain under way",
    )
