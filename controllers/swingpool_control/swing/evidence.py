"""What speaks for moving workers, gathered over observations: much evidence acts at once, little must last.

It is a one-sided cumulative sum, one for each role that could gain: an observation in which a move would save adds to
it, one in which it would cost takes away, and it never falls below nothing. It grows with the square of the saving: a
plain step is acted on at its second observation, a slight advantage after minutes, and noise around a split that is
good never, since there a move mostly costs. After a move the way back needs more for a while: what sends workers to and
fro must be a load that really turns.
"""

import math
from dataclasses import dataclass

SCALE = 5.0
"""Saving, as a share of requests, of which a second is worth as much evidence."""

NEEDED = 2.5
"""Evidence that moves workers."""

MOST = 20.0
"""Evidence that one observation gives or takes at most."""

LEAST_SAVING = 0.05
"""Share of requests that a move must save to speak for itself at all."""

OBSERVATIONS = 2
"""How many observations in a row must speak for a move, however plain."""

LONGEST_S = 2.0
"""What one observation counts for at most."""

DOUBT = 8.0
"""By how much less an observation counts where sizing says that more workers would not help the role with what came of
late, and what comes has not turned: then it is chance, or one worker's trouble."""

REVERSAL = 0.5
"""Share of requests that the way back must save right after a move before it speaks for itself."""

REVERSAL_S = 180.0
"""How soon that is forgotten."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """What speaks for giving workers to one role."""

    to_role: str
    workers: int = 0
    """How many, as far as the last two observations agree."""
    newest: int = 0
    """How many by the last one."""
    gathered: float = 0.0
    observations: int = 0
    """In a row that speak for it."""


def gather(
    before: Evidence,
    *,
    workers: int,
    saving: float,
    past_s: float,
    doubted: bool = False,
    since_reverse_s: float = math.inf,
) -> Evidence:
    """Return the evidence after one more observation.

    Args:
        before: what was gathered.
        workers: how many would move; 0 if that is not worth it.
        saving: share of requests that would no longer be late; negative if more would be.
        past_s: since the observation before.
        doubted: whether sizing says that more workers would not help the role.
        since_reverse_s: how long ago the last move was, if it was the other way; infinity if it was not.
    """
    beyond = saving - REVERSAL * math.exp(-max(0.0, since_reverse_s) / REVERSAL_S)
    weight = beyond * abs(beyond) / SCALE * min(LONGEST_S, max(0.0, past_s))
    counted = max(-MOST, min(MOST, weight)) / (DOUBT if doubted and weight > 0 else 1.0)
    gathered = max(0.0, before.gathered + counted)
    if workers == 0 or saving < LEAST_SAVING:
        return Evidence(to_role=before.to_role, gathered=min(gathered, before.gathered))
    return Evidence(
        to_role=before.to_role,
        workers=min(workers, before.newest) if before.observations else workers,
        newest=workers,
        gathered=gathered,
        observations=before.observations + 1,
    )


def is_enough(evidence: Evidence) -> bool:
    """Tell whether workers should move."""
    return evidence.observations >= OBSERVATIONS and evidence.gathered >= NEEDED
