"""How long requests take in the long run: exactly, for work that all workers share as if they were one.

A queue near saturation under bursts takes millions of requests to be what it will be in the long run; the sample that a
prediction follows is shorter. But how far the sample is off follows from the work that it had to wait for, whatever the
order and the batches: so the sample's work is compared with what is computed here.

The work that an arrival finds is the maximum of a random walk with steps of work less gap. Its distribution comes from
Spitzer's identity, on a grid, by four Fourier transforms (as Ackroyd, "Computing the waiting time distribution for the
G/G/1 queue by signal processing methods", 1980).
"""

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray
from scipy.special import gammaincc

Floats = NDArray[np.float64]

CELLS = 32
"""Cells of the grid in the mean work of a request."""
MOST_CELLS = 2**20
SCALES = 20.0
"""How many times the tail's and the gaps' scales the grid reaches: what lies beyond weighs a billionth."""


def sojourns(
    work: Floats, alone: Floats, weights: Floats, *, scv: float, load: float, levels: Sequence[float]
) -> list[float]:
    """Return percentiles of the work that arrivals find and of their own time after it, in units of a mean work.

    Args:
        work: of requests, in any unit.
        alone: how long each takes then, in units of the mean work.
        weights: how many have each.
        scv: squared coefficient of variation of the gaps, which follow a Gamma distribution.
        load: mean work over mean gap, below 1.
        levels: 0-1.
    """
    shares = weights / weights.sum()
    sizes = work / float(shares @ work)
    spread = scv + float(shares @ (sizes * sizes)) - 1.0
    reach = SCALES * (spread * load / (2 * (1 - load)) + float(sizes.max()) + 1.0) + float(alone.max())
    behind = SCALES * max(1.0, scv) / load
    cells = min(MOST_CELLS, 2 ** math.ceil(math.log2(CELLS * (reach + behind))))
    step = 1.0 / CELLS if cells < MOST_CELLS else (reach + behind) / cells
    found_work = _maximum(_gridded(sizes / step, shares, cells), _gaps(1.0 / (load * step), scv, cells))
    own = _gridded(alone / step, shares, cells)
    mass = np.fft.ifft(np.fft.fft(found_work) * np.fft.fft(own)).real
    below = np.cumsum(np.maximum(mass, 0.0))
    found = np.searchsorted(below, np.array(levels) * below[-1])
    return [float(at) * step for at in found.tolist()]


def found(gaps: Floats, work: Floats, alone: Floats) -> Floats:
    """Return for each arrival of a sample the work that it finds and its own time, in the unit of the gaps.

    Args:
        gaps: before each arrival.
        work: of each.
        alone: how long each takes then.
    """
    walk = np.concatenate([[0.0], np.cumsum(work[:-1] - gaps[1:])])
    return walk - np.minimum.accumulate(walk) + alone


def found_sojourns(gaps: Floats, work: Floats, alone: Floats, *, levels: Sequence[float], since: int) -> list[float]:
    """Return percentiles of `found` over the arrivals from number `since` on; levels 0-1."""
    return [float(one) for one in np.quantile(found(gaps, work, alone)[since:], levels)]


def _gridded(values: Floats, weights: Floats, cells: int) -> Floats:
    """Put values onto whole numbers, each on the two around it, so that the mean stays."""
    low = np.floor(values).astype(np.int64)
    high_part = values - low
    mass: Floats = np.zeros(cells)
    np.add.at(mass, low, weights * (1 - high_part))
    np.add.at(mass, low + 1, weights * high_part)
    return mass


def _gaps(mean: float, scv: float, cells: int) -> Floats:
    """Put a Gamma distribution onto whole numbers in the same way."""
    shape, edges = 1.0 / scv, np.arange(-1, cells + 1, dtype=np.float64)
    scaled = np.maximum(edges, 0.0) * shape / mean
    beyond = mean * gammaincc(shape + 1, scaled) - edges * gammaincc(shape, scaled)
    mass: Floats = beyond[:-2] - 2 * beyond[1:-1] + beyond[2:]
    return np.maximum(mass, 0.0)


def _maximum(up: Floats, down: Floats) -> Floats:
    """Return the distribution of the maximum of a walk that goes up and down by whole numbers, and down on average."""
    cells = len(up)
    places = np.arange(cells)
    down = down / down.sum()
    drift = float(places @ up - places @ down)
    turns = np.exp(2j * np.pi * places / cells)
    # 1 - step, over 1 - a step of one down, which adds nothing to the part above zero, and is zero where the other is.
    with np.errstate(divide="ignore", invalid="ignore"):
        ratio = (1 - np.fft.fft(up) * np.conj(np.fft.fft(down))) / (1 - turns)
    ratio[0] = -drift
    logarithm = -(np.log(np.abs(ratio)) + 1j * np.unwrap(np.angle(ratio)))
    above = np.fft.ifft(logarithm).real
    above[0] = 0.0
    above[cells // 2 :] = 0.0
    mass: Floats = np.fft.ifft(np.exp(np.fft.fft(above) - above.sum())).real
    return mass
