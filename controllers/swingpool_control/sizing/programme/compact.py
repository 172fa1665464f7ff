"""The programme with each role's rates held as those of some number of workers: small enough to solve in a millisecond.

Columns are the workers in each place, and what may be missed, at a price above all else. The numbers of workers that
come out say which rates to hold next; two or three rounds agree, or nearly so. What comes out is no plan, but near the
best one, and with it come prices of budgets and of pools' limits: the search walks by them, and `bound` needs them.
"""

from dataclasses import dataclass

import numpy as np
from scipy.optimize import linprog

from swingpool_control.sizing.programme.arrays import Arrays, Reals, RoleArrays
from swingpool_control.sizing.programme.problem import ROLES
from swingpool_control.sizing.programme.slack import UNCOVERED, UNCOVERED_EACH, UNSPARED, UNSTAFFED

LEAST_USED = 0.5
"""Workers of a pool from which on it counts as one that has some."""
MISSED = 1e4
"""What missing the whole need costs, over what the cheapest worker would cost that does all of it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rates:
    """Rates that are held."""

    steps: tuple[int, ...]
    """Index into each role's starts."""
    lost: tuple[tuple[float, float], ...] | None
    """What the worker that may be lost adds and holds at most, by role; None: the least of all workers."""
    used: tuple[bool, ...] | None
    """Which pools have workers, of those to which a rolling update may then add one; None: as much as they are full."""
    more: float = 1.0
    """Times the need that is sustained: what rounding may lose."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Held:
    """The best with held rates."""

    rates: Rates
    workers: Reals
    """By place, fractional."""
    missed: float
    """Of the first round: what every plan misses at least, weighed as `slack` says."""
    dear: Reals
    """By place: what a worker costs, with what the budgets and the room in its pool that it takes up are worth."""
    free: float
    """Objective that is saved by what budgets and pools allow: the sum of limits times their prices, below zero."""
    cover_prices: tuple[float, ...]
    """By role: what the whole need costs, as the last part of it does."""
    kv_price: float
    """The same of the KV cache that is needed."""


def _step(role: RoleArrays, workers: float) -> int:
    """Return the step of so many workers, not above that of the whole number below."""
    return max(0, int(np.searchsorted(role.starts, workers + 1e-6, side="right")) - 1)


def _lost(role: RoleArrays, step: int, workers: Reals) -> tuple[float, float]:
    """Return the most that one of the role's workers adds, and the most KV cache that one holds."""
    if not len(role.starts):
        return 0.0, 0.0
    used = workers[role.block] > 1e-6
    adds, holds = (np.where(used, each, 0.0).max(initial=0.0) for each in (role.rates[step], role.kv))
    return float(adds), float(holds)


