"""That a worker sleeps, as it stands on the pod: in one annotation, in the patch that took it its role."""

import json
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Literal

from swingpool_control import names
from swingpool_control.actions import PatchWorker
from swingpool_control.api.v1alpha1 import InferenceClusterSpec
from swingpool_control.swing import flip
from swingpool_control.timestamps import is_time
from swingpool_control.view import WorkerView


class State(StrEnum):
    """How far it is."""

    FALLING_ASLEEP = "FallingAsleep"
    ASLEEP = "Asleep"
    WAKING = "Waking"


@dataclass(frozen=True, slots=True, kw_only=True)
class Mark:
    """A worker of the reserve."""

    state: State
    since_unix_s: float
    restarts: int
    """Of its container when it was told: one that starts anew is awake, whatever its mark says."""

    def to_json(self) -> str:
        """Return the annotation's text."""
        content = {"state": self.state, "sinceUnixS": round(self.since_unix_s, 3), "restarts": self.restarts}
        return json.dumps(content, separators=(",", ":"))


def parse(text: str) -> Mark | None:
    """Return the mark in an annotation's text; None if there is none.

    A text that cannot be read is a worker that was told to wake long ago: waking one that is awake does no harm.
    """
    if not text:
        return None
    try:
        raw = json.loads(text)
        found = Mark(
            state=State(raw["state"]), since_unix_s=float(raw["sinceUnixS"]), restarts=int(raw.get("restarts", 0))
        )
    except (ValueError, TypeError, KeyError, AttributeError, OverflowError, RecursionError):
        return Mark(state=State.WAKING, since_unix_s=0.0, restarts=0)
    return found if is_time(found.since_unix_s) else Mark(state=State.WAKING, since_unix_s=0.0, restarts=0)


def allows(text: str, call: Literal["sleep", "wake"]) -> bool:
    """Return whether an annotation's text says that a worker shall sleep, or is one that may be woken.

    Who carries a call on for others asks this first: a call that the pod does not speak of is nobody's.
    """
    known = parse(text)
    return known is not None and (call == "wake" or known.state is not State.WAKING)


def begin(spec: InferenceClusterSpec, worker: WorkerView, *, now_unix_s: float) -> PatchWorker:
    """Return the write that takes a drained worker into the reserve: its drain and its deletion cost end."""
    mark = Mark(state=State.FALLING_ASLEEP, since_unix_s=now_unix_s, restarts=worker.restarts)
    annotations: dict[str, str | None] = {
        names.ANNOTATION_ASLEEP: mark.to_json(),
        names.ANNOTATION_DRAIN: None,
        names.ANNOTATION_DELETION_COST: None,
    }
    if worker.flip:
        annotations[names.ANNOTATION_FLIP] = None
    return PatchWorker(
        pod=worker.pod,
        uid=worker.uid,
        expected_role=worker.role,
        labels=flip.role_labels(spec, names.ROLE_DRAINING) | {names.LABEL_ROLE: names.ROLE_ASLEEP},
        annotations=annotations,
        reason="it sleeps instead of ending",
    )


def turn(worker: WorkerView, mark: Mark, state: State, *, now_unix_s: float, reason: str) -> PatchWorker:
    """Return the write that says a new state."""
    then = replace(mark, state=state, since_unix_s=now_unix_s, restarts=worker.restarts)
    return PatchWorker(
        pod=worker.pod,
        uid=worker.uid,
        expected_role=worker.role,
        annotations={names.ANNOTATION_ASLEEP: then.to_json()},
        reason=reason,
    )


def end(spec: InferenceClusterSpec, worker: WorkerView, *, role: str, reason: str) -> PatchWorker:
    """Return the write that gives a worker that is awake its role back."""
    return PatchWorker(
        pod=worker.pod,
        uid=worker.uid,
        expected_role=worker.role,
        labels=flip.role_labels(spec, role),
        annotations={names.ANNOTATION_ASLEEP: None, names.ANNOTATION_DELETION_COST: None},
        reason=reason,
    )
