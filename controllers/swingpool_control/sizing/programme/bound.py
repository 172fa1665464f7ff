"""What no plan that keeps everything undercuts: a bound for plans of which nobody proved that they are the best.

With prices on what both roles share, budgets and room in pools, the roles come apart (Lagrangian relaxation; any prices
give a bound, the right ones a close one). What is left of a role is small enough to be looked at for each number of
workers: what is the least for which its workers, at the rates of that number, sustain the need? That is a continuous
knapsack, solved by its dual: raise the price of sustaining until the best workers at that price sustain all. Where a
worker may be lost, each kind of worker is assumed in turn to be the one that adds most.
"""

import math
from dataclasses import dataclass

import numpy as np

from swingpool_control.sizing.programme.arrays import Arrays, Flags, Reals, RoleArrays, Wholes
from swingpool_control.sizing.programme.compact import Held

FACTORS = np.array([0.0, 0.3, 0.6, 0.8, 0.9, 1.0, 1.1, 1.25, 1.6, 2.5])
"""Prices of sustaining that are tried first, over that of the compact programme."""
FINER = 8
"""How many of the least bounds are then raised further, each by halving the prices in between."""
HALVINGS = 7


def bound(arrays: Arrays, held: Held) -> float:
    """Return an objective that no plan undercuts.

    Args:
        arrays: the problem; links are not looked at, which bounds from below all the same.
        held: a solution of the compact programme, whose prices are used.
    """
    roles = (_role(arrays, role, held, price) for role, price in zip(arrays.roles, held.cover_prices, strict=True))
    return arrays.fixed + held.free + sum(roles)


@dataclass(frozen=True, slots=True)
class _Cases:
    """What a role's workers may be, case by case, one row for each."""

    dear: Reals
    """Cost of a worker by place; the same in all cases."""
    rates: Reals
    """Share of the need that a worker adds, by place."""
    room: Reals
    """Most workers, by place."""
    must: Reals
    """What the workers must add up to."""
    low: Reals
    """Fewest workers in all."""
    high: Reals
    """Most workers in all."""
    more: Reals
    """What it costs beside."""

    def some(self, which: Wholes | Flags) -> "_Cases":
        """Return some of the cases."""
        rows = (one[which] for one in (self.rates, self.room, self.must, self.low, self.high, self.more))
        return _Cases(self.dear, *rows)

    def at_price(self, price: Reals) -> tuple[Reals, Reals]:
        """Return a bound for each case at a price of sustaining, and what is sustained where the bound is reached.

        Args:
            price: for each case, or rows of them.
        """
        worth = self.dear - price[..., None] * self.rates
        order = np.argsort(worth, axis=-1)
        rates, room = (np.broadcast_to(one, worth.shape) for one in (self.rates, self.room))
        worth, rates, room = (np.take_along_axis(one, order, axis=-1) for one in (worth, rates, room))
        before = np.cumsum(room, axis=-1) - room
        total = np.clip(np.where(worth < 0, room, 0.0).sum(axis=-1), self.low, self.high)
        taken = np.clip(total[..., None] - before, 0.0, room)
        value: Reals = self.more + price * self.must + (worth * taken).sum(axis=-1)
        return value, (rates * taken).sum(axis=-1)


def _role(arrays: Arrays, role: RoleArrays, held: Held, price: float) -> float:
    """Return the least that a role's workers cost at given prices of what is shared."""
    dear, room = held.dear[role.block], (arrays.most - arrays.idle)[arrays.pool][role.block].astype(np.float64)
    kv_price = held.kv_price if role.kv_need > 0 else 0.0
    holds = np.minimum(1.0, role.kv / role.kv_need) if kv_price > 0 else np.zeros(len(dear))
    dear = dear - kv_price * holds
    if role.need <= 0 or not len(dear):
        return kv_price + float(np.minimum(0.0, dear) @ room)
    cases = _cases(arrays, role, dear, room, kv_price * holds)
    able = ((cases.rates * cases.room).sum(axis=1) >= cases.must - 1e-9) & (cases.room.sum(axis=1) >= cases.low)
    if not able.any():
        return math.inf
    return kv_price + _least(cases.some(able), price)


def _cases(arrays: Arrays, role: RoleArrays, dear: Reals, room: Reals, kv_cost: Reals) -> _Cases:
    """Return a case for each start and, if a worker may be lost, for each place as that whose worker adds most."""
    spare = int(arrays.problem.spare_worker)
    low = np.maximum(np.array(role.starts, dtype=np.float64) + spare, 1.0)
    high = np.append(low[1:] - 1.0, max(float(room.sum()), low[-1]))
    rates = np.minimum(1.0, role.rates / role.need)
    starts, places = rates.shape
    if not spare:
        zero = np.zeros(starts)
        return _Cases(dear, rates, np.broadcast_to(room, rates.shape), zero + 1.0, low, high, zero)
    there = np.where(rates[:, None, :] <= rates[:, :, None], room, 0.0).reshape(-1, places)
    return _Cases(
        dear,
        np.repeat(rates, places, axis=0),
        there,
        1.0 + rates.reshape(-1),
        np.repeat(low, places),
        np.repeat(high, places),
        np.tile(kv_cost, starts),  # what that worker holds must be there without it
    )


def _least(cases: _Cases, price: float) -> float:
    """Return a bound on the least of all cases: each has a price of sustaining at which its bound is highest."""
    tried = FACTORS * (price if price > 0 else float(np.abs(cases.dear).max(initial=1.0)))
    values, sustained = cases.at_price(np.repeat(tried[:, None], len(cases.must), axis=1))
    best: Reals = values.max(axis=0)
    few = np.argsort(best, kind="stable")[:FINER]
    # The bound rises with the price as long as too little is sustained, and falls from there on.
    turn = (sustained < cases.must)[:, few].sum(axis=0)
    edges = np.append(tried, 8.0 * tried[-1])
    least, most, some = edges[np.maximum(turn - 1, 0)], edges[turn], cases.some(few)
    for _ in range(HALVINGS):
        middle = (least + most) / 2
        value, there = some.at_price(middle)
        best[few] = np.maximum(best[few], value)
        least, most = np.where(there < some.must, middle, least), np.where(there < some.must, most, middle)
    return float(best.min())
