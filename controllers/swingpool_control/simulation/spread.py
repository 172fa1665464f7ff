"""Times between tokens as they spread around what the performance model says, which knows no jitter.

Each is multiplied by one of a profile's factors, all equally likely. Nothing is drawn: every factor has its turn, so
that a run is the same each time, and as many values remain as there were.
"""

from collections.abc import Sequence

from swingpool_control.simulation.histogram import Histogram, bucket_of

_ORIGIN = bucket_of(1.0)


class Spread:
    """Spreads what is counted.

    Args:
        factors: above zero, one at least.
    """

    def __init__(self, factors: Sequence[float]) -> None:
        self._shifts = [bucket_of(factor) - _ORIGIN for factor in factors]
        self._turn = 0
        # Not one after another: values that come few at a time would meet low factors first, and high ones later.
        self._stride = next(step for step in (7, 11, 1) if step == 1 or len(self._shifts) % step)

    def over(self, counted: Histogram) -> Histogram:
        """Return counts with every value multiplied by the factor whose turn it is."""
        found = Histogram()
        size = len(self._shifts)
        for bucket, count in counted.buckets.items():
            each, rest = divmod(count, size)
            shares = [each] * size
            for _ in range(rest):
                shares[self._turn % size] += 1
                self._turn += self._stride
            for shift, share in zip(self._shifts, shares, strict=True):
                if share:
                    found.add_bucket(bucket + shift, share)
        return found
