"""A rate over time in equal steps, however often or seldom somebody looked: what forecasts are made from.

Ticks fall into steps aligned to the clock, and a step is the mean of its ticks. So a late, doubled or missing tick
changes nothing as long as its step had another; a step without any is a gap, which is not zero.
"""

import math
from dataclasses import dataclass, replace

FINE_STEP_S = 30.0
FINE_KEPT = 960
"""Eight hours: for bursts that recur each hour."""
COARSE_STEP_S = 600.0
COARSE_KEPT = 2016
"""Two weeks: for days that are alike."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Series:
    """Means of a rate over equal steps; the last step is open."""

    step_s: float
    kept: int
    """Closed steps at most."""
    values: tuple[float | None, ...] = ()
    """Of closed steps, oldest first; None is a gap."""
    open_index: int | None = None
    """Number of the open step, counted from the epoch; None before the first tick."""
    open_sum: float = 0.0
    open_count: int = 0

    def index(self, at_unix_s: float) -> int:
        """Return the number of the step that a moment lies in."""
        return math.floor(at_unix_s / self.step_s)

    def with_tick(self, value: float, *, at_unix_s: float) -> "Series":
        """Return the series with one more tick; one for a step that is closed is left out."""
        index = self.index(at_unix_s)
        if self.open_index is None:
            return replace(self, open_index=index, open_sum=value, open_count=1)
        if index < self.open_index:
            return self
        if index == self.open_index:
            return replace(self, open_sum=self.open_sum + value, open_count=self.open_count + 1)
        gap = min(index - self.open_index - 1, self.kept)
        values = (*self.values, self.open_sum / self.open_count, *(None,) * gap)
        return replace(self, values=values[-self.kept :], open_index=index, open_sum=value, open_count=1)

    def filled(self) -> tuple[float, ...]:
        """Return the closed steps with each gap between the values beside it, from the first that is known on."""
        known = [number for number, value in enumerate(self.values) if value is not None]
        if not known:
            return ()
        found: list[float] = []
        for left, right in zip(known, [*known[1:], len(self.values)], strict=True):
            low = self.values[left] or 0.0
            high = low if right == len(self.values) else self.values[right] or 0.0
            found += [low + (high - low) * step / (right - left) for step in range(right - left)]
        return tuple(found)


@dataclass(frozen=True, slots=True, kw_only=True)
class History:
    """A rate in fine steps of late, and in coarse ones for long."""

    fine: Series = Series(step_s=FINE_STEP_S, kept=FINE_KEPT)
    coarse: Series = Series(step_s=COARSE_STEP_S, kept=COARSE_KEPT)
    ticks: tuple[tuple[float, float], ...] = ()
    """The last few, as (Unix time, rate)."""

    def with_tick(self, value: float, *, at_unix_s: float) -> "History":
        """Return the history with one more tick; one that is older than the last is left out."""
        if self.ticks and at_unix_s <= self.ticks[-1][0]:
            return self
        return History(
            fine=self.fine.with_tick(value, at_unix_s=at_unix_s),
            coarse=self.coarse.with_tick(value, at_unix_s=at_unix_s),
            ticks=(*self.ticks, (at_unix_s, value))[-_TICKS:],
        )


_TICKS = 24
