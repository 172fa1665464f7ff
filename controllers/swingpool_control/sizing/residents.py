"""How many sequences decode workers hold in the long run, beyond what a sample of requests shows.

More sequences make steps longer, so each stays longer: a batch forgets its past the more slowly the more it is
loaded, and a sample that is long for the queue before prefill may see only a few of a batch's ups and downs. Close to
its mean a batch goes back to it exponentially, and each arrival puts it up by one: that is shot noise. Its moments
under renewal arrivals are known exactly, so those that the sample's own arrivals give it are compared with those of the
long run. What the queue before prefill evens out of that does not come to decode workers, neither in the sample nor in
the long run.
"""

import math
from collections.abc import Sequence

import numpy as np
from scipy.special import gammaincinv, ndtri

_LOOKS = 4000
"""At so many moments the sample's noise is looked at."""
_SYMMETRIC = 1e-3
"""Skewness up to which noise is taken as normal."""


def beyond_sample(
    arrivals_s: Sequence[float],
    ready_s: Sequence[float],
    *,
    scv: float,
    fades_s: float,
    levels: Sequence[float],
    since: int,
) -> list[float]:
    """Return by how many sequences percentiles over time are higher in the long run than with a sample's arrivals.

    Args:
        arrivals_s: when each request of the sample arrives, ascending.
        ready_s: when each is ready for decode workers, ascending.
        scv: squared coefficient of variation of the gaps, which follow a Gamma distribution.
        fades_s: time in which a difference from the mean falls to 1/e.
        levels: 0-1.
        since: number of the first arrival that counts.
    """
    rate = len(arrivals_s) / max(arrivals_s[-1], 1e-12)
    short, evened = (_found(times_s, rate * fades_s, fades_s, since) for times_s in (arrivals_s, ready_s))
    comes = min(1.0, evened[1] / short[1])
    long = percentiles(*moments(rate * fades_s, scv), levels)
    return [comes * (one - other) for one, other in zip(long, percentiles(*short, levels), strict=True)]


def moments(mean: float, scv: float) -> tuple[float, float, float]:
    """Return mean, deviation and skewness of shot noise that each arrival raises by one.

    The noise just after an arrival is one more than what is left of that after the arrival before; the moments follow.

    Args:
        mean: arrivals in the time in which it fades.
        scv: squared coefficient of variation of the gaps.
    """
    fallen = [-math.log1p(order * scv / mean) / scv for order in (1, 2, 3)]
    left, lost = [math.exp(one) for one in fallen], [-math.expm1(one) for one in fallen]
    first = 1.0 / lost[0]
    second = (1.0 + 2.0 * left[0] * first) / lost[1]
    third = (1.0 + 3.0 * left[0] * first + 3.0 * left[1] * second) / lost[2]
    square, cube = second * lost[1] * mean / 2.0, third * lost[2] * mean / 3.0
    deviation = math.sqrt(max(1e-12, square - mean * mean))
    return mean, deviation, (cube - 3.0 * mean * square + 2.0 * mean**3) / deviation**3


def percentiles(mean: float, deviation: float, skewness: float, levels: Sequence[float]) -> list[float]:
    """Return percentiles of a shifted Gamma distribution of these moments; levels 0-1."""
    if skewness < _SYMMETRIC:
        return [mean + deviation * float(ndtri(level)) for level in levels]
    shape = 4.0 / skewness**2
    return [mean + deviation * (float(gammaincinv(shape, level)) - shape) / math.sqrt(shape) for level in levels]


def _found(arrivals_s: Sequence[float], mean: float, fades_s: float, since: int) -> tuple[float, float, float]:
    """Return the same moments of the noise that a sample's arrivals make, which begins at its mean."""
    noise, before_s = mean, 0.0
    after = []
    for at_s in arrivals_s:
        noise = 1.0 + noise * math.exp((before_s - at_s) / fades_s)
        before_s = at_s
        after.append(noise)
    looks_s = np.linspace(arrivals_s[since], arrivals_s[-1], _LOOKS)
    last = np.searchsorted(np.array(arrivals_s), looks_s, side="right") - 1
    seen = np.array(after)[last] * np.exp((np.array(arrivals_s)[last] - looks_s) / fades_s)
    off, deviation = seen - seen.mean(), max(1e-6, float(seen.std()))
    return float(seen.mean()), deviation, float((off**3).mean()) / deviation**3
