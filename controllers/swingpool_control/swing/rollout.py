"""What a rolling update of a swing pool is about to take away, and how both roles outlive it.

A new worker starts in the role of its template, which is decode, whatever the old one does that ends for it. So a role
that only old workers serve loses its last one at some point. Kubernetes chooses which old worker ends next, but ends a
cheaper one first: in a role that no new one serves, one old worker is made dear. And as soon as there are two new
workers, one of them is given to prefill, before the last old one ends.
"""

from swingpool_control import names
from swingpool_control.actions import PatchWorker
from swingpool_control.api.v1alpha1 import PoolRole
from swingpool_control.view import ClusterView, WorkerView

COST_KEPT = 1000
"""Deletion cost of the old worker that stays for a role which no new one serves."""


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
    """Return the writes that make one old worker dear in each role that no new one serves, and others cheap again.

    Args:
        workers: all swing workers.
        serving: uids of the workers that serve for certain, by role.
        old: see `old_workers`.
    """
    dear = {_dear(workers, serving[role] & old) for role, new in staying(serving, old).items() if not new}
    found = []
    for worker in workers:
        if worker.deleting or worker.drain or (worker.uid in dear) == (worker.deletion_cost == COST_KEPT):
            continue
        cost, reason = (
            (COST_KEPT, "no new worker serves") if worker.uid in dear else (None, "it need not outlive others in")
        )
        found.append(
            PatchWorker(
                pod=worker.pod,
                uid=worker.uid,
                expected_role=worker.role,
                annotations={names.ANNOTATION_DELETION_COST: None if cost is None else str(cost)},
                reason=f"rolling update: {reason} {worker.role}",
            )
        )
    return tuple(found)


def _dear(workers: tuple[WorkerView, ...], candidates: frozenset[str]) -> str:
    """Return the uid of the worker to keep: the one that is dear already, if it still can be."""
    able = sorted((worker.deletion_cost != COST_KEPT, worker.uid) for worker in workers if worker.uid in candidates)
    return able[0][1] if able else ""
