"""When a time has been measured often enough: the median and how sure it is.

The median, because a machine that others use makes single measurements late and never early; its standard error is that
of the median of a normal sample, 1.2533 s/sqrt(n), with the spread s from the median absolute deviation.
"""

import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

LEAST_REPEATS = 5
MOST_REPEATS = 15
TOLERANCE = 0.03
"""Half the 95 % interval, of the median: tight enough."""

FACTORS = 50
"""By which a spread is told: the first and the last are the 1st and the 99th percentile, and one is the 95th."""

FEWEST_OF_SPREAD = 2 * FACTORS

LEAST_FACTOR = 0.01
"""Tokens that come together have no time between them; a factor is above zero all the same."""

_NORMAL_OF_MAD = 1.4826
_MEDIAN_OF_MEAN = 1.2533
_Z95 = 1.96


@dataclass(frozen=True, slots=True, kw_only=True)
class Estimate:
    """A repeated time."""

    seconds: float
    """Median."""
    half_interval: float
    """Half the 95 % interval, as a fraction of the median."""
    repeats: int


def estimate(samples: Sequence[float]) -> Estimate:
    """Return the estimate from samples, of which there must be one at least."""
    median = statistics.median(samples)
    deviation = statistics.median(abs(sample - median) for sample in samples)
    spread = _NORMAL_OF_MAD * deviation
    half = _Z95 * _MEDIAN_OF_MEAN * spread / len(samples) ** 0.5
    return Estimate(seconds=median, half_interval=half / median if median else 0.0, repeats=len(samples))


def enough(samples: Sequence[float], *, tolerance: float = TOLERANCE, least: int = LEAST_REPEATS) -> bool:
    """Whether no further sample is needed, or none more may be taken."""
    if len(samples) < least:
        return False
    return len(samples) >= MOST_REPEATS or estimate(samples).half_interval <= tolerance


def likely(values: Sequence[float]) -> tuple[float, ...]:
    """Return so many of the values, in their order, that each is as likely as the others; all of them of fewer."""
    ordered, count = sorted(values), min(FACTORS, len(values))
    return tuple(ordered[int((index + 0.5) / count * len(ordered))] for index in range(count))


def spread(gaps_s: Sequence[float]) -> tuple[float, ...]:
    """Return how values spread around their median: as factors above zero, each as likely as the others.

    None of too few values.
    """
    if len(gaps_s) < FEWEST_OF_SPREAD:
        return ()
    median = statistics.median(gaps_s)
    return tuple(max(LEAST_FACTOR, value / median) for value in likely(gaps_s)) if median > 0 else ()


def pooled_spread(several: Iterable[Sequence[float]]) -> tuple[float, ...]:
    """Return how what is taken from any of several spreads around the median of that one; none of none.

    Not the middle of their spreads: that would cut the tails.
    """
    return likely([factor for gaps_s in several for factor in spread(gaps_s)])
