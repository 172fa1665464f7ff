"""The sizing loop in a closed loop with requests: up at once, down slowly and without losing a request."""

import random
from typing import Any

import pytest

from swingpool_control import names
from swingpool_control.actions import SetReplicas
from swingpool_control.api.status import Plan
from swingpool_control.api.v1alpha1 import InferenceClusterSpec
from swingpool_control.sizing.memory import SizingMemory
from swingpool_control.sizing.step import step
from tests.unit.swing.fleet import Fleet, spec

FAST_DOWN = {"stabilization": {"scaleDownWindow": "60s"}}
HEAVY = (12.0, 1500, 120)
LIGHT = (1.0, 400, 40)


def pools(**limits: tuple[int, int]) -> list[dict[str, Any]]:
    return [
        {"name": name, "role": name.capitalize(), "replicas": {"min": low, "max": high}}
        for name, (low, high) in limits.items()
    ]


def fixed(prefill: int, decode: int) -> InferenceClusterSpec:
    counts = {"prefill": prefill, "decode": decode}
    return spec(
        [
            {"name": name, "role": name.capitalize(), "replicas": {"mode": "Fixed", "count": count}}
            for name, count in counts.items()
        ],
        engine={"type": "Simulated", "maxRequestDuration": "60s"},
    )


class Loop:
    def __init__(self, fleet: Fleet, seed: int = 1) -> None:
        self.fleet = fleet
        self.memory = SizingMemory()
        self.rng = random.Random(seed)
        self.due = fleet.now
        self.plan: Plan | None = None
        self.summary = ""
        self.sent = 0

    def run(self, load: tuple[float, int, int] | None, seconds: int) -> None:
        for _ in range(seconds * 2):
            if load is not None and self.rng.random() < 1:
                rate, isl, osl = load
                for _ in range(int(rate / 2 + self.rng.random())):
                    self.fleet.arrive(isl, osl)
                    self.sent += 1
            self.fleet.run(0.5, dt=0.25)
            if self.fleet.now >= self.due:
                self.decide()

    def decide(self) -> None:
        self.fleet.guard()
        result = step(self.fleet.view(), self.memory, now_unix_s=self.fleet.now)
        self.fleet.apply(result.actions)
        self.memory, self.plan, self.summary = result.memory, result.plan, result.summary
        self.due = self.fleet.now + result.next_step_s

    @property
    def replicas(self) -> dict[str, int]:
        return self.fleet.replicas


def test_it_grows_at_once_and_shrinks_after_the_window() -> None:
    loop = Loop(Fleet(spec(pools(prefill=(1, 6), decode=(1, 6)), scaling=FAST_DOWN)))
    loop.run(HEAVY, 60)
    high = dict(loop.replicas)
    assert high["prefill"] >= 4
    assert high["decode"] >= 2
    loop.run(LIGHT, 45)
    assert 4 <= loop.replicas["prefill"] <= high["prefill"], "only what a backlog needed may go before the window ends"
    assert 2 <= loop.replicas["decode"] <= high["decode"]
    loop.run(LIGHT, 270)
    assert loop.replicas == {"prefill": 1, "decode": 1}
    assert loop.fleet.lost == 0
    assert not loop.fleet.queue


def test_growth_is_one_step() -> None:
    loop = Loop(Fleet(spec(pools(prefill=(1, 8), decode=(1, 8)))))
    loop.run(HEAVY, 16)
    grown = loop.replicas["prefill"]
    assert grown >= 4
    loop.run(HEAVY, 60)
    assert loop.replicas["prefill"] <= grown + 2


def test_a_fixed_pool_lowered_by_two_under_load_loses_no_request() -> None:
    fleet = Fleet(fixed(2, 4))
    loop = Loop(fleet)
    loop.run((6.0, 300, 150), 20)
    fleet.spec = fixed(2, 2)
    loop.due = fleet.now
    loop.run((6.0, 300, 150), 1)
    assert [pod.role for pod in fleet.of("decode")].count(names.ROLE_DRAINING) == 2
    assert fleet.replicas["decode"] == 4
    loop.run((6.0, 300, 150), 30)
    assert fleet.replicas["decode"] == 2
    assert len(fleet.of("decode")) == 2
    assert fleet.lost == 0
    assert all(pod.role == names.ROLE_DECODE and pod.cost == 0 for pod in fleet.of("decode"))


