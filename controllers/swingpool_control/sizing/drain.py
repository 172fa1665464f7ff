"""A worker's drain before a scale-down, as it stands on the pod: in one annotation, in the patch that set its role.

With it goes the pod's deletion cost, so that Kubernetes ends this worker and no other when the replicas are lowered.
"""

import json
from dataclasses import dataclass

from swingpool_control import names
from swingpool_control.actions import PatchWorker
from swingpool_control.swing import flip
from swingpool_control.swing.guards import ROLES
from swingpool_control.timestamps import is_time
from swingpool_control.view import ClusterView, WorkerView

COST_DRAINING = -1000
COST_EMPTY = -2000
"""Deletion cost of a drained worker that is empty while others still drain: it goes first."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Drain:
    """A drain under way."""

    role: str
    """The role the worker had, and gets back if it is needed after all."""
    since_unix_s: float
    reason: str

    def to_json(self) -> str:
        """Return the annotation's text."""
        content = {"role": self.role, "sinceUnixS": round(self.since_unix_s, 3), "reason": self.reason}
        return json.dumps(content, separators=(",", ":"))


def parse(text: str, *, default_role: str) -> Drain | None:
    """Return the drain in an annotation's text; None if there is no annotation.

    Args:
        text: the annotation; one that cannot be read is a drain that began long ago.
        default_role: the role to give back if the text says none.
    """
    if not text:
        return None
    try:
        raw = json.loads(text)
        found = Drain(role=str(raw["role"]), since_unix_s=float(raw["sinceUnixS"]), reason=str(raw.get("reason", "")))
    except (ValueError, TypeError, KeyError, AttributeError, OverflowError, RecursionError):
        return Drain(role=default_role, since_unix_s=0.0, reason="")
    if found.role not in ROLES or not is_time(found.since_unix_s):
        return Drain(role=default_role, since_unix_s=0.0, reason="")
    return found


def begin(view: ClusterView, worker: WorkerView, *, default_role: str, reason: str, now_unix_s: float) -> PatchWorker:
    """Return the write that takes a worker out of its role, ends a flip under way, and marks it as the one to lose."""
    state = flip.parse(worker.flip)
    role = worker.role if worker.role in ROLES else (default_role if state is None else state.from_role)
    drain = Drain(role=role, since_unix_s=now_unix_s, reason=reason)
    annotations: dict[str, str | None] = {
        names.ANNOTATION_DRAIN: drain.to_json(),
        names.ANNOTATION_DELETION_COST: str(COST_DRAINING),
    }
    if worker.flip:
        annotations[names.ANNOTATION_FLIP] = None
    return _patch(view, worker, names.ROLE_DRAINING, annotations, f"drain before a scale-down: {reason}")


def cancel(view: ClusterView, worker: WorkerView, drain: Drain) -> PatchWorker:
    """Return the write that gives a drained worker its role back."""
    annotations: dict[str, str | None] = {names.ANNOTATION_DRAIN: None, names.ANNOTATION_DELETION_COST: None}
    return _patch(view, worker, drain.role, annotations, "the worker is needed after all")


def mark_empty(worker: WorkerView) -> PatchWorker:
    """Return the write that makes an empty worker go before those that still drain."""
    return PatchWorker(
        pod=worker.pod,
        uid=worker.uid,
        expected_role=worker.role,
        annotations={names.ANNOTATION_DELETION_COST: str(COST_EMPTY)},
        reason="drained; it goes before workers that still drain",
    )


def _patch(
    view: ClusterView, worker: WorkerView, role: str, annotations: dict[str, str | None], reason: str
) -> PatchWorker:
    return PatchWorker(
        pod=worker.pod,
        uid=worker.uid,
        expected_role=worker.role,
        labels=flip.role_labels(view.spec, role),
        annotations=annotations,
        reason=reason,
    )
