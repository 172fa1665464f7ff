"""Which role lacks workers by the queueing model while the other has some to spare: sizing's word to the swing loop.

The swing loop weighs the next seconds, and acts on slight advantages only after long. What lasts for a minute is
weighed here, by what so many workers of a role sustain within its objective. Three in prefill may make more prompts
late than nine in decode do answers, though both are as busy: many workers share one queue, and decode is slow only when
it is nearly full.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from swingpool_control import names
from swingpool_control.sizing.coming import ComingMemory
from swingpool_control.sizing.demand import Demand
from swingpool_control.sizing.history import Series
from swingpool_control.sizing.need import Need
from swingpool_control.sizing.pools import PoolFacts
from swingpool_control.sizing.traffic import Traffic
from swingpool_control.swing.guards import ROLES, other, serving
from swingpool_control.view import ClusterView

LOADED = 0.7
"""Load of a role, by what it sustains within its objective, below which it needs no help."""

GAIN = 0.12
"""By how much the greater of both loads must fall for workers to move: noise about the best split does not."""

STARVED = 10.0
"""Load of a role that nobody serves."""

LASTS_S = 14.0
"""How long it must have been so: two steps."""

STEPS = 1
"""Closed steps of the history that the need is the mean of, beside the open one: half a minute at least."""

TURNED = 0.4
"""Share by which prompts now may be longer or shorter than those: beyond that the mix has turned."""

Counts = Mapping[tuple[str, str], int]
"""Workers by pool and role."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Advice:
    """Workers that should change to a role."""

    to_role: str
    workers: int
    since_unix_s: float
    """Since when it is so."""
    lasts: bool
    """Whether that is long enough to act on it."""
    reason: str


def lately(came: ComingMemory, seen: Demand, traffic: Traffic) -> Need | None:
    """Return what arrived over the last half minute or more; None if less is known, or if it is another mix than now.

    Args:
        came: what came.
        seen: what is asked now.
        traffic: its lengths.
    """
    requests, tokens = _mean(came.requests.history.fine), _mean(came.prompt_tokens.history.fine)
    if requests is None or tokens is None:
        return None
    mean, now = tokens * seen.requests_per_s, seen.prompt_tokens_per_s * requests
    if abs(mean - now) > TURNED * max(mean, now):
        return None
    prefill_per_s = tokens / max(1.0, traffic.lengths.mean_prompt_tokens)
    return Need(prefill_per_s=prefill_per_s, decode_per_s=requests, kv_tokens=0.0)


def of(
    view: ClusterView, facts: tuple[PoolFacts, ...], need: Need | None, before: Advice | None, *, now_unix_s: float
) -> Advice | None:
    """Return which workers should change their role, None if none should.

    Args:
        view: the cluster.
        facts: facts of its pools.
        need: what both roles must sustain; None if that is not known.
        before: the answer of the step before.
        now_unix_s: the time.
    """
    if need is None:
        return None
    counts = _counts(view)
    loads = _loads(facts, counts, need)
    for role in ROLES:
        workers, then = _best(facts, counts, need, role)
        if loads[role] < LOADED or then is None or max(then.values()) > loads[role] - GAIN:
            continue
        same = before is not None and before.to_role == role
        since_unix_s = before.since_unix_s if same and before is not None else now_unix_s
        moved = "one worker" if workers == 1 else f"{workers} workers"
        return Advice(
            to_role=role,
            workers=workers,
            since_unix_s=since_unix_s,
            lasts=now_unix_s - since_unix_s >= LASTS_S,
            reason=f"over a minute {role} is asked for {loads[role]:.2f} of what it sustains within its objective and "
            f"{other(role)} for {loads[other(role)]:.2f}; with {moved} moved {then[role]:.2f} "
            f"and {then[other(role)]:.2f}",
        )
    return None


def _best(facts: tuple[PoolFacts, ...], counts: Counts, need: Need, role: str) -> tuple[int, dict[str, float] | None]:
    """How many swing workers to give to a role so that the greater of both loads is least, and the loads then."""
    swings = [pool.name for pool in facts if len(pool.rates) == len(ROLES)]
    now = dict(counts)
    best: tuple[int, dict[str, float] | None] = (0, None)
    for moved in range(1, sum(counts.get((name, other(role)), 0) for name in swings) + 1):
        giver = next(name for name in swings if now.get((name, other(role)), 0))
        now[giver, other(role)] -= 1
        now[giver, role] = now.get((giver, role), 0) + 1
        loads = _loads(facts, now, need)
        if best[1] is not None and max(loads.values()) >= max(best[1].values()):
            break
        best = moved, loads
    return best


def _loads(facts: tuple[PoolFacts, ...], counts: Counts, need: Need) -> dict[str, float]:
    found = {}
    for role, asked in need.by_role().items():
        workers = sum(count for (_, its), count in counts.items() if its == role)
        rate = sum(
            counts.get((pool.name, role), 0) * pool.rates[role].at(workers) for pool in facts if role in pool.rates
        )
        found[role] = asked / rate if rate > 0 else STARVED
    return found


def _counts(view: ClusterView) -> dict[tuple[str, str], int]:
    """Workers that serve, by pool and role."""
    now = serving(view)
    found: dict[tuple[str, str], int] = {}
    for worker in view.workers:
        if worker.role in (names.ROLE_PREFILL, names.ROLE_DECODE) and worker.uid in now[worker.role]:
            key = worker.pool, worker.role
            found[key] = found.get(key, 0) + 1
    return found


def _mean(series: Series) -> float | None:
    closed = [value for value in series.values[-STEPS:] if value is not None]
    if len(closed) < STEPS or not series.open_count:
        return None
    return (sum(closed) + series.open_sum / series.open_count) / (len(closed) + 1)
