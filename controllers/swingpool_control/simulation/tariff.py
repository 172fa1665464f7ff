"""What things cost over time: workers by pool, power, and the carbon that a kilowatt-hour stands for."""

import math
from bisect import bisect_right
from collections.abc import Mapping
from dataclasses import dataclass, field

from swingpool_control.engine.profile import Power


@dataclass(frozen=True, slots=True, kw_only=True)
class Steps:
    """A figure that changes at certain times and stays in between.

    Raises:
        ValueError: there is no figure for the begin, times do not ascend or lie beyond the period, or a figure is not
            finite or below zero.
    """

    at_s: tuple[float, ...]
    """Seconds from the begin; the first is 0."""
    values: tuple[float, ...]
    period_s: float = math.inf
    """After this time all begins anew; infinite if never."""

    def __post_init__(self) -> None:
        """Refuse what says nothing for some time."""
        if not self.at_s or len(self.at_s) != len(self.values) or self.at_s[0] != 0.0:
            raise ValueError("the first figure must be given for the begin, at 0 s")
        if any(later <= earlier for earlier, later in zip(self.at_s, self.at_s[1:], strict=False)):
            raise ValueError("times must ascend")
        if not self.at_s[-1] < self.period_s:
            raise ValueError(f"a time of {self.at_s[-1]:g} s lies beyond the period of {self.period_s:g} s")
        if not all(0 <= value < math.inf for value in self.values):
            raise ValueError("figures must be finite and zero or more")

    def at(self, time_s: float) -> float:
        """Return the figure at a time."""
        within_s = time_s if math.isinf(self.period_s) else time_s % self.period_s
        return self.values[bisect_right(self.at_s, within_s) - 1]

    def over(self, from_s: float, until_s: float) -> float:
        """Return the figure, summed up over seconds: its mean there times their number."""
        return self._since_begin(until_s) - self._since_begin(from_s)

    def _since_begin(self, time_s: float) -> float:
        if math.isinf(self.period_s):
            return self._within(time_s)
        periods, rest_s = divmod(time_s, self.period_s)
        return periods * self._within(self.period_s) + self._within(rest_s)

    def _within(self, time_s: float) -> float:
        ends = (*self.at_s[1:], math.inf)
        return sum(
            value * (min(end_s, time_s) - begin_s)
            for begin_s, end_s, value in zip(self.at_s, ends, self.values, strict=True)
            if begin_s < time_s
        )


def constant(value: float) -> Steps:
    """Return a figure that never changes."""
    return Steps(at_s=(0.0,), values=(value,))


@dataclass(frozen=True, slots=True, kw_only=True)
class Tariff:
    """All that is known of it."""

    workers: Mapping[str, Steps] = field(default_factory=dict)
    """Money per worker and hour, by pool; a pool that is missing has the spec's `costPerHour`."""
    power: Steps | None = None
    """Money per kilowatt-hour; None if nobody says."""
    carbon: Steps | None = None
    """Grams of CO2 per kilowatt-hour; None if nobody says."""
    draws: Mapping[str, Power] = field(default_factory=dict)
    """What a worker draws, by pool, instead of what its profile says."""


NO_TARIFF = Tariff()
"""Prices are the spec's, power costs nothing that anybody knows of."""