@pytest.mark.parametrize(("kept_tokens", "after_10_s"), [(0, 1), (500, 2)])
def test_a_prefill_worker_stays_while_others_may_fetch_its_kv_cache(kept_tokens: int, after_10_s: int) -> None:
    fleet = Fleet(fixed(2, 1))
    loop = Loop(fleet)
    loop.run(None, 3)
    for pod in fleet.of("prefill"):
        pod.kept_tokens = kept_tokens
    fleet.spec = fixed(1, 1)
    loop.due = fleet.now
    loop.run(None, 10)
    assert fleet.replicas["prefill"] == after_10_s
    loop.run(None, 15)
    assert fleet.replicas["prefill"] == after_10_s
    loop.run(None, 15)
    assert fleet.replicas["prefill"] == 1


def test_the_role_with_workers_to_spare_loses_them() -> None:
    swinging = spec(pools(prefill=(1, 1), decode=(1, 1), swing=(0, 4)), scaling=FAST_DOWN)
    fleet = Fleet(swinging)
    for role in (names.ROLE_PREFILL, names.ROLE_PREFILL, names.ROLE_DECODE, names.ROLE_DECODE):
        fleet.create("swing", ready=True).role = role
    fleet.replicas["swing"] = 4
    loop = Loop(fleet)
    loop.run((4.0, 1500, 30), 100)
    # Prompts ask for two workers or more, answers for one, and idle decode workers hold no more than others.
    assert fleet.roles().count(names.ROLE_PREFILL) >= 1
    assert names.ROLE_DECODE not in fleet.roles()


def test_a_returning_need_takes_the_drain_back() -> None:
    fleet = Fleet(fixed(1, 3))
    loop = Loop(fleet)
    for _ in range(30):
        fleet.arrive(50, 5000)
    loop.run(None, 5)
    fleet.spec = fixed(1, 2)
    loop.due = fleet.now
    loop.run(None, 4)
    assert [pod.role for pod in fleet.of("decode")].count(names.ROLE_DRAINING) == 1
    fleet.spec = fixed(1, 3)
    loop.run(None, 4)
    assert [pod.role for pod in fleet.of("decode")] == [names.ROLE_DECODE] * 3
    assert all(not pod.drain and pod.cost == 0 for pod in fleet.of("decode"))
    assert fleet.replicas["decode"] == 3


def test_without_the_router_a_drain_waits_for_the_longest_request() -> None:
    fleet = Fleet(fixed(1, 3))
    loop = Loop(fleet)
    loop.run(None, 3)
    fleet.router_known = False
    fleet.spec = fixed(1, 2)
    loop.due = fleet.now
    loop.run(None, 55)
    assert fleet.replicas["decode"] == 3
    loop.run(None, 12)
    assert fleet.replicas["decode"] == 2


def test_unknown_never_shrinks_and_starts_the_window_anew() -> None:
    loop = Loop(Fleet(spec(pools(prefill=(1, 6), decode=(1, 6)), scaling=FAST_DOWN)))
    loop.run(HEAVY, 40)
    loop.run(LIGHT, 40)
    high = dict(loop.replicas)
    assert high["prefill"] >= 4
    loop.fleet.router_known = False
    loop.run(LIGHT, 200)
    assert loop.replicas == high
    assert loop.plan is not None
    assert loop.plan.reasons[0].code == "Unknown"
    loop.fleet.router_known = True
    loop.run(LIGHT, 30)
    assert loop.replicas == high


@pytest.mark.parametrize("limit", [3, 4, 5])
def test_accelerator_budgets_hold_with_the_pods_that_end(limit: int) -> None:
    budgets = {"accelerators": [{"product": "*", "max": limit}]}
    loop = Loop(Fleet(spec(pools(prefill=(1, 6), decode=(1, 6)), scaling=FAST_DOWN | {"budgets": budgets})))
    for load, seconds in ((HEAVY, 60), (LIGHT, 150), ((6.0, 100, 300), 60)):
        for _ in range(seconds):
            loop.run(load, 1)
            assert len(loop.fleet.pods) <= limit
            assert sum(loop.replicas.values()) <= limit
        if load is HEAVY:
            assert loop.plan is not None
            assert loop.plan.binding == f"AcceleratorBudget: the budget of {limit} accelerators"


