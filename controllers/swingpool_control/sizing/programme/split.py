"""Roles for given numbers of workers: swing workers go where the load is higher, one by one."""

from collections.abc import Mapping

from swingpool_control.sizing.programme import totals
from swingpool_control.sizing.programme.coverage import able
from swingpool_control.sizing.programme.problem import ROLES, Problem


def split(problem: Problem, counts: Mapping[str, int]) -> dict[tuple[str, str], int]:
    """Return serving workers by pool and role.

    Args:
        problem: the problem; its pools' idle workers serve nothing.
        counts: workers by pool, idle ones included.
    """
    serving: dict[tuple[str, str], int] = {}
    swings: list[str] = []
    for pool in problem.pools:
        free = max(0, counts[pool.name] - pool.idle)
        if pool.swings:
            swings += [pool.name] * free
            serving |= {(pool.name, role): 0 for role in ROLES}
        else:
            serving |= {(pool.name, role): free for role in pool.rates}
    workers = {role: sum(serving.get((pool.name, role), 0) for pool in able(problem, role)) for role in ROLES}
    for name in swings:
        role = max(ROLES, key=lambda role: _want(problem, serving, role, workers[role]))
        serving[name, role] += 1
        workers[role] += 1
    return serving


def _want(problem: Problem, serving: Mapping[tuple[str, str], int], role: str, workers: int) -> tuple[bool, float, int]:
    """How much a role wants a worker: it has none, it is loaded, it has few."""
    return workers == 0, totals.load(problem, serving, role, workers), -workers
