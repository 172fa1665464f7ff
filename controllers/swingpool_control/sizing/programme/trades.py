"""A cheaper plan from one that keeps everything, by trades: up to two workers go and up to two come, wherever.

All trades are looked at together. What is sustained afterwards, and what of a budget is used, is a sum over four
places, so that takes little more than a look at each. Only what passes is judged in full: where a pool may become
empty, the sums take the best for granted. The trade that saves most is made, again and again.
"""

from functools import lru_cache

import numpy as np

from swingpool_control.sizing.programme.arrays import Arrays, Flags, Reals, RoleArrays, Wholes
from swingpool_control.sizing.programme.plans import Plans
from swingpool_control.sizing.programme.totals import TOLERANCE

MOST_PLACES = 48
"""Up to so many places trades of three workers are looked at."""
MOST_NET = 2
"""By how many workers a trade changes a role at most."""
JUDGED = 1024
"""How many plans are judged in full for one trade at most."""
SAVES = 1e-9
"""Share of the dearest worker that a trade must save."""
SURE = 3
"""With so many workers a place, or a pool, has some after any trade."""


class Trades:
    """All trades of one problem that save something, the one that saves most first.

    Args:
        arrays: the problem.
        plans: judges its plans.
    """

    def __init__(self, arrays: Arrays, plans: Plans) -> None:
        self._arrays, self._plans = arrays, plans
        every = _every(len(arrays.places))
        unit = np.append(arrays.unit, 0.0)
        change = unit[every[2]] + unit[every[3]] - unit[every[0]] - unit[every[1]]
        saving = np.flatnonzero(change < -SAVES * float(unit.max()))
        self._slots = every[:, saving[np.argsort(change[saving], kind="stable")]]
        self._twice = (self._slots[0] == self._slots[1]).astype(np.int64)
        self._pool = np.append(arrays.pool, -1)

    def best(self, serving: Wholes, *, trades: int) -> Wholes:
        """Return the plan where no trade helps any more, or so many were made.

        Args:
            serving: a plan that keeps everything, by place.
            trades: how many may be made; a count, so that a replay finds the same.
        """
        for _ in range(trades):
            better = self._better(serving)
            if better is None:
                break
            serving = better
        return serving

    def _better(self, serving: Wholes) -> Wholes | None:
        there = np.append(serving, 1)
        slots = self._slots[:, (there[self._slots[0]] > 0) & (there[self._slots[1]] > self._twice)]
        slots = slots[:, self._fits(serving, slots)]
        for role in self._arrays.roles:
            slots = slots[:, self._carries(role, serving[role.block], slots)]
        slots = slots[:, :JUDGED]
        after = np.repeat(np.append(serving, 0)[None, :], slots.shape[1], axis=0)
        rows = np.arange(len(after))
        for sign, slot in zip((-1, -1, 1, 1), slots, strict=True):
            after[rows, slot] += sign
        kept = self._plans.first_kept(after[:, :-1])
        return None if kept is None else after[kept, :-1]

    def _fits(self, serving: Wholes, slots: Wholes) -> Flags:
        """Tell which trades may leave pools within bounds and the tight ones of the budgets kept."""
        arrays, (each, limit) = self._arrays, self._arrays.way
        counts = arrays.idle + np.bincount(arrays.pool, weights=serving, minlength=len(arrays.idle))
        ends = counts + np.where(counts > 0, arrays.surge, 0)
        free = limit * (1 + 1e-9) + 1e-9 - each @ np.maximum(ends, arrays.present)
        adds = np.where(ends >= arrays.present, 1.0, 0.0)
        frees = 1.0 + np.where(counts < SURE, arrays.surge, 0)
        full, scarce = (np.append(one[arrays.pool], False) for one in (counts >= arrays.most, counts <= arrays.fewest))
        pools = self._pool[slots]
        # Of a trade within one pool the pool's bounds say nothing, or not so plainly.
        within = (pools[0] == pools[2]) | (pools[0] == pools[3]) | (pools[1] == pools[2]) | (pools[1] == pools[3])
        fits: Flags = within | ~(full[slots[2]] | full[slots[3]] | scarce[slots[0]] | scarce[slots[1]])
        for one, left in zip(each, free, strict=True):
            if (one * (adds + arrays.surge)).max(initial=0.0) * 2 > left:
                less, more = (np.append((one * by)[arrays.pool], 0.0) for by in (frees, adds))
                fits &= more[slots[2]] + more[slots[3]] - less[slots[0]] - less[slots[1]] <= left
        return fits

    def _carries(self, role: RoleArrays, mine: Wholes, slots: Wholes) -> Flags:
        """Tell which trades may leave what a role needs, also without a worker if one may be lost."""
        places = len(self._arrays.places)
        inside = np.zeros(places + 1, dtype=np.int64)
        inside[role.block] = 1
        net = MOST_NET + inside[slots[2]] + inside[slots[3]] - inside[slots[0]] - inside[slots[1]]
        first, second, third, fourth = net * (places + 1) + slots
        workers = int(mine.sum()) + np.arange(-MOST_NET, MOST_NET + 1)
        carries: Flags = np.ones(len(net), dtype=bool)
        for lost in range(1 + int(self._arrays.problem.spare_worker)):
            kv = np.broadcast_to(role.kv, (len(workers), len(mine)))
            for need, adds in ((role.need, _rates(role, workers - lost)), (role.kv_need, kv)):
                if need <= 0 or not len(mine):
                    continue
                table: Reals = np.zeros((len(workers), places + 1))
                table[:, role.block] = adds
                now, flat = adds @ mine, table.ravel()
                if lost:
                    now = now - adds[:, mine >= SURE].max(axis=1, initial=0.0)
                have = now[net] - flat[first] - flat[second] + flat[third] + flat[fourth]
                carries &= have * (1 + TOLERANCE) >= need
        return carries


@lru_cache(maxsize=16)
def _every(places: int) -> Wholes:
    """Return all trades between so many places: two that lose a worker, two that gain one; `places` is none.

    Two workers for two are left out, they are too many; where places are many, so are all but one for one.
    """
    one = np.stack([np.arange(places + 1), np.full(places + 1, places)], axis=1)
    two = np.stack(np.triu_indices(places), axis=1)
    pairs = [_all_pairs(one[:-1], one)]
    if places <= MOST_PLACES:
        pairs += [_all_pairs(two, one), _all_pairs(one[:-1], two)]
    slots = np.concatenate(pairs).T
    taken, given = slots[:2, None], slots[None, 2:]
    useless = ((taken == given) & (given < places)).any(axis=(0, 1))
    return np.ascontiguousarray(slots[:, ~useless])


def _all_pairs(less: Wholes, more: Wholes) -> Wholes:
    return np.hstack([np.repeat(less, len(more), axis=0), np.tile(more, (len(less), 1))])


def _rates(role: RoleArrays, workers: Wholes) -> Reals:
    """Return what a worker of each place adds, by number of workers."""
    if not len(role.starts):
        return np.zeros((len(workers), role.rates.shape[1]))
    step = np.searchsorted(role.starts, workers, side="right") - 1
    rates: Reals = np.where(step[:, None] >= 0, role.rates[np.maximum(step, 0)], 0.0)
    return rates
