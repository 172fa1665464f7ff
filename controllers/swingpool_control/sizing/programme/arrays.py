"""A problem as arrays over places, one place for each role of each pool, for all that looks at many plans at once."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from swingpool_control import names
from swingpool_control.sizing.programme import spending
from swingpool_control.sizing.programme.problem import ROLES, PoolOption, Problem

Reals = npt.NDArray[np.float64]
Wholes = npt.NDArray[np.int64]
Flags = npt.NDArray[np.bool_]


@dataclass(frozen=True, slots=True, kw_only=True)
class RoleArrays:
    """The places of one role, which lie side by side."""

    block: slice
    need: float
    """Requests per second."""
    kv_need: float
    """Tokens of KV cache; 0 if it does not matter."""
    kv: Reals
    """Tokens of KV cache that a worker holds, by place of the role."""
    starts: tuple[int, ...]
    """Numbers of the role's workers from which on their rates are others."""
    rates: Reals
    """Requests per second that one worker adds, by start and place."""

    @classmethod
    def of(cls, places: list[tuple[PoolOption, str]], problem: Problem, role: str) -> "RoleArrays":
        """Return the arrays of one role."""
        inside = [at for at, (_, place_role) in enumerate(places) if place_role == role]
        pools = [pool for pool, place_role in places if place_role == role]
        starts = tuple(sorted({start for pool in pools for start, _ in pool.rates[role].steps}))
        rates = [[pool.rates[role].at(start) for pool in pools] for start in starts]
        return cls(
            block=slice(inside[0], inside[-1] + 1) if inside else slice(0, 0),
            need=problem.need.get(role, 0.0),
            kv_need=problem.kv_tokens if role == names.ROLE_DECODE else 0.0,
            kv=np.array([min(pool.kv_tokens, 1e18) for pool in pools], dtype=np.float64),
            starts=starts,
            rates=np.array(rates, dtype=np.float64).reshape(len(starts), len(pools)),
        )


class Arrays:
    """A problem as arrays, role by role and in the order of the pools.

    Args:
        problem: the problem.
    """

    def __init__(self, problem: Problem) -> None:
        self.problem = problem
        self.places = [(pool, role) for role in ROLES for pool in problem.pools if role in pool.rates]
        index = {pool.name: at for at, pool in enumerate(problem.pools)}
        self.pool: Wholes = np.array([index[pool.name] for pool, _ in self.places], dtype=np.int64)
        self.idle, self.fewest, self.most = (self._by_pool(name) for name in ("idle", "fewest", "most"))
        self.surge, self.present = self._by_pool("surge"), self._by_pool("present")
        self.roles = tuple(RoleArrays.of(self.places, problem, role) for role in ROLES)
        self.unit: Reals = np.array(
            [spending.objective_per_worker(problem.weights, pool, role) for pool, role in self.places],
            dtype=np.float64,
        )
        self.fixed = sum(
            pool.idle * spending.objective_per_worker(problem.weights, pool, None) for pool in problem.pools
        )
        """Objective of idle workers."""
        self._add_budgets(problem)

    def _by_pool(self, name: str) -> Wholes:
        return np.array([getattr(pool, name) for pool in self.problem.pools], dtype=np.int64)

    def _add_budgets(self, problem: Problem) -> None:
        known = tuple(spending.budgets(problem))
        each: Reals = np.array(
            [[budget.per_worker.get(pool.name, 0.0) for pool in problem.pools] for budget in known], dtype=np.float64
        ).reshape(len(known), len(problem.pools))
        limit: Reals = np.array([budget.limit for budget in known], dtype=np.float64)
        ends = np.array([spending.at_least(pool)[0] for pool in problem.pools], dtype=np.int64)
        ways = np.array([spending.at_least(pool)[1] for pool in problem.pools], dtype=np.int64)
        on_end, on_way = np.maximum(limit, each @ ends), np.maximum(limit, each @ ways)
        over = on_way > on_end
        self.way = (each, on_way)
        """What a worker of each pool counts for, by budget, and the limits on the way to a plan."""
        self.end = (each[over], on_end[over])
        """The same at its end, only where what exists breaks a budget: elsewhere the way is at least the end."""

    def nearest(self, by_place: Mapping[tuple[str, str], float]) -> Wholes:
        """Return a plan as an array over places, fractions rounded."""
        return np.array([round(by_place.get((pool.name, role), 0)) for pool, role in self.places], dtype=np.int64)

    def by_place(self, serving: Wholes) -> dict[tuple[str, str], int]:
        """Return an array over places as a plan."""
        return {(pool.name, role): int(serving[at]) for at, (pool, role) in enumerate(self.places)}