class Compact:
    """The programme, but for the rates.

    Rows read `coefficients * columns <= limit`. Columns: places; whether pools have workers, where a rolling update
    adds one then; what pools hold on the way, where that may be more than they have in the end; workers lacking to
    pools' fewest; for each role whether it has no worker, its share missed, its share missed when a worker is lost; and
    last the larger share missed.
    """

    def __init__(self, arrays: Arrays) -> None:
        self._arrays = arrays
        pools = len(arrays.problem.pools)
        certain = np.maximum(arrays.idle, arrays.fewest)
        held = certain + np.where(certain > 0, arrays.surge, 0)
        self._some = np.flatnonzero((certain == 0) & (arrays.surge > 0))
        self._ways = np.flatnonzero(arrays.present > held)
        self._lacking = np.flatnonzero(arrays.fewest > arrays.idle)
        places = len(arrays.places)
        self._first_way = places + len(self._some)
        self._first_lacking = self._first_way + len(self._ways)
        self._first_missed = self._first_lacking + len(self._lacking)
        self._size = self._first_missed + 3 * len(ROLES) + 1
        self._member = np.zeros((pools, places))
        self._member[arrays.pool, np.arange(places)] = 1.0
        # What a pool holds in its end, but for its workers.
        self._base = arrays.idle + np.where(certain > 0, arrays.surge, 0).astype(np.float64)
        self._shared, self._limits = self._shared_rows()
        self._low, self._high = self._bounds()
        self._scale = self._typical()
        self._cost, self._weights = self._costs()

    def at_best(self) -> Held | None:
        """Return the best at the best rates of all: what it misses, every plan misses."""
        steps = tuple(len(role.starts) - 1 for role in self._arrays.roles)
        return self._solve(Rates(steps=steps, lost=None, used=None))

    def after(self, held: Held, *, more: float) -> Held | None:
        """Return the best with the rates of as many workers as a solution has, and with so many times the need."""
        arrays, spare = self._arrays, float(self._arrays.problem.spare_worker)
        steps = tuple(_step(role, float(held.workers[role.block].sum()) - spare) for role in arrays.roles)
        lost = tuple(_lost(role, step, held.workers) for role, step in zip(arrays.roles, steps, strict=True))
        return self._solve(Rates(steps=steps, lost=lost, used=self._used(held.workers), more=more))

    def _used(self, workers: Reals) -> tuple[bool, ...]:
        """Tell for each pool that an update may add a worker to whether it has one."""
        by_pool = self._member @ workers
        return tuple(bool(one > LEAST_USED) for one in by_pool[self._some])

    def _solve(self, rates: Rates) -> Held | None:
        """Return the best with held rates; None if budgets are broken by what must be."""
        rows, limits = self._all_rows(rates)
        low, high = self._low.copy(), self._high.copy()
        if rates.used is not None:
            some = slice(len(self._arrays.places), self._first_way)
            low[some] = high[some] = rates.used
        found = linprog(
            self._cost + self._weights * MISSED,
            A_ub=rows,
            b_ub=limits,
            bounds=list(zip(low.tolist(), high.tolist(), strict=True)),
            method="highs-ds",
        )
        if found.x is None:
            return None
        places = len(self._arrays.places)
        prices = np.maximum(0.0, -found.ineqlin.marginals)
        shared, own_prices = prices[: len(self._limits)], prices[len(self._limits) :].reshape(len(ROLES), -1)
        reduced = self._cost + shared @ self._shared
        ways = slice(places, self._first_lacking)
        at_best = np.where(reduced[ways] >= 0, self._low[ways], self._high[ways])
        free = float(reduced[ways] @ at_best - shared @ self._limits)
        return Held(
            workers=found.x[:places],
            # What is missed is dearer than all else, but no plan's cost is worth nothing.
            missed=max(0.0, float(self._weights @ found.x - self._cost[:places] @ self._high[:places] / MISSED)),
            dear=reduced[:places] * self._scale,
            free=free * self._scale,
            rates=rates,
            cover_prices=tuple(float(own_prices[at, 2:4].sum()) * self._scale for at in range(len(ROLES))),
            kv_price=float(own_prices[:, 4:].sum()) * self._scale,
        )

    def _all_rows(self, rates: Rates) -> tuple[Reals, Reals]:
        lost = rates.lost or (None,) * len(ROLES)
        own = [self._rows_of(at, step, lost[at], rates.more) for at, step in enumerate(rates.steps)]
        rows = np.vstack([self._shared, *(rows for rows, _ in own)])
        return rows, np.concatenate([self._limits, *(limits for _, limits in own)])

    def _bounds(self) -> tuple[Reals, Reals]:
        arrays = self._arrays
        low, high = np.zeros(self._size), np.ones(self._size)
        high[: len(arrays.places)] = (arrays.most - arrays.idle)[arrays.pool]
        low[self._first_way : self._first_lacking] = arrays.present[self._ways]
        high[self._first_way : self._first_lacking] = (arrays.present + arrays.most + arrays.surge)[self._ways]
        high[self._first_lacking : self._first_missed] = (arrays.fewest - arrays.idle)[self._lacking]
        return low, high

    def _typical(self) -> float:
        """What the whole need costs where it is cheapest, or 1 where nothing costs anything."""
        found = 0.0
        for role in self._arrays.roles:
            share = role.rates[-1] / max(role.need, 1e-12) if len(role.starts) else np.zeros(0)
            unit = self._arrays.unit[role.block]
            costs = unit[share > 0] / np.minimum(1.0, share[share > 0])
            found = max(found, float(costs.min(initial=np.inf)) if len(costs) else 0.0)
        return found if found > 0 else max(1.0, float(self._arrays.unit.max(initial=0.0)))

    def _costs(self) -> tuple[Reals, Reals]:
        """Objective and what missing weighs, by column."""
        cost, weights = np.zeros(self._size), np.zeros(self._size)
        cost[: len(self._arrays.places)] = self._arrays.unit / self._scale
        weights[self._first_lacking : self._first_missed] = UNSTAFFED
        for at in range(len(ROLES)):
            staffed, covered, spared = self._slack(at)
            weights[staffed], weights[covered], weights[spared] = UNSTAFFED, UNCOVERED_EACH, UNSPARED
        weights[-1] = UNCOVERED
        return cost, weights

    def _slack(self, at: int) -> tuple[int, int, int]:
        first = self._first_missed + 3 * at
        return first, first + 1, first + 2

    def _shared_rows(self) -> tuple[Reals, Reals]:
        """Rows of pools and budgets: all that both roles have in common."""
        arrays, places = self._arrays, len(self._arrays.places)
        room = np.zeros((len(arrays.most), self._size))
        room[:, :places] = self._member
        least = -room[self._lacking]
        least[np.arange(len(self._lacking)), self._first_lacking + np.arange(len(self._lacking))] = -1.0
        some = room[self._some]
        ends = room.copy()
        some_columns = places + np.arange(len(self._some))
        some[np.arange(len(self._some)), some_columns] = -arrays.most[self._some]
        ends[self._some, some_columns] = arrays.surge[self._some]
        wide, base = ends.copy(), self._base.copy()
        ways = self._first_way + np.arange(len(self._ways))
        wide[self._ways] = 0.0
        wide[self._ways, ways] = 1.0
        base[self._ways] = 0.0
        above = ends[self._ways].copy()
        above[np.arange(len(self._ways)), ways] = -1.0
        (each, on_way), (each_end, on_end) = arrays.way, arrays.end
        rows = [room, least, some, above, each @ wide, each_end @ ends]
        limits = [
            (arrays.most - arrays.idle).astype(np.float64),
            -(arrays.fewest - arrays.idle)[self._lacking].astype(np.float64),
            np.zeros(len(self._some)),
            -self._base[self._ways],
            on_way - each @ base,
            on_end - each_end @ self._base,
        ]
        return np.vstack(rows), np.concatenate(limits)

    def _rows_of(self, at: int, step: int, lost: tuple[float, float] | None, more: float) -> tuple[Reals, Reals]:
        """Six rows of one role; those that say nothing are empty."""
        role = self._arrays.roles[at]
        staffed, covered, spared = self._slack(at)
        spare = self._arrays.problem.spare_worker
        rows, limits = np.zeros((6, self._size)), np.zeros(6)
        # Rates that are held in earnest are those of so many workers at the least.
        least = float((1 if lost is None or not len(role.starts) else role.starts[step]) + int(spare))
        rows[0, role.block], rows[0, staffed], limits[0] = -1.0, -least, -least
        rows[1, covered], rows[1, -1] = 1.0, -1.0
        needs = (role.need, role.rates[step] if len(role.starts) else role.kv), (role.kv_need, role.kv)
        for which, (need, adds) in enumerate(needs):
            if need <= 0 or not len(adds):
                continue
            shares = np.minimum(1.0, adds / need)
            plain = 2 + 2 * which
            rows[plain, role.block], rows[plain, covered], limits[plain] = -shares, -more, -more
            if spare:
                less = float(shares.min()) if lost is None else min(1.0, lost[which] / need)
                rows[plain + 1, role.block], rows[plain + 1, spared] = -shares, -more
                limits[plain + 1] = -more - less
        return rows, limits
