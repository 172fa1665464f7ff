"""Figures over the last seconds: rates, means and percentiles, and unknown where nothing stands behind them."""

import math
from collections import deque
from collections.abc import Iterable
from itertools import accumulate

from swingpool.telemetry.vllm_page import Histogram
from swingpool_control.figures import Figure, Unknown
from swingpool_control.observation import PERCENTILES, Percentiles

MOST_VALUES = 20_000
"""Values that a window keeps at most; under more load it covers less time, with as good percentiles."""


class Values:
    """Values with their times."""

    def __init__(self, *, window_s: float) -> None:
        self._window_s = window_s
        self._values: deque[tuple[float, float]] = deque(maxlen=MOST_VALUES)

    def add(self, value: float, *, now_s: float) -> None:
        """Keep a value."""
        self._values.append((now_s, value))

    def recent(self, *, now_s: float) -> list[float]:
        """Return the window's values, oldest first."""
        while self._values and self._values[0][0] < now_s - self._window_s:
            self._values.popleft()
        return [value for _, value in self._values]


class Histograms:
    """Growth of workers' histograms."""

    def __init__(self, *, window_s: float) -> None:
        self._window_s = window_s
        self._parts: deque[tuple[float, Histogram]] = deque()

    def add(self, growth: Histogram, *, now_s: float) -> None:
        """Keep what one worker's histogram grew by since its last scrape."""
        self._drop_old(now_s)  # here too: perhaps nobody ever asks
        if growth.count > 0:
            self._parts.append((now_s, growth))

    def recent(self, *, now_s: float) -> Histogram:
        """Return the window's growth, all workers together."""
        self._drop_old(now_s)
        return combined(part for _, part in self._parts)

    def _drop_old(self, now_s: float) -> None:
        while self._parts and self._parts[0][0] < now_s - self._window_s:
            self._parts.popleft()


def combined(parts: Iterable[Histogram]) -> Histogram:
    """Add histograms up; where their buckets differ, each keeps its own bounds."""
    per_bound: dict[float, float] = {}
    total = 0.0
    for part in parts:
        total += part.sum
        below = 0.0
        for bound, count in zip(part.bounds, part.counts, strict=True):
            per_bound[bound] = per_bound.get(bound, 0.0) + count - below
            below = count
    ordered = sorted(per_bound.items())
    return Histogram(
        bounds=tuple(bound for bound, _ in ordered), counts=tuple(accumulate(n for _, n in ordered)), sum=total
    )


def percentiles_of(values: list[float], *, name: str) -> Percentiles:
    """Return exact percentiles by nearest rank."""
    if not values:
        return _nothing(f"no {name} in the window")
    ordered = sorted(values)
    last = len(ordered) - 1
    figures = {level: ordered[min(last, int(share * len(ordered)))] for level, share in PERCENTILES.items()}
    return Percentiles(count=len(ordered), mean=sum(ordered) / len(ordered), **figures)


def percentiles_in(histogram: Histogram, *, name: str) -> Percentiles:
    """Return percentiles interpolated within buckets; one above the last finite bound is unknown.

    Buckets are coarse (vLLM has none between 25 and 50 ms), and the middle of one can be far from its values. The
    histogram's sum tells their mean: positions within all buckets are bent alike, by a power, so that the mean is met.
    """
    if histogram.count <= 0:
        return _nothing(f"no {name} in the window")
    bend = _bend(histogram)
    figures = {level: _quantile(histogram, share, bend, name) for level, share in PERCENTILES.items()}
    return Percentiles(count=round(histogram.count), mean=histogram.sum / histogram.count, **figures)


def mean_of(total: float, count: float, *, name: str) -> Figure:
    """Return total over count, unknown if nothing was counted."""
    return total / count if count > 0 else Unknown(f"no {name} in the window")


def typical(histogram: Histogram) -> list[tuple[float, float]]:
    """Return (value, count) of each bucket above the one of 1, such that the histogram's mean is met.

    Answers of one token are left out: nearly all of those are prefill legs.
    """
    buckets = [one for one in _buckets(histogram) if one[1] > 1.0 and one[3] > 0]
    ones = next((count for bound, count in zip(histogram.bounds, histogram.counts, strict=True) if bound == 1.0), 0.0)
    least = sum(within * lower for lower, _, _, within in buckets)
    room = sum(within * (upper - lower) for lower, upper, _, within in buckets if math.isfinite(upper))
    share = min(1.0, max(0.0, (histogram.sum - ones - least) / room)) if room > 0 else 0.0
    return [
        (lower + share * (upper - lower) if math.isfinite(upper) else lower, within)
        for lower, upper, _, within in buckets
    ]


def _buckets(histogram: Histogram) -> Iterable[tuple[float, float, float, float]]:
    """Yield (lower bound, upper bound, values below, values within)."""
    lower, below = 0.0, 0.0
    for bound, count in zip(histogram.bounds, histogram.counts, strict=True):
        yield lower, bound, below, count - below
        lower, below = bound, count


def _bend(histogram: Histogram) -> float:
    """Return the power by which positions within buckets meet the histogram's mean; 1 where no power can."""
    buckets = list(_buckets(histogram))
    if any(math.isinf(upper) and within > 0 for _, upper, _, within in buckets):
        return 1.0
    least = sum(within * lower for lower, _, _, within in buckets)
    room = sum(within * (upper - lower) for lower, upper, _, within in buckets if math.isfinite(upper))
    share = (histogram.sum - least) / room if room > 0 else 0.5
    return 1.0 / share - 1.0 if 0.0 < share < 1.0 else 1.0


def _quantile(histogram: Histogram, share: float, bend: float, name: str) -> Figure:
    rank = share * histogram.count
    for lower, upper, below, within in _buckets(histogram):
        if below + within >= rank and within > 0:
            if math.isinf(upper):
                return Unknown(f"{name} lies above the workers' last bucket, {lower:g}")
            return float(lower + (upper - lower) * ((rank - below) / within) ** bend)
    return Unknown(f"{name} has a histogram without a last bucket")


def _nothing(why: str) -> Percentiles:
    unknown = Unknown(why)
    return Percentiles(p50=unknown, p90=unknown, p95=unknown, p99=unknown, count=0, mean=unknown)
