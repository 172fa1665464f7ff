"""The same requests each time: fixed draws of gaps and lengths, so that a prediction is a function of its inputs.

Every draw stands for an equal part of its distribution, in an order that is shuffled once and for all: the mean is met
exactly, bursts stay, and two predictions that differ in load differ for no other reason.
"""

from dataclasses import dataclass
from functools import lru_cache
from itertools import accumulate

import numpy as np
from numpy.typing import NDArray
from scipy.special import gammaincinv

from swingpool_control.sizing.traffic import Lengths

_SEED = 20
LEAST_SCV, MOST_SCV = 0.01, 64.0
"""Arrivals that are more regular, or burstier, count as this."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Draws:
    """Requests in the order of their arrival, with a mean gap of 1 between them."""

    arrivals: tuple[float, ...]
    bins: tuple[int, ...]
    """Index into the bins of the sketch that they were drawn from."""


@lru_cache(maxsize=32)
def draws(lengths: Lengths, *, scv: float, count: int) -> Draws:
    """Return requests.

    Args:
        lengths: their lengths.
        scv: squared coefficient of variation of the gaps, which follow a Gamma distribution; 1 is Poisson.
        count: how many, 1 or more.
    """
    shape = 1.0 / min(max(scv, LEAST_SCV), MOST_SCV)
    gaps = gammaincinv(shape, _evenly(count, stream=0)) / shape
    edges = list(accumulate(one.weight for one in lengths.bins))
    drawn = np.searchsorted(np.array(edges) / edges[-1], _evenly(count, stream=1), side="right")
    bins = np.minimum(drawn, len(edges) - 1)
    return Draws(arrivals=tuple(np.cumsum(gaps).tolist()), bins=tuple(bins.tolist()))


def uniform(count: int, *, stream: int) -> list[float]:
    """Return numbers in (0, 1), evenly spread and shuffled; another stream, another order."""
    values: list[float] = _evenly(count, stream=stream).tolist()
    return values


def _evenly(count: int, *, stream: int) -> NDArray[np.float64]:
    order = np.random.Generator(np.random.PCG64([_SEED, stream])).permutation(count)
    return (order + 0.5) / count
