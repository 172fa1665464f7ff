"""A curve through measured sizes: straight between them, never falling, and as steep beyond the last as before it.

For engines whose time per token changes with size in a way that no short formula has: kernels and collectives that are
chosen by size make steps in it.
"""

import math
from bisect import bisect_right
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Curve:
    """Seconds by size; 0 at size 0.

    Raises:
        ValueError: no size, or sizes that do not rise, or seconds that fall, or a figure that is not finite.
    """

    sizes: tuple[float, ...]
    """Rising, the first above zero."""
    seconds: tuple[float, ...]
    """One for each size, none below the one before it."""

    def __post_init__(self) -> None:
        """Refuse what would make more work look faster."""
        if not self.sizes or len(self.sizes) != len(self.seconds):
            raise ValueError("a curve needs one or more sizes, and seconds for each")
        if not all(math.isfinite(value) for value in (*self.sizes, *self.seconds)):
            raise ValueError("a curve's figures must be finite")
        if any(low >= high for low, high in zip((0.0, *self.sizes), self.sizes, strict=False)):
            raise ValueError("a curve's sizes must rise from above zero")
        if any(low > high for low, high in zip((0.0, *self.seconds), self.seconds, strict=False)):
            raise ValueError("a curve's seconds must not fall, nor begin below zero")

    def at(self, size: float) -> float:
        """Return the seconds at a size, zero or more."""
        sizes, seconds = self.sizes, self.seconds
        index = min(bisect_right(sizes, size), len(sizes) - 1)
        low, low_s = (sizes[index - 1], seconds[index - 1]) if index else (0.0, 0.0)
        return low_s + (size - low) * (seconds[index] - low_s) / (sizes[index] - low)

    def scaled(self, factor: float) -> "Curve":
        """Return the curve with all its seconds times a factor, zero or more."""
        return Curve(sizes=self.sizes, seconds=tuple(value * factor for value in self.seconds))
