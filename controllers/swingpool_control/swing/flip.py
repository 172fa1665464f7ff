"""A flip under way, as it stands on the pod: in one annotation, written in the same patch as the role label.

So the pod alone says how far a flip has got, and a manager that was killed at any point carries on from there.
"""

import json
from dataclasses import dataclass
from enum import StrEnum

from swingpool_control import names
from swingpool_control.api.v1alpha1 import InferenceClusterSpec, RouterType
from swingpool_control.swing.guards import ROLES
from swingpool_control.timestamps import is_time

MAX_REASON = 512


class Phase(StrEnum):
    """How far a flip has got."""

    DRAINING = "draining"
    """It gets no new requests and finishes what it holds (external routers only)."""
    SWITCHED = "switched"
    """It has its new role; no traffic has shown it yet."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Flip:
    """One change of role of one worker."""

    from_role: str
    to_role: str
    decided_unix_s: float
    phase: Phase
    phase_since_unix_s: float
    reason: str

    def to_json(self) -> str:
        """Return the annotation's text."""
        return json.dumps(
            {
                "from": self.from_role,
                "to": self.to_role,
                "decidedUnixS": round(self.decided_unix_s, 3),
                "phase": self.phase.value,
                "phaseSinceUnixS": round(self.phase_since_unix_s, 3),
                "reason": self.reason[:MAX_REASON],
            },
            separators=(",", ":"),
        )


def parse(text: str) -> Flip | None:
    """Return the flip in an annotation's text; None if there is none, or none that can be read."""
    if not text:
        return None
    try:
        raw = json.loads(text)
        flip = Flip(
            from_role=raw["from"],
            to_role=raw["to"],
            decided_unix_s=float(raw["decidedUnixS"]),
            phase=Phase(raw["phase"]),
            phase_since_unix_s=float(raw["phaseSinceUnixS"]),
            reason=str(raw.get("reason", ""))[:MAX_REASON],
        )
    except (ValueError, TypeError, KeyError, AttributeError, OverflowError, RecursionError):
        return None
    roles_differ = (flip.from_role, flip.to_role) in (ROLES, ROLES[::-1])
    return flip if roles_differ and is_time(flip.decided_unix_s) and is_time(flip.phase_since_unix_s) else None


def role_labels(spec: InferenceClusterSpec, role: str) -> dict[str, str | None]:
    """Return the labels that say a role: ours, and the external router's own if there is one."""
    if spec.router.type is not RouterType.EXTERNAL:
        return {names.LABEL_ROLE: role}
    theirs = spec.router.external.role_labels
    value = {
        names.ROLE_PREFILL: theirs.prefill,
        names.ROLE_DECODE: theirs.decode,
        names.ROLE_DRAINING: theirs.draining,
    }[role]
    return {theirs.key: value, names.LABEL_ROLE: role}
