"""By how much decode grows: what a flip that works in some seconds will meet.

Under a load that stays, sequences come and go by chance, and only what chance does not explain is growth. Once what
arrives has turned for certain there is no such load: what is seen is then the best guess of what goes on, and to take
chance off it would call every step smaller than it is, by half where few requests came in its first second.
"""

import math
from dataclasses import dataclass

CERTAIN = 2.0
"""Standard deviations of chance by which decode must grow, under a load that stays, for it to count as growth."""

LEAST_S, LONGEST_S = 0.5, 5.0
"""Between the observations by which growth is judged."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Generating:
    """What decode workers generated at a moment."""

    at_unix_s: float
    sequences: float


def growth_per_s(before: Generating | None, now: Generating, *, requests_per_s: float, turned: bool) -> float:
    """Return the sequences per second by which decode grows; 0 or more, and 0 if no fitting observation came before.

    Args:
        before: the observation before.
        now: the newest.
        requests_per_s: what arrives, which tells how much chance explains.
        turned: whether what arrives has just changed by more than chance explains.
    """
    past_s = 0.0 if before is None else now.at_unix_s - before.at_unix_s
    if before is None or not LEAST_S <= past_s <= LONGEST_S:
        return 0.0
    growth = (now.sequences - before.sequences) / past_s
    chance = 0.0 if turned else CERTAIN * math.sqrt(2.0 * max(requests_per_s, growth, 0.0) / past_s)
    return max(0.0, growth - chance)
