"""All plans one move away from a plan, judged at once: one worker more, one less, or one for another.

`totals` says the same of a single plan, slowly and in words; tests hold the two together. The search improves plans by
these tables, and the reasons of an answer are read from them.
"""

from bisect import bisect_right
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np

from swingpool_control.sizing.programme.arrays import Arrays, Flags, Reals, RoleArrays, Wholes
from swingpool_control.sizing.programme.slack import UNCOVERED, UNCOVERED_EACH, UNSPARED, UNSTAFFED
from swingpool_control.sizing.programme.totals import STARVED

NOTHING = -1
"""Index of the place that a worker comes from, or goes to, if it is added, or taken away."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Moves:
    """Plans after each move: `[i, j]` takes a worker from place i and gives one to place j; the last is no place."""

    possible: Flags
    """Whether there is a worker to take and room in the pool that gains one."""
    over: Reals
    """By how much budgets, as shares of them, and the most workers of pools are exceeded; 0 if all hold."""
    missed: Reals
    """How much of what is needed is missed, weighed as `slack` says; 0 if all is kept but links."""
    objective: Reals
    load: tuple[Reals, ...]
    """By role, as in `ROLES`."""


class Neighbourhood:
    """The neighbours of any plan.

    Args:
        arrays: the problem.
    """

    def __init__(self, arrays: Arrays) -> None:
        self.arrays = arrays
        self.places = arrays.places
        self._pool = arrays.pool
        self._same_pool: Flags = self._pool[:, None] == self._pool[None, :]
        self._roles = tuple(_Role(role, len(arrays.places) + 1) for role in arrays.roles)
        self._shape = (len(arrays.places) + 1, len(arrays.places) + 1)
        self._unit = np.append(arrays.unit, 0.0)

    def moves(self, serving: Wholes) -> Moves:
        """Return the neighbours of a plan.

        Args:
            serving: workers by place.
        """
        arrays = self.arrays
        counts = arrays.idle + np.bincount(self._pool, weights=serving, minlength=len(arrays.idle)).astype(np.int64)
        missed = UNSTAFFED * self._lacking(counts)
        worst: Reals = np.zeros(self._shape)
        load = []
        for role in self._roles:
            here = role.load(serving)
            share = _missing(here)
            missed += UNCOVERED_EACH * share
            if role.may_be_empty(serving):
                missed += UNSTAFFED * role.is_empty(serving)
            if arrays.problem.spare_worker:
                missed += UNSPARED * role.spare(serving)
            np.maximum(worst, share, out=worst)
            load.append(here)
        missed += UNCOVERED * worst
        unit = self._unit
        objective = arrays.fixed + float(arrays.unit @ serving) + unit[None, :] - unit[:, None]
        return Moves(
            possible=self._possible(serving, counts),
            over=self._over(counts) + self._beyond(counts),
            missed=missed,
            objective=objective,
            load=tuple(load),
        )

    def nearest(self, by_place: Mapping[tuple[str, str], float]) -> Wholes:
        """Return a plan as an array over places, fractions rounded."""
        return self.arrays.nearest(by_place)

    def by_place(self, serving: Wholes) -> dict[tuple[str, str], int]:
        """Return an array over places as a plan."""
        return self.arrays.by_place(serving)

    def _after(self, of: Callable[[Wholes], Wholes], counts: Wholes) -> Reals:
        """A figure of each pool's number of workers, summed over pools, after each move."""
        now = of(counts)
        less, more = of(counts - 1) - now, of(counts + 1) - now
        change = np.append(less[self._pool], 0.0)[:, None] + np.append(more[self._pool], 0.0)[None, :]
        change[:-1, :-1][self._same_pool] = 0.0
        total: Reals = change + int(now.sum())
        return total

    def _lacking(self, counts: Wholes) -> Reals:
        """Workers lacking to the fewest of pools, after each move."""
        fewest = self.arrays.fewest
        if (counts > fewest).all():
            return np.zeros(self._shape)
        return self._after(lambda counts: np.maximum(0, fewest - counts), counts)

    def _beyond(self, counts: Wholes) -> Reals:
        """Workers beyond the most of pools, after each move."""
        most = self.arrays.most
        if (counts < most).all():
            return np.zeros(self._shape)
        return self._after(lambda counts: np.maximum(0, counts - most), counts)

    def _possible(self, serving: Wholes, counts: Wholes) -> Flags:
        some = np.append(serving > 0, True)
        room = np.append((counts < self.arrays.most)[self._pool], True)
        possible: Flags = some[:, None] & room[None, :]
        possible[:-1, :-1] |= self._same_pool & some[:-1, None]
        return possible

    def _over(self, counts: Wholes) -> Reals:
        """By how much budgets are broken after each move."""
        ends = [counts + step + np.where(counts + step > 0, self.arrays.surge, 0) for step in (0, -1, 1)]
        ways = [np.maximum(end, self.arrays.present) for end in ends]
        broken: Reals = np.zeros(self._shape)
        for (each, limit), (now, less, more) in ((self.arrays.way, ways), (self.arrays.end, ends)):
            free = limit * (1 + 1e-9) + 1e-9 - each @ now
            gains = each * (more - now)
            near = gains.max(axis=1, initial=0.0) > free
            if not near.any():
                continue
            change = np.zeros((int(near.sum()), *self._shape))
            change[:, :-1, :] += (each[near] * (less - now))[:, self._pool, None]
            change[:, :, :-1] += gains[near][:, None, self._pool]
            change[:, :-1, :-1][:, self._same_pool] = 0.0
            change -= free[near, None, None]
            np.maximum(change, 0.0, out=change)
            broken += np.tensordot(1 / np.maximum(limit[near], 1.0), change, axes=1)
        return broken


