"""What the simulated picker tells of the last seconds, with the delays of the live one."""

from collections import deque
from typing import Final

from swingpool_control.figures import Figure, Unknown
from swingpool_control.observation import PERCENTILES, Percentiles
from swingpool_control.simulation.histogram import Histogram, merged

_SLICE_S: Final = 1.0


class Latencies:
    """A latency over the window, in slices of a second."""

    def __init__(self, *, window_s: float) -> None:
        self._window_s = window_s
        self._slices: deque[tuple[float, Histogram]] = deque()

    def add(self, value_s: float, count: int, *, now_s: float) -> None:
        """Count a value so many times."""
        if not self._slices or now_s >= self._slices[-1][0] + _SLICE_S:
            self._slices.append((now_s, Histogram()))
        self._slices[-1][1].add(value_s, count)

    def include(self, part: Histogram, *, now_s: float) -> None:
        """Count all that was counted elsewhere since the last time."""
        if part.count:
            self._slices.append((now_s, part))

    def recent(self, *, now_s: float, name: str) -> Percentiles:
        """Return the window's percentiles; unknown of nothing."""
        while self._slices and self._slices[0][0] < now_s - self._window_s:
            self._slices.popleft()
        whole = merged(part for _, part in self._slices)
        nothing = Unknown(f"no {name} in the window")
        found = whole.percentiles(PERCENTILES.values())
        known: dict[str, Figure] = {
            level: nothing if value is None else value for level, value in zip(PERCENTILES, found, strict=True)
        }
        return Percentiles(count=whole.count, mean=nothing if whole.mean is None else whole.mean, **known)


class Sums:
    """Numbers with their times, and their sum over the window."""

    def __init__(self, *, window_s: float) -> None:
        self._window_s = window_s
        self._values: deque[tuple[float, int]] = deque()
        self._sum = 0

    def add(self, value: int, *, now_s: float) -> None:
        """Count a number."""
        self._values.append((now_s, value))
        self._sum += value

    def recent(self, *, now_s: float) -> tuple[int, int]:
        """Return how many numbers the window holds, and their sum."""
        while self._values and self._values[0][0] < now_s - self._window_s:
            self._sum -= self._values.popleft()[1]
        return len(self._values), self._sum


def mean_of(total: float, count: int, *, name: str) -> Figure:
    """Return total over count, unknown if nothing was counted."""
    return total / count if count else Unknown(f"no {name} in the window")
