"""A surge is sized for at once; nothing else makes a step come sooner."""

from dataclasses import replace

import pytest

from swingpool_control.figures import Figure, Unknown
from swingpool_control.observation import RouterObservation
from swingpool_control.sizing import watch
from swingpool_control.sizing.memory import SizingMemory
from swingpool_control.sizing.step import step
from swingpool_control.view import ClusterView
from tests.unit.sizing.test_sizing_loop import pools
from tests.unit.swing.fleet import T0, Fleet, spec


def looked(view: ClusterView, at_s: float, requests: float, wait_s: Figure, window: float = 5.0) -> ClusterView:
    """The cluster when so many requests of 1000 tokens have arrived, and `window` per second lately."""
    router = view.router
    assert isinstance(router, RouterObservation)
    seen = replace(
        router,
        at_unix_s=T0 + at_s,
        requests_per_s=window,
        prompt_tokens_per_s=1000 * window,
        mean_isl_tokens=1000.0,
        mean_osl_tokens=20.0,
        arrived_requests=requests,
        arrived_prompt_tokens=1000 * requests,
        queued_requests=0 if isinstance(wait_s, Unknown) else int(100 * wait_s),
        oldest_wait_s=wait_s,
    )
    return replace(view, router=seen)


def after(rate: float, wait_s: Figure, *, seconds: int = 3) -> tuple[ClusterView, SizingMemory]:
    """Five requests per second for long, then another rate for some seconds."""
    view = Fleet(spec(pools(prefill=(1, 8), decode=(1, 8)))).view()
    memory = SizingMemory()
    for second in range(10):
        memory = watch.follow(looked(view, second, 5.0 * second, 0.0), memory)
    memory = step(looked(view, 10, 50, 0.0), memory, now_unix_s=T0 + 10).memory
    assert not watch.is_urgent(looked(view, 10, 50, 0.0), memory, now_unix_s=T0 + 10)
    now = view
    for second in range(1, seconds + 1):
        now = looked(view, 10 + second, 50 + rate * second, wait_s)
        memory = watch.follow(now, memory)
    return now, memory


@pytest.mark.parametrize(
    ("rate", "wait_s", "urgent"),
    [
        (30.0, 1.5, True),
        (30.0, 0.5, False),  # prompts wait no longer than they may
        (8.0, 1.5, False),  # chance explains as much
        (1.0, 1.5, False),
        (30.0, Unknown("not told"), False),
    ],
)
def test_only_a_surge_that_makes_prompts_wait_is_urgent(rate: float, wait_s: Figure, urgent: bool) -> None:
    view, memory = after(rate, wait_s)
    assert watch.is_urgent(view, memory, now_unix_s=T0 + 13) == urgent


def test_a_step_in_a_surge_sizes_for_the_last_seconds_and_once() -> None:
    view, memory = after(30.0, 1.5)
    result = step(view, memory, now_unix_s=T0 + 13)
    assert result.plan.observed[0].name == "requestsPerSecond"
    assert float(result.plan.observed[0].value) == pytest.approx(30)
    assert sum(pool.replicas for pool in result.plan.pools) > 4
    again = looked(view, 16, 140, 1.5)
    assert not watch.is_urgent(again, watch.follow(again, result.memory), now_unix_s=T0 + 16)


def test_without_a_router_nothing_is_urgent() -> None:
    view, memory = after(30.0, 1.5)
    blind = replace(view, router=Unknown("gone"))
    assert not watch.is_urgent(blind, watch.follow(blind, memory), now_unix_s=T0 + 13)
