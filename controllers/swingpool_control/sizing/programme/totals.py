"""What given numbers of workers cost and sustain, and what they break: the programme's meaning, without a programme.

`solve` checks its plans by it, `reasons` looks at a plan's neighbours with it, and tests compare it with the search.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from swingpool_control import names
from swingpool_control.sizing.programme import spending
from swingpool_control.sizing.programme.answer import Constraint
from swingpool_control.sizing.programme.coverage import able
from swingpool_control.sizing.programme.problem import ROLES, Problem

Serving = Mapping[tuple[str, str], int]
"""Serving workers by pool and role; what is missing has none."""

TOLERANCE = 1e-9

STARVED = 1e6
"""Load of a role that must sustain something and has nothing to do it with."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Totals:
    """What workers cost and sustain."""

    cost_per_hour: float
    watts: float
    carbon_g_per_hour: float
    objective: float
    workers: Mapping[str, int]
    """Serving, by role."""
    sustained: Mapping[str, float]
    """Requests per second by role."""
    load: Mapping[str, float]
    """By role, KV cache included."""


def counts(problem: Problem, serving: Serving) -> dict[str, int]:
    """Return all workers by pool, idle ones included."""
    return {pool.name: pool.idle + sum(serving.get((pool.name, role), 0) for role in ROLES) for pool in problem.pools}


def totals(problem: Problem, serving: Serving) -> Totals:
    """Return what workers cost and sustain."""
    cost = watts = carbon = objective = 0.0
    for pool in problem.pools:
        here = [(role, serving.get((pool.name, role), 0)) for role in ROLES if role in pool.rates]
        drawn = sum(count * pool.watts_in(role) for role, count in here)
        spent = pool.price_per_hour * (pool.idle + sum(count for _, count in here))
        cost, watts = cost + spent, watts + drawn
        carbon += drawn / 1000 * pool.carbon_g_per_kwh
        objective += pool.idle * spending.objective_per_worker(problem.weights, pool, None)
        objective += sum(count * spending.objective_per_worker(problem.weights, pool, role) for role, count in here)
    workers = {role: sum(serving.get((pool.name, role), 0) for pool in able(problem, role)) for role in ROLES}
    return Totals(
        cost_per_hour=cost,
        watts=watts,
        carbon_g_per_hour=carbon,
        objective=objective,
        workers=workers,
        sustained={role: sustained(problem, serving, role, workers[role]) for role in ROLES},
        load={role: load(problem, serving, role, workers[role]) for role in ROLES},
    )


def sustained(problem: Problem, serving: Serving, role: str, workers: int) -> float:
    """Return requests per second that a role sustains if each of its workers adds what it does among so many."""
    return sum(
        serving.get((pool.name, role), 0) * pool.rates[role].at(workers)
        for pool in able(problem, role)
        if serving.get((pool.name, role), 0)
    )


def broken(problem: Problem, serving: Serving) -> Iterator[Constraint]:
    """Yield what given workers break, but for links."""
    have = counts(problem, serving)
    for pool in problem.pools:
        if have[pool.name] < pool.fewest:
            yield Constraint(code="MinReplicas", message=f"pool {pool.name} must have {pool.fewest} workers")
        if have[pool.name] > pool.most:
            yield too_many(problem, pool.name)
    budget = spending.broken(problem, have)
    if budget is not None:
        yield Constraint(code=budget.code, message=budget.message)
    known = totals(problem, serving)
    for role in ROLES:
        if known.workers[role] == 0:
            yield Constraint(code="NoWorker", message=f"{role} must have a worker")
        elif known.load[role] > 1 + TOLERANCE:
            yield uncovered(problem, serving, role)
    if problem.spare_worker:
        yield from _not_spared(problem, serving)


def too_many(problem: Problem, name: str) -> Constraint:
    """Return the constraint that keeps a pool from having more workers."""
    pool = next(pool for pool in problem.pools if pool.name == name)
    if pool.blocked:
        return Constraint(code="NoCapacity", message=f"pool {name} cannot get more workers")
    return Constraint(code="MaxReplicas", message=f"replicas.max of pool {name}")


def uncovered(problem: Problem, serving: Serving, role: str) -> Constraint:
    """Return in words that a role does not sustain its need."""
    workers = sum(serving.get((pool.name, role), 0) for pool in able(problem, role))
    rate, need = sustained(problem, serving, role, workers), problem.need.get(role, 0.0)
    if rate < need * (1 - TOLERANCE):
        message = f"{role} sustains {rate:.4g} of {need:.4g} requests/s"
        return Constraint(code=f"{role.capitalize()}Capacity", message=message)
    held = _held(problem, serving)
    message = f"decode workers hold {held:.4g} of {problem.kv_tokens:.4g} tokens of KV cache"
    return Constraint(code="KVCapacity", message=message)


def spared_load(problem: Problem, serving: Serving, role: str) -> float:
    """Return the load of a role after it lost the worker that it can least do without."""
    worst = 0.0
    for pool in able(problem, role):
        count = serving.get((pool.name, role), 0)
        if count:
            left = {**serving, (pool.name, role): count - 1}
            workers = sum(left.get((other.name, role), 0) for other in able(problem, role))
            worst = max(worst, load(problem, left, role, workers) if workers else STARVED)
    return worst


def _not_spared(problem: Problem, serving: Serving) -> Iterator[Constraint]:
    for role in ROLES:
        load = spared_load(problem, serving, role)
        if load > 1 + TOLERANCE:
            message = f"{role} would be loaded to {load:.0%} if a worker were lost"
            yield Constraint(code="SpareWorker", message=message)


def load(problem: Problem, serving: Serving, role: str, workers: int) -> float:
    """Return need over what a role of so many workers sustains, KV cache included."""
    found = _over(problem.need.get(role, 0.0), sustained(problem, serving, role, workers))
    if role == names.ROLE_DECODE:
        found = max(found, _over(problem.kv_tokens, _held(problem, serving)))
    return found


def _held(problem: Problem, serving: Serving) -> float:
    """Tokens of KV cache that decode workers may hold."""
    role = names.ROLE_DECODE
    return sum(
        serving.get((pool.name, role), 0) * pool.kv_tokens
        for pool in able(problem, role)
        if serving.get((pool.name, role), 0)
    )


def _over(need: float, have: float) -> float:
    if have > 0:
        return need / have
    return STARVED if need > 0 else 0.0
