"""Needs as rows: each role sustains what it must, with its workers pooled, and when a worker is lost.

What a worker adds depends on how many workers its role has: `Rates` are steps in that number. For each step k there is
one binary that says whether the role is at it, and each pool's workers are split over the steps:

    at[1] + at[2] + ... = 1            n = part[1] + part[2] + ...
    from[k] * at[k]  <=  sum over pools of part[k]  <=  (from[k + 1] - 1) * at[k]
    sum over pools of part[k] * rate[k]  >=  need * at[k]

Only one step's parts are above zero then, and the relaxed programme is close to the whole one: it mixes steps only
where a mixture pays. A role costs a dozen binaries, however many workers there are.

When a worker is lost, the role has N - 1 workers and lacks what one worker of any of its pools adds.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise

from swingpool_control import names
from swingpool_control.sizing.programme.problem import PoolOption, Problem
from swingpool_control.sizing.programme.rows import Columns, Rows, Terms
from swingpool_control.sizing.programme.slack import Slack, term

Workers = Mapping[tuple[str, str], int]
"""Column of the serving workers by pool and role."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """A role with some number of workers."""

    at: int
    """Column: 1 if the role is at this step."""
    rates: Mapping[str, float]
    """Share of the need that one worker adds, by pool."""
    parts: Mapping[str, int]
    """Column of the workers, by pool: all of them at this step, none at another."""


def able(problem: Problem, role: str) -> tuple[PoolOption, ...]:
    """Return the pools whose workers can have a role."""
    return tuple(pool for pool in problem.pools if role in pool.rates)


def add(
    problem: Problem, role: str, columns: Columns, rows: Rows, *, workers: Workers, slack: Slack
) -> tuple[Step, ...]:
    """Add what a role must sustain; return the steps, which `flows` needs too.

    Args:
        problem: the problem.
        role: the role.
        columns: where unknowns go.
        rows: where rows go.
        workers: column of the serving workers by pool and role.
        slack: what may be missed.
    """
    pools = able(problem, role)
    headcount: Terms = [(workers[pool.name, role], 1.0) for pool in pools]
    rows.add(headcount + term(slack.staffed.get(role)), low=1)
    missed = slack.covered.get(role)
    steps: tuple[Step, ...] = ()
    if problem.need.get(role, 0.0) > 0 and pools:
        steps = _steps(problem, role, columns, rows, workers=workers, lost=0, must=missed is None)
        _cover(rows, columns, steps, missed)
    if role == names.ROLE_DECODE and problem.kv_tokens > 0:
        holds: Terms = [(workers[pool.name, role], _holds(problem, pool)) for pool in pools]
        rows.add(holds + term(missed), low=1)
    if missed is not None and slack.worst is not None:
        rows.add([(slack.worst, 1.0), (missed, -1.0)], low=0)
    if problem.spare_worker:
        rows.add(headcount + term(slack.staffed.get(role)) + term(slack.spare.get(role)), low=2)
        _add_spare(problem, role, columns, rows, workers=workers, missed=slack.spare.get(role))
    return steps


def _steps(
    problem: Problem, role: str, columns: Columns, rows: Rows, *, workers: Workers, lost: int, must: bool
) -> tuple[Step, ...]:
    """Split a role's workers over steps.

    Args:
        problem: the problem.
        role: the role; its need is above zero.
        columns: where unknowns go.
        rows: where rows go.
        workers: column of the serving workers by pool and role.
        lost: workers that do not count, 0 or 1.
        must: whether steps that cannot cover the need are left out.
    """
    pools = able(problem, role)
    need = problem.need[role]
    most = sum(pool.most - pool.idle for pool in pools)
    starts = sorted({start + lost for pool in pools for start, _ in pool.rates[role].steps if start + lost <= most})
    steps = []
    for start, following in pairwise([*starts, most + 1]):
        # One worker that sustains all of the need is enough, however much more it could: so figures stay within reach.
        rates = {pool.name: min(1.0, pool.rates[role].at(start - lost) / need) for pool in pools}
        if must and (following - 1) * max(rates.values()) < 1 - 1e-9:
            continue
        at = columns.add(0, 1, whole=True)
        parts = {}
        for pool in pools:
            bound = min(pool.most - pool.idle, following - 1)
            parts[pool.name] = columns.add(0, bound, whole=False)
            rows.add([(parts[pool.name], 1.0), (at, -float(bound))], high=0)
        together: Terms = [(column, 1.0) for column in parts.values()]
        rows.add([*together, (at, -float(start))], low=0)
        rows.add([*together, (at, -float(following - 1))], high=0)
        steps.append(Step(at=at, rates=rates, parts=parts))
    # A role that must cover its need is at one step; one that may miss it may have no worker at all, at none.
    rows.add([(step.at, 1.0) for step in steps], low=1 if must else 0, high=1)
    for pool in pools:
        split: Terms = [(step.parts[pool.name], -1.0) for step in steps]
        rows.add([(workers[pool.name, role], 1.0), *split], low=0, high=0)
    return tuple(steps)


def _cover(rows: Rows, columns: Columns, steps: tuple[Step, ...], missed: int | None) -> None:
    """Add: what the workers at each step sustain is the need, but for what may be missed."""
    if missed is None:
        for step in steps:
            rows.add([*_sustained(step), (step.at, -1.0)], low=0)
        return
    every: Terms = [term for step in steps for term in _sustained(step)]
    rows.add([*every, (missed, 1.0)], low=1)


def _sustained(step: Step) -> Terms:
    return [(column, step.rates[name]) for name, column in step.parts.items()]


def _holds(problem: Problem, pool: PoolOption) -> float:
    """Share of the KV cache needed that one worker holds."""
    return min(1.0, pool.kv_tokens / problem.kv_tokens)


def _add_spare(
    problem: Problem, role: str, columns: Columns, rows: Rows, *, workers: Workers, missed: int | None
) -> None:
    """Add: with any worker lost, the others still sustain the need and hold the KV cache."""
    pools = able(problem, role)
    has = {}
    for pool in pools:
        has[pool.name] = columns.add(0, 1, whole=True)
        rows.add([(has[pool.name], float(pool.most)), (workers[pool.name, role], -1.0)], low=0)
    if problem.need.get(role, 0.0) > 0 and pools:
        steps = _steps(problem, role, columns, rows, workers=workers, lost=1, must=missed is None)
        beyond = columns.add(0, max(max(step.rates.values()) for step in steps) if steps else 0, whole=False)
        every: Terms = [term for step in steps for term in _sustained(step)]
        rows.add([*every, (beyond, -1.0), *term(missed)], low=1)
        for step in steps:
            for pool in pools:
                if (rate := step.rates[pool.name]) > 0:
                    rows.add([(beyond, 1.0), (has[pool.name], -rate), (step.at, -rate)], low=-rate)
    if role == names.ROLE_DECODE and problem.kv_tokens > 0:
        beyond = columns.add(0, 1, whole=False)
        holds: Terms = [(workers[pool.name, role], _holds(problem, pool)) for pool in pools]
        rows.add([*holds, (beyond, -1.0), *term(missed)], low=1)
        for pool in pools:
            rows.add([(beyond, 1.0), (has[pool.name], -_holds(problem, pool))], low=0)