class _Role:
    """The places of one role: a block of rows and columns in every table."""

    def __init__(self, arrays: RoleArrays, size: int) -> None:
        self._block = arrays.block
        self._size = size
        self._need = arrays.need
        self._kv_need = arrays.kv_need
        self._kv = arrays.kv
        self._starts = arrays.starts
        self._rates = arrays.rates

    def may_be_empty(self, serving: Wholes) -> bool:
        """Tell whether any move leaves the role without a worker."""
        return int(serving[self._block].sum()) <= 1

    def is_empty(self, serving: Wholes) -> Flags:
        """Tell whether the role has no worker after each move."""
        return self._workers(serving) <= 0

    def load(self, serving: Wholes) -> Reals:
        """Return the role's load after each move."""
        mine = serving[self._block]
        workers = int(mine.sum())
        load = _over(self._need, self._sums(mine, workers, lost=0))
        if self._kv_need > 0:
            load = np.maximum(load, _over(self._kv_need, self._sums(mine, None, lost=0)))
        return load

    def spare(self, serving: Wholes) -> Reals:
        """Return the share that is missing after each move and the loss of the worker that adds most."""
        mine = serving[self._block]
        workers = int(mine.sum())
        load = _over(self._need, self._sums(mine, workers, lost=1))
        if self._kv_need > 0:
            load = np.maximum(load, _over(self._kv_need, self._sums(mine, None, lost=1)))
        return np.where(self._workers(serving) < 2, 1.0, _missing(load))

    def _workers(self, serving: Wholes) -> Wholes:
        """Workers of the role after each move."""
        workers, block = int(serving[self._block].sum()), self._block
        table = np.full((self._size, self._size), workers, dtype=np.int64)
        table[block, :] = workers - 1
        table[:, block] = workers + 1
        table[block, block] = workers
        return table

    def _sums(self, mine: Wholes, workers: int | None, *, lost: int) -> Reals:
        """What the role's workers add up to after each move, without the best one if one is lost.

        Args:
            mine: workers by place of the role.
            workers: how many they are, for rates; None for KV cache.
            lost: 1 if a worker is lost, else 0.
        """
        block = self._block
        same, less, more = (self._kv if workers is None else self._rate(workers + delta - lost) for delta in (0, -1, 1))
        now, fewer, greater = float(same @ mine), float(less @ mine), float(more @ mine)
        table = np.empty((self._size, self._size))
        if not lost:
            table.fill(now)
            table[block, :] = (fewer - less)[:, None]
            table[:, block] = greater + more
            table[block, block] = now + same - same[:, None]
            return table
        left = _best_left(same, mine)
        table.fill(now - np.where(mine > 0, same, 0.0).max(initial=0.0))
        table[block, :] = (fewer - less - _best_left(less, mine))[:, None]
        table[:, block] = greater + more - np.maximum(np.where(mine > 0, more, 0.0).max(initial=0.0), more)
        table[block, block] = now + same - same[:, None] - np.maximum(left[:, None], same)
        return table

    def _rate(self, workers: int) -> Reals:
        """What a worker of each place adds to a role of so many."""
        step = bisect_right(self._starts, workers) - 1
        return self._rates[step] if step >= 0 else np.zeros(self._rates.shape[1])


def _best_left(adds: Reals, mine: Wholes) -> Reals:
    """The most that a worker adds of those that are left when one of each place is taken away."""
    there = np.where(mine > 0, adds, 0.0)
    alone = mine == 1
    best = np.full(len(there), there.max(initial=0.0))
    for place in np.flatnonzero(alone & (there >= best)):
        best[place] = np.delete(there, place).max(initial=0.0)
    return best


def _missing(load: Reals) -> Reals:
    """The share of a need that is not sustained at a load."""
    share = 1.0 - 1.0 / np.maximum(load, 1.0)
    share[share < 1e-9] = 0.0
    return share


def _over(need: float, have: Reals) -> Reals:
    """Need over what is there; `STARVED` without anything."""
    if need <= 0:
        return np.zeros(have.shape)
    return need / np.maximum(have, max(need / STARVED, 1e-30))
