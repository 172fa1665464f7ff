"""Figures that may be unknown: a missing, stale, NaN or infinite figure is never a number.

Every decision function takes `Figure`s and must say what it does when one of them is `Unknown`: hold or grow, never
shrink.
"""

import math
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Unknown:
    """A figure that nobody has, and why."""

    why: str

    def __bool__(self) -> bool:
        """Refuse truth tests: `if figure` would read unknown as something."""
        raise TypeError(f"an unknown figure has no truth value ({self.why})")


Figure = float | Unknown


def figure(value: object, *, name: str) -> Figure:
    """Return `value` as a float, or `Unknown` with the reason it is none.

    Args:
        value: what a metric, a wire message or a file held; None if it held nothing.
        name: what the figure is, for the reason.
    """
    if value is None:
        return Unknown(f"{name} is missing")
    if isinstance(value, bool) or not isinstance(value, int | float):
        return Unknown(f"{name} is not a number: {value!r}")
    number = float(value)
    if not math.isfinite(number):
        return Unknown(f"{name} is {number}")
    return number
