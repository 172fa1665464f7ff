"""Whole numbers of workers near fractional ones: the cheapest of many roundings that keeps everything.

A solution of the compact programme has few fractions, about as many as it has tight rows. So all ways to round them are
tried together, each also with one worker more somewhere: what whole numbers lose on the way, one worker mostly mends.
"""

import numpy as np

from swingpool_control.sizing.programme.arrays import Arrays, Reals, Wholes
from swingpool_control.sizing.programme.plans import Plans

FRACTION = 1e-6
"""Below this a number is whole."""
WAYS = 6
"""How many fractions are rounded both ways; others, if there are more, to the nearest."""


def rounded(arrays: Arrays, plans: Plans, workers: Reals) -> Wholes | None:
    """Return the cheapest rounding that keeps everything but links, by place; None if none does.

    Args:
        arrays: the problem.
        plans: judges its plans.
        workers: fractional numbers by place.
    """
    tried = _all(workers)
    cost = tried @ arrays.unit
    tried = tried[np.argsort(cost, kind="stable")]
    kept = plans.first_kept(tried)
    return None if kept is None else tried[kept]


def _all(workers: Reals) -> Wholes:
    """Return roundings, one a row."""
    down = np.maximum(0, np.floor(workers + FRACTION)).astype(np.int64)
    part = workers - down
    fractional = np.flatnonzero(part > FRACTION)
    # Of more than are tried, those are most in doubt that lie near a half.
    doubtful = fractional[np.argsort(np.abs(part[fractional] - 0.5), kind="stable")][:WAYS]
    near = down + (part >= 0.5)
    near[doubtful] = down[doubtful]
    ways = np.arange(2 ** len(doubtful))[:, None] >> np.arange(len(doubtful)) & 1
    every = np.repeat(near[None, :], len(ways), axis=0)
    every[:, doubtful] += ways
    one_more = np.vstack([np.zeros((1, len(workers)), dtype=np.int64), np.eye(len(workers), dtype=np.int64)])
    both: Wholes = (every[:, None, :] + one_more[None, :, :]).reshape(-1, len(workers))
    return both