def test_an_unschedulable_pool_is_not_asked_for_more_and_others_are() -> None:
    fleet = Fleet(spec(pools(prefill=(1, 6), decode=(1, 6), swing=(0, 6))))
    fleet.unschedulable_pools = {"prefill"}
    loop = Loop(fleet)
    loop.run(HEAVY, 60)
    asked = loop.replicas["prefill"]
    loop.run(HEAVY, 60)
    assert loop.replicas["prefill"] == asked
    assert loop.replicas["swing"] >= 3
    assert loop.plan is not None
    assert "NoCapacity" in {reason.code for reason in loop.plan.reasons}


def test_recommend_changes_nothing_and_says_what_it_would_do() -> None:
    loop = Loop(Fleet(spec(pools(prefill=(1, 6), decode=(1, 6)), scaling={"mode": "Recommend"})))
    loop.run(HEAVY, 40)
    assert loop.replicas == {"prefill": 1, "decode": 1}
    assert loop.plan is not None
    assert {pool.name: pool.replicas for pool in loop.plan.pools}["prefill"] >= 3


def test_an_external_pool_is_left_alone() -> None:
    parts = pools(prefill=(1, 6), decode=(1, 6))
    parts[1]["replicas"] = {"mode": "External"}
    fleet = Fleet(spec(parts))
    fleet.replicas["decode"] = 2
    fleet.reconcile()
    loop = Loop(fleet)
    loop.run((4.0, 100, 400), 60)
    assert loop.replicas["decode"] == 2


def test_a_cluster_scaled_to_nothing_keeps_one_worker_of_each_role() -> None:
    fleet = Fleet(spec(pools(swing=(0, 4)), scaling=FAST_DOWN))
    loop = Loop(fleet)
    loop.run(None, 1)
    assert loop.replicas == {"swing": 2}


def test_idle_asks_for_nothing() -> None:
    loop = Loop(Fleet(spec()))
    loop.run(None, 120)
    result = step(loop.fleet.view(), loop.memory, now_unix_s=loop.fleet.now)
    assert result.actions == ()
    assert result.summary == "prefill 1, decode 1, swing 2: Enough"


def test_the_cheaper_pool_grows_first() -> None:
    parts = [
        {"name": "dear", "role": "Prefill", "costPerHour": "4", "replicas": {"min": 1, "max": 6}},
        {"name": "cheap", "role": "Prefill", "costPerHour": "2", "replicas": {"min": 0, "max": 2}},
        {"name": "decode", "role": "Decode", "costPerHour": "4", "replicas": {"min": 1, "max": 6}},
    ]
    loop = Loop(Fleet(spec(parts)))
    loop.run(HEAVY, 31)
    assert loop.replicas["cheap"] == 2
    assert loop.replicas["dear"] >= 2
    parts.reverse()
    other = Loop(Fleet(spec(parts)))
    other.run(HEAVY, 31)
    assert other.replicas == loop.replicas


def test_a_max_below_what_runs_drains_at_once() -> None:
    fleet = Fleet(spec(pools(prefill=(1, 2), decode=(3, 4))))
    loop = Loop(fleet)
    loop.run(None, 3)
    fleet.spec = spec(pools(prefill=(1, 2), decode=(1, 2)))
    loop.due = fleet.now
    loop.run(None, 10)
    assert fleet.replicas["decode"] == 2


def test_replicas_are_never_lowered_below_the_workers_that_are_not_drained() -> None:
    fleet = Fleet(fixed(1, 5))
    loop = Loop(fleet)
    loop.run((4.0, 100, 300), 10)
    fleet.spec = fixed(1, 1)
    loop.due = fleet.now
    for _ in range(120):
        loop.run((4.0, 100, 30), 1)
        kept = [pod for pod in fleet.of("decode") if not pod.drain]
        assert fleet.replicas["decode"] >= len(kept)
    assert fleet.replicas["decode"] == 1
    assert fleet.lost == 0


def test_pods_that_cannot_be_made_are_no_longer_asked_for_when_the_need_goes() -> None:
    fleet = Fleet(fixed(1, 1))
    fleet.failure = {"decode": "exceeded quota"}
    fleet.replicas["decode"] = 4
    result = step(fleet.view(), SizingMemory(), now_unix_s=fleet.now)
    assert result.actions == (SetReplicas(pool="decode", replicas=1, reason="1 workers are enough"),)
