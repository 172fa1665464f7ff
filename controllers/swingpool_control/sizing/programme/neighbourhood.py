"""All plans one move away from a plan, judged at once: one worker more, one less, or one for another.

`totals` says the same of a single plan, slowly and in words; tests hold the two together. The search improves plans by
these tables, and the reasons of an answer are read from them.
"""

from bisect import bisect_right
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from swingpool_control import names
from swingpool_control.sizing.programme import spending
from swingpool_control.sizing.programme.problem import ROLES, Problem
from swingpool_control.sizing.programme.slack import UNCOVERED, UNCOVERED_EACH, UNSPARED, UNSTAFFED
from swingpool_control.sizing.programme.totals import STARVED

Reals = npt.NDArray[np.float64]
Wholes = npt.NDArray[np.int64]
Flags = npt.NDArray[np.bool_]

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
    """A problem as arrays over places: one place for each role of each pool, role by role.

    Args:
        problem: the problem.
    """

    def __init__(self, problem: Problem) -> None:
        self._problem = problem
        self.places = [(pool, role) for role in ROLES for pool in problem.pools if role in pool.rates]
        index = {pool.name: at for at, pool in enumerate(problem.pools)}
        self._pool: Wholes = np.array([index[pool.name] for pool, _ in self.places])
        self._same_pool: Flags = self._pool[:, None] == self._pool[None, :]
        self._idle, self._fewest, self._most = (self._by_pool(name) for name in ("idle", "fewest", "most"))
        self._surge, self._present = self._by_pool("surge"), self._by_pool("present")
        self._roles = tuple(_Role(self, problem, role) for role in ROLES)
        self.unit: Reals = np.array(
            [spending.objective_per_worker(problem.weights, pool, role) for pool, role in self.places]
        )
        self.fixed = sum(
            pool.idle * spending.objective_per_worker(problem.weights, pool, None) for pool in problem.pools
        )
        """Objective of idle workers."""
        self._budgets(problem)

    def moves(self, serving: Wholes) -> Moves:
        """Return the neighbours of a plan.

        Args:
            serving: workers by place.
        """
        counts = self._idle + np.bincount(self._pool, weights=serving, minlength=len(self._idle)).astype(np.int64)
        missed = UNSTAFFED * self._after(self._lacking, counts)
        worst = np.zeros(missed.shape)
        load = []
        for role in self._roles:
            here = role.load(serving)
            share = _missing(here)
            missed += UNCOVERED_EACH * share
            missed += UNSTAFFED * role.is_empty(serving)
            if self._problem.spare_worker:
                missed += UNSPARED * role.spare(serving)
            np.maximum(worst, share, out=worst)
            load.append(here)
        missed += UNCOVERED * worst
        unit = np.append(self.unit, 0.0)
        objective = self.fixed + float(self.unit @ serving) + unit[None, :] - unit[:, None]
        return Moves(
            possible=self._possible(serving, counts),
            over=self._over(counts) + self._after(self._beyond, counts),
            missed=missed,
            objective=objective,
            load=tuple(load),
        )

    def nearest(self, by_place: Mapping[tuple[str, str], float]) -> Wholes:
        """Return a plan as an array over places, fractions rounded."""
        return np.array([round(by_place.get((pool.name, role), 0)) for pool, role in self.places], dtype=np.int64)

    def by_place(self, serving: Wholes) -> dict[tuple[str, str], int]:
        """Return an array over places as a plan."""
        return {(pool.name, role): int(serving[at]) for at, (pool, role) in enumerate(self.places)}

    def _by_pool(self, name: str) -> Wholes:
        return np.array([getattr(pool, name) for pool in self._problem.pools], dtype=np.int64)

    def _budgets(self, problem: Problem) -> None:
        known = tuple(spending.budgets(problem))
        each: Reals = np.array(
            [[budget.per_worker.get(pool.name, 0.0) for pool in problem.pools] for budget in known], dtype=np.float64
        ).reshape(len(known), len(problem.pools))
        limit: Reals = np.array([budget.limit for budget in known], dtype=np.float64)
        ends = np.array([spending.at_least(pool)[0] for pool in problem.pools], dtype=np.int64)
        ways = np.array([spending.at_least(pool)[1] for pool in problem.pools], dtype=np.int64)
        on_end, on_way = np.maximum(limit, each @ ends), np.maximum(limit, each @ ways)
        over = on_way > on_end
        self._way = (each, on_way)
        self._end = (each[over], on_end[over])
        """Only where what exists breaks a budget: elsewhere the way is at least the end, and within the same limit."""

    def _after(self, of: Callable[[Wholes], Wholes], counts: Wholes) -> Reals:
        """A figure of each pool's number of workers, summed over pools, after each move."""
        now = of(counts)
        less, more = of(counts - 1) - now, of(counts + 1) - now
        change = np.append(less[self._pool], 0.0)[:, None] + np.append(more[self._pool], 0.0)[None, :]
        change[:-1, :-1][self._same_pool] = 0.0
        total: Reals = change + int(now.sum())
        return total

    def _lacking(self, counts: Wholes) -> Wholes:
        lacking: Wholes = np.maximum(0, self._fewest - counts)
        return lacking

    def _beyond(self, counts: Wholes) -> Wholes:
        beyond: Wholes = np.maximum(0, counts - self._most)
        return beyond

    def _possible(self, serving: Wholes, counts: Wholes) -> Flags:
        some = np.append(serving > 0, True)
        room = np.append((counts < self._most)[self._pool], True)
        possible: Flags = some[:, None] & room[None, :]
        possible[:-1, :-1] |= self._same_pool & some[:-1, None]
        return possible

    def _over(self, counts: Wholes) -> Reals:
        """By how much budgets are broken after each move."""
        ends = [counts + step + np.where(counts + step > 0, self._surge, 0) for step in (0, -1, 1)]
        ways = [np.maximum(end, self._present) for end in ends]
        size = len(self.places) + 1
        broken: Reals = np.zeros((size, size))
        for (each, limit), (now, less, more) in ((self._way, ways), (self._end, ends)):
            if not len(limit):
                continue
            lost, gained = np.zeros((len(limit), size, 1)), np.zeros((len(limit), 1, size))
            lost[:, :-1, 0] = (each * (less - now))[:, self._pool]
            gained[:, 0, :-1] = (each * (more - now))[:, self._pool]
            change = lost + gained
            change[:, :-1, :-1][:, self._same_pool] = 0.0
            free = limit * (1 + 1e-9) + 1e-9 - each @ now
            change -= free[:, None, None]
            np.maximum(change, 0.0, out=change)
            broken += np.tensordot(1 / np.maximum(limit, 1.0), change, axes=1)
        return broken


class _Role:
    """The places of one role: a block of rows and columns in every table."""

    def __init__(self, near: Neighbourhood, problem: Problem, role: str) -> None:
        inside = [at for at, (_, place_role) in enumerate(near.places) if place_role == role]
        pools = [pool for pool, place_role in near.places if place_role == role]
        self._block = slice(inside[0], inside[-1] + 1) if inside else slice(0, 0)
        self._size = len(near.places) + 1
        self._need = problem.need.get(role, 0.0)
        self._kv_need = problem.kv_tokens if role == names.ROLE_DECODE else 0.0
        self._kv: Reals = np.array([min(pool.kv_tokens, 1e18) for pool in pools], dtype=np.float64)
        self._starts = sorted({start for pool in pools for start, _ in pool.rates[role].steps})
        self._rates: Reals = np.array(
            [[pool.rates[role].at(start) for pool in pools] for start in self._starts], dtype=np.float64
        ).reshape(len(self._starts), len(pools))

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
