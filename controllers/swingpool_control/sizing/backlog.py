"""Prompts that wait, as far ahead as new workers need to start: what is ordered now must work off what piles up then.

One look ahead instead of one more step each period: the backlog that is expected when the new workers are ready stays
the same while it grows and their start-up time passes.
"""

from dataclasses import dataclass

from swingpool_control import names
from swingpool_control.figures import Unknown
from swingpool_control.sizing.demand import Demand
from swingpool_control.sizing.pools import PoolFacts
from swingpool_control.sizing.traffic import Traffic
from swingpool_control.swing.guards import is_ready
from swingpool_control.view import ClusterView

MOST_AHEAD_S = 60.0
"""How far ahead is looked at most: no surge is sure to last longer."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Backlog:
    """What waits for prefill."""

    prompt_tokens: float
    requests: float


def expected(
    view: ClusterView, facts: tuple[PoolFacts, ...], seen: Demand, traffic: Traffic, *, now_unix_s: float
) -> Backlog:
    """Return what will wait when workers that start now, or start already, are ready.

    Args:
        view: the cluster.
        facts: facts of its pools.
        seen: what is asked now.
        traffic: lengths of the requests.
        now_unix_s: the time.
    """
    lacking_per_s = max(
        0.0, seen.prompt_tokens_per_s - _sustained_per_s(view, facts) * traffic.lengths.mean_prompt_tokens
    )
    ahead_s = min(MOST_AHEAD_S, _until_ready_s(view, now_unix_s))
    share = lacking_per_s / seen.prompt_tokens_per_s if lacking_per_s > 0 else 0.0
    return Backlog(
        prompt_tokens=seen.pending_tokens + lacking_per_s * ahead_s,
        requests=seen.pending_requests + share * seen.requests_per_s * ahead_s,
    )


def _sustained_per_s(view: ClusterView, facts: tuple[PoolFacts, ...]) -> float:
    """Requests per second whose prompts the workers compute that are ready now, were all of them in prefill."""
    role = names.ROLE_PREFILL
    ready = {
        pool.name: sum(worker.pool == pool.name and is_ready(worker) for worker in view.workers)
        for pool in facts
        if role in pool.rates
    }
    total = sum(ready.values())
    return sum(ready[pool.name] * pool.rates[role].at(total) for pool in facts if role in pool.rates)


def _until_ready_s(view: ClusterView, now_unix_s: float) -> float:
    """Seconds until the workers that start are ready, or would be if they started now."""
    known = {name: model.startup_s for name, model in view.models.items() if not isinstance(model, Unknown)}
    starting = [
        known.get(worker.pool, 0.0) - (now_unix_s - worker.created_unix_s)
        for worker in view.workers
        if not worker.ready and not worker.deleting
    ]
    whole_s = max(known.values(), default=0.0)
    return max(0.0, max(starting, default=whole_s))
