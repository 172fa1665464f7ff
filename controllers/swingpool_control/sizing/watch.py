"""Between two steps of the sizing loop: what came lately, and whether it is such that the next step must not wait for.

A surge fills the queue at once, and each second by which workers are asked for later is a second more of queue. So the
manager looks as often as it swings. What it looks for cannot happen while nothing changes: more arrives than was
reckoned with, by more than chance explains, and prompts wait beyond their objective.
"""

from dataclasses import replace

from swingpool_control.figures import Unknown
from swingpool_control.observation import RouterObservation
from swingpool_control.sizing import objectives
from swingpool_control.sizing.demand import STALE_S, Demand
from swingpool_control.sizing.memory import SizingMemory
from swingpool_control.swing import rates
from swingpool_control.view import ClusterView

RISE = 1.2
"""Times what was reckoned with from which on more has come."""

LEAST_S = 2.0
"""Between two steps, however much comes."""


def follow(view: ClusterView, memory: SizingMemory) -> SizingMemory:
    """Return the memory with what had arrived by now; call it at every look."""
    totals = () if isinstance(view.router, Unknown) else rates.follow(memory.totals, view.router)
    return memory if totals == memory.totals else replace(memory, totals=totals)


def is_urgent(view: ClusterView, memory: SizingMemory, *, now_unix_s: float) -> bool:
    """Tell whether the next step should come at once.

    Args:
        view: the cluster.
        memory: with what had arrived by now.
        now_unix_s: the time.
    """
    router, reckoned = view.router, memory.reckoned
    if isinstance(router, Unknown) or reckoned is None or now_unix_s - reckoned.at_unix_s < LEAST_S:
        return False
    wait_s = router.oldest_wait_s
    if isinstance(wait_s, Unknown) or now_unix_s - router.at_unix_s > STALE_S:
        return False
    if wait_s <= min(objectives.by_percentile(view.spec.objectives.ttft).values()):
        return False
    came = _arriving(memory, router)
    return came is not None and came.turned and came.prompt_tokens_per_s > RISE * reckoned.prompt_tokens_per_s


def lately(seen: Demand, memory: SizingMemory, router: RouterObservation) -> Demand:
    """Return the demand by the last seconds where the load has just turned, by the router's window otherwise."""
    came = _arriving(memory, router)
    if came is None or not came.turned:
        return seen
    return replace(seen, requests_per_s=came.requests_per_s, prompt_tokens_per_s=came.prompt_tokens_per_s)


def _arriving(memory: SizingMemory, router: RouterObservation) -> rates.Arriving | None:
    requests, tokens = router.requests_per_s, router.prompt_tokens_per_s
    if isinstance(requests, Unknown) or isinstance(tokens, Unknown):
        return None
    return rates.arriving(
        memory.totals, requests_per_s=requests, prompt_tokens_per_s=tokens, spread=rates.spread(router)
    )
