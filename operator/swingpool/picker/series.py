"""Counters and histograms that cost a request next to nothing, shown to Prometheus only when it asks.

A request counts in a dozen series. The client library looks each of them up by its labels, takes locks that one event
loop does not need, and walks through a histogram's buckets; here it is one look into a dictionary and one addition.
"""

from bisect import bisect_left
from collections.abc import Iterator, Sequence

from prometheus_client.core import CounterMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector


class Count:
    """One series that only grows."""

    __slots__ = ("value",)

    def __init__(self) -> None:
        self.value = 0.0

    def inc(self, amount: float = 1.0) -> None:
        """Add to it."""
        self.value += amount


class Distribution:
    """One series of a histogram.

    Args:
        bounds: upper bounds of the buckets, ascending, the last of them finite.
    """

    __slots__ = ("_bounds", "counts", "sum")

    def __init__(self, bounds: Sequence[float]) -> None:
        self._bounds = bounds
        self.counts = [0] * (len(bounds) + 1)
        """Values by bucket, each in one bucket only."""
        self.sum = 0.0

    def observe(self, value: float) -> None:
        """Count a value."""
        self.counts[bisect_left(self._bounds, value)] += 1
        self.sum += value

    def buckets(self) -> list[tuple[str, float]]:
        """Return the buckets as Prometheus has them: each with all below it."""
        found, below = [], 0
        for bound, count in zip((*self._bounds, float("inf")), self.counts, strict=True):
            below += count
            found.append(("+Inf" if bound == float("inf") else str(float(bound)), float(below)))
        return found


class Counts(Collector):
    """A counter, by the values of its labels.

    Args:
        name: without the suffix.
        text: what it counts.
        labels: names of its labels; without any there is one series, from the start.
    """

    def __init__(self, name: str, text: str, labels: Sequence[str] = ()) -> None:
        self._name, self._text, self._labels = name, text, labels
        self._series: dict[tuple[str, ...], Count] = {} if labels else {(): Count()}

    def labels(self, *values: str) -> Count:
        """Return the series of these values."""
        series = self._series.get(values)
        if series is None:
            series = self._series[values] = Count()
        return series

    def inc(self, amount: float = 1.0) -> None:
        """Add to the series without labels."""
        self._series[()].value += amount

    def collect(self) -> Iterator[Metric]:
        """Yield what was counted."""
        family = CounterMetricFamily(self._name, self._text, labels=self._labels)
        for values, series in self._series.items():
            family.add_metric(values, series.value)
        yield family


class Distributions(Collector):
    """A histogram, by the values of its labels.

    Args:
        name: with the unit.
        text: what it is of.
        labels: names of its labels; without any there is one series, from the start.
        bounds: upper bounds of the buckets, ascending, the last of them finite.
    """

    def __init__(self, name: str, text: str, labels: Sequence[str] = (), *, bounds: Sequence[float]) -> None:
        self._name, self._text, self._labels, self._bounds = name, text, labels, bounds
        self._series: dict[tuple[str, ...], Distribution] = {} if labels else {(): Distribution(bounds)}

    def labels(self, *values: str) -> Distribution:
        """Return the series of these values."""
        series = self._series.get(values)
        if series is None:
            series = self._series[values] = Distribution(self._bounds)
        return series

    def observe(self, value: float) -> None:
        """Count a value in the series without labels."""
        self._series[()].observe(value)

    def collect(self) -> Iterator[Metric]:
        """Yield what was counted."""
        family = HistogramMetricFamily(self._name, self._text, labels=self._labels)
        for values, series in self._series.items():
            family.add_metric(values, buckets=series.buckets(), sum_value=series.sum)
        yield family
