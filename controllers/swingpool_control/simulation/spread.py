"""Times as they spread around what the performance model says, which knows no jitter.

Each is multiplied by one of a profile's factors, all equally likely. Nothing is drawn: every factor has its turn, so
that a run is the same each time. Times between tokens are spread when they are counted: as many values remain as there
were. Prompts are while they are computed, since what waits behind one waits as long as it takes.
"""

from collections.abc import Sequence

from swingpool_control.simulation.histogram import Histogram, bucket_of

_ORIGIN = bucket_of(1.0)


def _stride(size: int) -> int:
    """Not one after another: values that come few at a time would meet low factors first, and high ones later."""
    return next(step for step in (7, 11, 1) if step == 1 or size % step)


class Turns:
    """Factors, one after the other.

    Args:
        factors: above zero; none for always 1.
    """

    def __init__(self, factors: Sequence[float]) -> None:
        self._factors = tuple(factors) or (1.0,)
        self._stride = _stride(len(self._factors))
        # The middle one first: who looks at one prompt alone sees what the model says.
        self._turn = len(self._factors) // 2

    def next(self) -> float:
        """Return the factor whose turn it is."""
        factor = self._factors[self._turn]
        self._turn = (self._turn + self._stride) % len(self._factors)
        return factor


class Spread:
    """Spreads what is counted.

    Args:
        factors: above zero, one at least.
    """

    def __init__(self, factors: Sequence[float]) -> None:
        self._shifts = [bucket_of(factor) - _ORIGIN for factor in factors]
        self._turn = 0
        self._stride = _stride(len(self._shifts))

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
