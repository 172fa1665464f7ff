"""Averages over time of figures that are sampled once a round, as Prometheus would make them."""

from collections import deque

from swingpool_control.simulation.counters import Counters


class Average:
    """Mean of samples over a window."""

    def __init__(self, window_s: float) -> None:
        self._window_s = window_s
        self._samples: deque[tuple[float, float]] = deque()

    def add(self, value: float, *, now_s: float) -> None:
        """Take a sample."""
        self._samples.append((now_s, value))
        while self._samples[0][0] <= now_s - self._window_s:
            self._samples.popleft()

    @property
    def value(self) -> float | None:
        """The mean; None without samples."""
        return sum(value for _, value in self._samples) / len(self._samples) if self._samples else None


class Increase:
    """What counters grew by over a window, as `increase(...[window])` gives it."""

    def __init__(self, window_s: float) -> None:
        self.window_s = window_s
        self._samples: deque[tuple[float, Counters]] = deque()

    def add(self, totals: Counters, *, now_s: float) -> Counters:
        """Take a sample; return what was counted within the window up to it."""
        self._samples.append((now_s, totals))
        while len(self._samples) > 1 and self._samples[1][0] <= now_s - self.window_s:
            self._samples.popleft()
        return totals.since(self._samples[0][1])
