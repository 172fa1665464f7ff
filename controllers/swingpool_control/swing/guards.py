"""The rules that no decision may break: at every moment the last ready prefill and the last ready decode worker stay.

Both loops ask here before they take a worker away from a role. A worker counts for a role only if it serves it for
certain: ready, not ending, not drained, of a pool that the spec still has, its label seen, and in the rotation of that
role as far as the router is known.
"""

from collections.abc import Collection

from swingpool_control import names
from swingpool_control.figures import Unknown
from swingpool_control.observation import WorkerObservation
from swingpool_control.view import ClusterView, WorkerView

ROLES = (names.ROLE_PREFILL, names.ROLE_DECODE)


def other(role: str) -> str:
    """Return the other of the two serving roles."""
    return names.ROLE_DECODE if role == names.ROLE_PREFILL else names.ROLE_PREFILL


def observed(view: ClusterView) -> dict[str, WorkerObservation]:
    """Return what the router sees, by pod; empty if the router is unknown."""
    if isinstance(view.router, Unknown):
        return {}
    return {worker.pod: worker for worker in view.router.workers}


def is_ready(worker: WorkerView) -> bool:
    """Tell whether Kubernetes says that a worker serves, and nobody is taking it away."""
    return worker.ready and not worker.deleting and not worker.drain


def serving(view: ClusterView, *, pending: Collection[str] = ()) -> dict[str, frozenset[str]]:
    """Return the uids of the workers that serve each role for certain.

    Args:
        view: the cluster.
        pending: uids of workers whose role was just changed and is not seen yet; they count for no role.
    """
    seen = observed(view)
    known = not isinstance(view.router, Unknown)
    pools = {pool.name for pool in view.spec.pools}
    found: dict[str, set[str]] = {role: set() for role in ROLES}
    for worker in view.workers:
        unsure = worker.uid in pending or worker.uid in view.uncertain
        if worker.role not in ROLES or unsure or worker.pool not in pools or not is_ready(worker):
            continue
        if known:
            sight = seen.get(worker.pod)
            if sight is None or not sight.in_rotation or sight.role != worker.role:
                continue
        found[worker.role].add(worker.uid)
    return {role: frozenset(uids) for role, uids in found.items()}


def may_leave(worker: WorkerView, serving_now: dict[str, frozenset[str]]) -> bool:
    """Tell whether a role still has a serving worker when this one leaves it."""
    if worker.role not in ROLES:
        return True
    return bool(serving_now[worker.role] - {worker.uid})


def without(serving_now: dict[str, frozenset[str]], worker: WorkerView) -> dict[str, frozenset[str]]:
    """Return who still serves each role when a worker has left its own."""
    return {role: uids - {worker.uid} for role, uids in serving_now.items()}


def only_served_by(view: ClusterView, pool: str) -> str:
    """Return the role that none but workers of a pool which the spec has no more serve; empty if there is none.

    Such a pool stays until another worker serves: one that starts, or a swing worker that is given the role.
    """
    now = serving(view)
    held = {worker.role for worker in view.workers if worker.pool == pool and is_ready(worker)}
    return next((role for role in ROLES if role in held and not now[role]), "")
