"""What speaks for moving workers, gathered over observations: much evidence acts at once, little must last.

Each observation adds what the move would save, in share of requests times seconds, less a drift. So a plain step is
acted on at its second observation, a slight advantage after half a minute of it, and noise around nothing never.
After a move the way back needs more for a while: what sends workers to and fro must be a load that really turns.
"""

import math
from dataclasses import dataclass

LEAST_SAVING = 0.1
"""Share of requests that a move must save to speak for itself at all."""

NEEDED = 1.0
"""Share of requests times seconds."""

OBSERVATIONS = 2
"""How many observations in a row must speak for a move, however plain."""

LONGEST_S = 2.0
"""What one observation counts for at most."""

REVERSAL = 9.0
"""How many times more the way back needs right after a move, beyond what any move needs."""

REVERSAL_S = 300.0
"""How soon that is forgotten."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """What speaks for giving workers to one role."""

    to_role: str = ""
    workers: int = 0
    """How many, as far as the last two observations agree."""
    gathered: float = 0.0
    observations: int = 0
    """In a row."""
    at_unix_s: float | None = None

    def used(self) -> "Evidence":
        """Return what is left once it was acted on: nothing but its time."""
        return Evidence(at_unix_s=self.at_unix_s)


def gather(before: Evidence, *, to_role: str, workers: int, saving: float, at_unix_s: float) -> Evidence:
    """Return the evidence after one more observation.

    Args:
        before: what was gathered.
        to_role: the role that would gain.
        workers: how many would move; 0 for none.
        saving: share of requests that would no longer be late.
        at_unix_s: when it was observed.
    """
    past_s = 1.0 if before.at_unix_s is None else min(LONGEST_S, max(0.0, at_unix_s - before.at_unix_s))
    weight = (saving - LEAST_SAVING) * past_s
    if workers == 0 or weight <= 0:
        rest = max(0.0, before.gathered - LEAST_SAVING * past_s)
        return Evidence(to_role=before.to_role if rest else "", gathered=rest, at_unix_s=at_unix_s)
    if before.to_role not in ("", to_role):
        return Evidence(to_role=to_role, workers=workers, gathered=weight, observations=1, at_unix_s=at_unix_s)
    return Evidence(
        to_role=to_role,
        workers=min(workers, before.workers) if before.observations else workers,
        gathered=before.gathered + weight,
        observations=before.observations + 1,
        at_unix_s=at_unix_s,
    )


def is_enough(evidence: Evidence, *, since_reverse_s: float) -> bool:
    """Tell whether workers should move.

    Args:
        evidence: what was gathered.
        since_reverse_s: how long ago a worker was moved the other way; infinity if never.
    """
    needed = NEEDED * (1.0 + REVERSAL * math.exp(-max(0.0, since_reverse_s) / REVERSAL_S))
    return evidence.observations >= OBSERVATIONS and evidence.gathered >= needed
