"""A role that nobody serves gets a swing worker at once, without waiting for pressure or for a worker's dwell time."""

from swingpool_control.figures import Unknown
from swingpool_control.swing import flip
from swingpool_control.swing.guards import ROLES, is_ready, observed, other
from swingpool_control.swing.roles import Move
from swingpool_control.view import ClusterView, WorkerView

CONFIRM_S = 2.0
"""How long the router must see no worker in a role whose pods are ready: one that just started sees none at all."""

STARTING_S = 60.0
"""How long a worker of the role that just starts is waited for, while no request needs it."""

HELP_S = 30.0
"""How long a flip towards the role counts as help on its way."""


def unserved(
    before: tuple[tuple[str, float], ...], serving: dict[str, frozenset[str]], *, now_unix_s: float
) -> tuple[tuple[str, float], ...]:
    """Return the roles that no worker serves now, and since when."""
    since = dict(before)
    return tuple((role, since.get(role, now_unix_s)) for role in ROLES if not serving[role])


def rescue(
    view: ClusterView,
    movable: tuple[WorkerView, ...],
    serving: dict[str, frozenset[str]],
    missing: tuple[tuple[str, float], ...],
    *,
    coming: frozenset[str],
    now_unix_s: float,
) -> Move | None:
    """Return the worker to give to a role that nobody serves, if the other role keeps one; None if none is needed.

    Args:
        view: the cluster.
        movable: swing workers that serve a role and are not changing it.
        serving: uids of the workers that serve, by role.
        missing: roles that nobody serves, and since when.
        coming: roles that a worker was just given.
        now_unix_s: the time.
    """
    if len(missing) != 1:
        return None
    role, since_unix_s = missing[0]
    donor = other(role)
    pods_ready = any(is_ready(worker) and worker.role == role for worker in view.workers)
    if pods_ready and now_unix_s - since_unix_s < CONFIRM_S:
        return None
    if role in coming or not _is_needed(view, role, now_unix_s):
        return None
    if len(serving[donor]) < 2 or any(_helps(worker, role, now_unix_s) for worker in view.workers):
        return None
    candidates = [worker for worker in movable if worker.uid in serving[donor]]
    if not candidates:
        return None
    chosen = min(candidates, key=lambda worker: (held(view, worker), worker.uid))
    return Move(uid=chosen.uid, to_role=role, reason=f"no worker serves {role}")


def _is_needed(view: ClusterView, role: str, now_unix_s: float) -> bool:
    """Tell whether a role must be served now: a request is there, or nobody is about to serve it anyway."""
    router = view.router
    starting = any(
        worker.role == role
        and not (worker.ready or worker.deleting or worker.drain or worker.waiting or worker.unschedulable)
        and now_unix_s - worker.created_unix_s < STARTING_S
        for worker in view.workers
    )
    if isinstance(router, Unknown):
        return not starting
    in_flight = sum(worker.prefills_in_flight + worker.decodes_in_flight for worker in router.workers)
    return not starting or router.queued_requests > 0 or in_flight > 0


def held(view: ClusterView, worker: WorkerView) -> int:
    """Return how many requests a worker holds, as far as the router knows; 0 if it knows nothing of it."""
    sight = observed(view).get(worker.pod)
    if sight is None:
        return 0
    told = 0 if isinstance(sight.running, Unknown) else int(sight.running)
    return max(told, sight.prefills_in_flight + sight.decodes_in_flight)


def _helps(worker: WorkerView, role: str, now_unix_s: float) -> bool:
    state = flip.parse(worker.flip)
    if state is None or worker.deleting or state.to_role != role:
        return False
    return now_unix_s - state.phase_since_unix_s < HELP_S or state.phase is flip.Phase.DRAINING
