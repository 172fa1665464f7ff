"""Latencies of any number of requests in memory that does not grow: counts in buckets that widen with the value."""

import math
from collections.abc import Iterable
from typing import Final

RATIO: Final = 1.005
"""Upper over lower bound of a bucket: a percentile is exact to a quarter of a percent."""

LEAST_S: Final = 1e-6
"""All that is shorter counts as this."""

_PER_LOG: Final = 1.0 / math.log(RATIO)


def bucket_of(value: float) -> int:
    """Return the number of the bucket that counts a value."""
    return math.floor(math.log(value if value > LEAST_S else LEAST_S) * _PER_LOG)


class Histogram:
    """Counts of values above zero."""

    __slots__ = ("buckets", "count", "largest", "total")

    def __init__(self) -> None:
        self.buckets: dict[int, int] = {}
        self.count = 0
        self.total = 0.0
        self.largest = 0.0

    def add(self, value: float, count: int = 1) -> None:
        """Count a value so many times."""
        self.add_alike(value, value, total=value * count, count=count)

    def add_alike(self, least: float, most: float, *, total: float, count: int) -> None:
        """Count so many values that fall into one bucket, of which the least, the most and the sum are known."""
        bucket = bucket_of(least)
        self.buckets[bucket] = self.buckets.get(bucket, 0) + count
        self.count += count
        self.total += total
        self.largest = max(self.largest, most)

    def include(self, part: "Histogram") -> None:
        """Count all that another one has counted."""
        for bucket, count in part.buckets.items():
            self.buckets[bucket] = self.buckets.get(bucket, 0) + count
        self.count += part.count
        self.total += part.total
        self.largest = max(self.largest, part.largest)

    def add_bucket(self, bucket: int, count: int) -> None:
        """Count values of a bucket of which no more is known."""
        value = math.exp((bucket + 0.5) / _PER_LOG)
        self.buckets[bucket] = self.buckets.get(bucket, 0) + count
        self.count += count
        self.total += value * count
        self.largest = max(self.largest, value)

    def at_most(self, limit: float) -> int:
        """Return how many values are at or under a limit, to the width of a bucket."""
        last = bucket_of(limit)
        return sum(count for bucket, count in self.buckets.items() if bucket <= last)

    @property
    def mean(self) -> float | None:
        """The mean, which is exact; None of nothing."""
        return self.total / self.count if self.count else None

    def percentiles(self, shares: Iterable[float]) -> list[float | None]:
        """Return percentiles by nearest rank, one for each share in ascending order, 0-1; None of nothing."""
        if not self.count:
            return [None for _ in shares]
        found: list[float | None] = []
        ordered = iter(sorted(self.buckets.items()))
        bucket, below = 0, 0
        for share in shares:
            rank = max(1, math.ceil(share * self.count))
            while below < rank:
                bucket, held = next(ordered)
                below += held
            found.append(min(math.exp((bucket + 0.5) / _PER_LOG), self.largest))
        return found


def merged(parts: Iterable[Histogram]) -> Histogram:
    """Return the counts of all parts together."""
    whole = Histogram()
    for part in parts:
        whole.include(part)
    return whole
