"""Many plans judged at once by the same rules as `totals` judges one: which keeps everything, but for links."""

import numpy as np

from swingpool_control.sizing.programme.arrays import Arrays, Flags, Reals, RoleArrays, Wholes
from swingpool_control.sizing.programme.totals import TOLERANCE

AT_ONCE = 256
"""How many plans are judged together at most, where only the first that keeps everything is looked for."""


class Plans:
    """Judges plans of one problem.

    Args:
        arrays: the problem.
    """

    def __init__(self, arrays: Arrays) -> None:
        self._arrays = arrays
        self._member = np.zeros((len(arrays.places), len(arrays.idle)))
        self._member[np.arange(len(arrays.places)), arrays.pool] = 1.0

    def first_kept(self, serving: Wholes) -> int | None:
        """Return the index of the first plan that keeps bounds, budgets, needs and, if asked for, the loss of a worker.

        Args:
            serving: workers by plan and place, none below zero.
        """
        plans = serving.astype(np.float64)
        # What is sustained is quicker to tell, and most plans fall short of it.
        able = np.flatnonzero(self._carry(plans))
        for start in range(0, len(able), AT_ONCE):
            some = able[start : start + AT_ONCE]
            kept = np.flatnonzero(self._fit(plans[some]))
            if len(kept):
                return int(some[kept[0]])
        return None

    def _fit(self, plans: Reals) -> Flags:
        """Tell which plans keep bounds and budgets."""
        arrays = self._arrays
        counts = plans @ self._member + arrays.idle
        fit: Flags = np.asarray(((counts >= arrays.fewest) & (counts <= arrays.most)).all(axis=1))
        ends = counts + np.where(counts > 0, arrays.surge, 0)
        for (each, limit), held in ((arrays.way, np.maximum(ends, arrays.present)), (arrays.end, ends)):
            if len(limit):
                fit &= (held @ each.T <= limit * (1 + 1e-9) + 1e-9).all(axis=1)
        return fit

    def _carry(self, plans: Reals) -> Flags:
        """Tell which plans have workers enough in both roles, also without the one they can least do without."""
        carry: Flags = np.ones(len(plans), dtype=bool)
        for role in self._arrays.roles:
            mine = plans[:, role.block]
            workers = mine.sum(axis=1)
            for lost in range(1 + int(self._arrays.problem.spare_worker)):
                carry &= workers > lost
                if role.need > 0:
                    carry &= self._sustained(role, mine, workers, lost) * (1 + TOLERANCE) >= role.need
                if role.kv_need > 0:
                    held: Reals = mine @ role.kv - lost * _most(mine, role.kv)
                    carry &= held * (1 + TOLERANCE) >= role.kv_need
        return carry

    @staticmethod
    def _sustained(role: RoleArrays, mine: Reals, workers: Reals, lost: int) -> Reals:
        """Requests per second by plan, without so many of the workers that add most."""
        if not len(role.starts):
            return np.zeros(len(mine))
        step = np.maximum(0, np.searchsorted(role.starts, workers - lost, side="right") - 1)
        have: Reals = (mine @ role.rates.T)[np.arange(len(mine)), step]
        return have - _most(mine, role.rates[step]) if lost else have


def _most(mine: Reals, adds: Reals) -> Reals:
    """The most that any of a plan's workers adds."""
    most: Reals = np.where(mine > 0, adds, 0.0).max(axis=1, initial=0.0)
    return most
