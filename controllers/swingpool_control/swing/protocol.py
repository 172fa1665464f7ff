"""How a flip goes: begun, drained if the router is external, switched, confirmed by traffic; or taken back.

With the built-in router the label changes at once: the picker sends nothing new of the old role, and what the worker
holds it finishes beside its new work. An external router may cut off what it no longer lists, so there the worker is
first `draining` until it has been idle for `drainSettle`, and, if it was prefill, for as long as decode workers may
still fetch its KV cache.

A flip is finished when its worker has served a request of the new role. An external router of which nothing is known
cannot show that: there the flip is finished when the worker has been ready in its new role for `drainSettle`, and the
time of serving stays empty.
"""

from dataclasses import dataclass, replace

from swingpool_control import names
from swingpool_control.actions import PatchWorker
from swingpool_control.api.quantities import seconds
from swingpool_control.api.status import FlipRecord
from swingpool_control.api.v1alpha1 import RouterType
from swingpool_control.figures import Unknown
from swingpool_control.observation import WorkerObservation
from swingpool_control.swing import records, rollout
from swingpool_control.swing.flip import Flip, Phase, role_labels
from swingpool_control.swing.guards import observed, serving
from swingpool_control.swing.idle import Idle, settled
from swingpool_control.view import ClusterView, WorkerView

KV_LEASE_S = 30.0
"""How long a prefill worker keeps KV cache that a decode worker has not fetched yet."""

SWITCH_TIMEOUT_S = 60.0
"""How long the router may leave a worker out of its new role before the flip is taken back."""

