"""How long a loop waits before it tries again what failed."""

import random


def delay_s(failures: int, *, first_s: float, longest_s: float) -> float:
    """Return how long to wait after so many failures in a row: doubling, bounded, with half of it at random.

    Args:
        failures: how many there were; at least 1.
        first_s: the longest wait after the first.
        longest_s: the longest wait after any.
    """
    bound_s = min(longest_s, first_s * 2.0 ** min(failures - 1, 16))
    return bound_s * (0.5 + random.random() / 2)  # noqa: S311 - spreads clients, guards nothing
