"""What a rolling update of a swing pool is about to take away, and how both roles outlive it.

A new worker starts in the role of its template, which is decode, whatever the old one does that ends for it. So a role
that only old workers serve loses its last one at some point. Kubernetes chooses which old worker ends next, but ends a
cheaper one first: those that nobody can follow yet are made dear. And as soon as there are two new workers, one of them
is given to prefill, before the last old one ends.
"""

from swingpool_control import names
from swingpool_control.actions import PatchWorker
from swingpool_control.api.v1alpha1 import PoolRole
from swingpool_control.swing.guards import ROLES
from swingpool_control.view import ClusterView, WorkerView

COST_KEPT = 1000
"""Deletion cost of an old worker whose role no new one serves."""


def old_workers(view: ClusterView) -> frozenset[str]:
    """Return the uids of swing workers that are older than the newest template of their pool."""
    found: set[str] = set()
    for pool in view.spec.pools:
        alive = [worker for worker in view.workers if worker.pool == pool.name and not worker.deleting]
        if pool.role is PoolRole.SWING and alive:
            newest = max(alive, key=lambda worker: (worker.created_unix_s, worker.pod)).revision
            found |= {worker.uid for worker in alive if worker.revision != newest}
    return frozenset(found)


def staying(serving: dict[str, frozenset[str]], old: frozenset[str]) -> dict[str, frozenset[str]]:
    """Return who serves each role when all old workers have ended."""
    return {role: uids - old for role, uids in serving.items()}


def keep(
    workers: tuple[WorkerView, ...], serving: dict[str, frozenset[str]], old: frozenset[str]
) -> tuple[PatchWorker, ...]:
    """Return the writes that make old workers dear whose role no new one serves, and the others cheap again.

    Args:
        workers: all swing workers.
        serving: uids of the workers that serve for certain, by role.
        old: see `old_workers`.
    """
    followed = staying(serving, old)
    found = []
    for worker in workers:
        if worker.deleting or worker.drain:
            continue
        dear = worker.uid in old and worker.role in ROLES and not followed[worker.role]
        if dear != (worker.deletion_cost == COST_KEPT):
            found.append(
                PatchWorker(
                    pod=worker.pod,
                    uid=worker.uid,
                    expected_role=worker.role,
                    annotations={names.ANNOTATION_DELETION_COST: str(COST_KEPT) if dear else None},
                    reason=f"no new worker serves {worker.role} yet" if dear else "a new worker serves its role",
                )
            )
    return tuple(found)