CLOCK_TOLERANCE_S = 5.0
"""How far the router's clock may lie behind ours for its word about a role to count as newer than the decision."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """What one step does with one flip."""

    record: FlipRecord
    action: PatchWorker | None = None
    role: str = ""
    """The role label that the action gives the worker; empty if it leaves it."""
    target: str = ""
    """The role that the worker shall serve then."""


def begin(view: ClusterView, worker: WorkerView, *, to_role: str, reason: str, now_unix_s: float) -> Progress:
    """Return the first write of a flip: the new role, or draining before an external router, and the flip itself."""
    external = view.spec.router.type is RouterType.EXTERNAL
    flip = Flip(
        from_role=worker.role,
        to_role=to_role,
        decided_unix_s=now_unix_s,
        phase=Phase.DRAINING if external else Phase.SWITCHED,
        phase_since_unix_s=now_unix_s,
        reason=reason,
    )
    role = names.ROLE_DRAINING if external else to_role
    return Progress(
        record=records.of(worker, flip),
        action=_patch(view, worker, role=role, flip=flip, reason=reason),
        role=role,
        target=to_role,
    )


def advance(
    view: ClusterView,
    worker: WorkerView,
    flip: Flip,
    *,
    known: tuple[FlipRecord, ...],
    idle: tuple[Idle, ...],
    now_unix_s: float,
) -> Progress:
    """Move a flip that stands on a pod on by one step.

    Args:
        view: the cluster.
        worker: the pod.
        flip: what its annotation says.
        known: all records of flips.
        idle: workers that hold nothing.
        now_unix_s: the time.
    """
    record = records.find(known, records.of(worker, flip)) or records.of(worker, flip)
    if record.outcome != records.IN_PROGRESS:
        return _clear_once_told(view, worker, record, known)
    if worker.deleting:
        return Progress(record=records.finished(record, records.WORKER_LOST))
    expected = names.ROLE_DRAINING if flip.phase is Phase.DRAINING else flip.to_role
    if worker.drain or worker.role != expected:
        return Progress(record=records.finished(record, records.ABORTED))
    if flip.phase is Phase.DRAINING:
        return _drain(view, worker, flip, record, idle=idle, now_unix_s=now_unix_s)
    return _confirm(view, worker, flip, record, now_unix_s=now_unix_s)


def _clear_once_told(
    view: ClusterView, worker: WorkerView, record: FlipRecord, known: tuple[FlipRecord, ...]
) -> Progress:
    """Take the flip off the pod, but only when the status holds its outcome: a crash in between loses nothing."""
    told = records.find(tuple(view.status.flips), record)
    waits = told is None and record in records.newest(known)
    if waits or (told is not None and told.outcome == records.IN_PROGRESS) or worker.deleting:
        return Progress(record=record)
    action = PatchWorker(
        pod=worker.pod,
        uid=worker.uid,
        expected_role=worker.role,
        annotations={names.ANNOTATION_FLIP: None},
        reason=f"flip ended: {record.outcome}",
    )
    return Progress(record=record, action=action)


def _drain(
    view: ClusterView,
    worker: WorkerView,
    flip: Flip,
    record: FlipRecord,
    *,
    idle: tuple[Idle, ...],
    now_unix_s: float,
) -> Progress:
    """Switch a worker that holds nothing; take the flip back if nobody needs it now, or it holds a request too long."""
    # Where nothing tells the load, a worker leaves its role only for one that nobody serves, or soon nobody will.
    unseen = isinstance(view.router, Unknown)
    if unseen and rollout.staying(serving(view), rollout.old_workers(view))[flip.to_role]:
        return _take_back(view, worker, flip, record, reason=f"another worker serves {flip.to_role}")
    lease_s = KV_LEASE_S if flip.from_role == names.ROLE_PREFILL else 0.0
    settle_s = max(seconds(view.spec.router.external.drain_settle), lease_s)
    longest_s = seconds(view.spec.engine.max_request_duration) + lease_s
    overdue = now_unix_s - flip.phase_since_unix_s >= longest_s
    blind = worker.pod not in observed(view)
    if settled(idle, worker.uid, settle_s=settle_s, now_unix_s=now_unix_s) or (overdue and blind):
        switched = replace(flip, phase=Phase.SWITCHED, phase_since_unix_s=now_unix_s)
        action = _patch(view, worker, role=flip.to_role, flip=switched, reason=f"drained; {flip.reason}")
        return Progress(record=record, action=action, role=flip.to_role, target=flip.to_role)
    if overdue and not any(item.uid == worker.uid for item in idle):
        return _take_back(view, worker, flip, record, reason="it holds requests for longer than maxRequestDuration")
    return Progress(record=record)


def _confirm(view: ClusterView, worker: WorkerView, flip: Flip, record: FlipRecord, *, now_unix_s: float) -> Progress:
    """End a flip whose worker serves in its new role; take it back if the router leaves it out for too long."""
    since_s = now_unix_s - flip.phase_since_unix_s
    sight = observed(view).get(worker.pod)
    if sight is None:
        settle_s = seconds(view.spec.router.external.drain_settle)
        external = view.spec.router.type is RouterType.EXTERNAL
        if external and worker.ready and since_s >= settle_s:
            return Progress(record=records.finished(record, records.SERVING))
        return Progress(record=record)
    served_unix_s = first_served_unix_s(sight, flip.to_role, decided_unix_s=flip.decided_unix_s, now_unix_s=now_unix_s)
    if served_unix_s is not None:
        return Progress(record=records.finished(record, records.SERVING, serving_unix_s=served_unix_s))
    if since_s >= SWITCH_TIMEOUT_S and not sight.in_rotation:
        return _take_back(view, worker, flip, record, reason=f"the router leaves it out: {sight.why_not}")
    return Progress(record=record)


def first_served_unix_s(
    sight: WorkerObservation, role: str, *, decided_unix_s: float, now_unix_s: float
) -> float | None:
    """Return when a worker served its first request in a role it was given at `decided_unix_s`; None if not yet."""
    served = sight.first_served_in_role_unix_s
    if sight.role != role or isinstance(served, Unknown):
        return None
    newer = sight.role_since_unix_s >= decided_unix_s - CLOCK_TOLERANCE_S
    # After a while the router has surely seen the change, however its clock differs from ours.
    if not newer and now_unix_s - decided_unix_s < 3 * CLOCK_TOLERANCE_S:
        return None
    return max(served, decided_unix_s)


def _take_back(view: ClusterView, worker: WorkerView, flip: Flip, record: FlipRecord, *, reason: str) -> Progress:
    return Progress(
        record=records.finished(record, records.ABORTED),
        action=_patch(view, worker, role=flip.from_role, flip=None, reason=f"flip taken back: {reason}"),
        role=flip.from_role,
        target=flip.from_role,
    )


def _patch(view: ClusterView, worker: WorkerView, *, role: str, flip: Flip | None, reason: str) -> PatchWorker:
    return PatchWorker(
        pod=worker.pod,
        uid=worker.uid,
        expected_role=worker.role,
        labels=role_labels(view.spec, role),
        annotations={names.ANNOTATION_FLIP: None if flip is None else flip.to_json()},
        reason=reason,
    )
