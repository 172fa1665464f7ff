"""The swing loop in a closed loop with requests: quick under a step, still under noise, and never without a role."""

import random
from dataclasses import replace
from typing import Any

import pytest

from swingpool_control import names
from swingpool_control.api.status import InferenceClusterStatus
from swingpool_control.swing.memory import SwingMemory
from swingpool_control.swing.step import step
from swingpool_control.timestamps import unix_seconds
from tests.unit.swing.fleet import Fleet, spec

PROMPT_HEAVY = (9.0, 1800, 24)
GENERATION_HEAVY = (9.0, 150, 240)


class Loop:
    """Manager and load around a fleet."""

    def __init__(self, fleet: Fleet, *, seed: int = 1) -> None:
        self.fleet = fleet
        self.memory = SwingMemory()
        self.rng = random.Random(seed)
        self.summaries: list[str] = []

    def period(self, load: tuple[float, int, int] | None, *, seconds: float = 1.0) -> None:
        for _ in range(round(seconds / 0.1)):
            if load is not None:
                rate, isl, osl = load
                for _ in range(self.poisson(rate * 0.1)):
                    self.fleet.arrive(isl, osl)
            self.fleet.run(0.1, dt=0.1)
        self.decide()

    def poisson(self, mean: float) -> int:
        count, at = 0, self.rng.expovariate(1.0)
        while at < mean:
            count, at = count + 1, at + self.rng.expovariate(1.0)
        return count

    def decide(self) -> None:
        self.fleet.guard()
        result = step(self.fleet.view(), self.memory, now_unix_s=self.fleet.now)
        self.fleet.apply(result.actions)
        self.memory = result.memory
        self.summaries.append(result.summary)
        self.fleet.status = InferenceClusterStatus(flips=list(result.flips))

    def phase(self, load: tuple[float, int, int] | None, seconds: int) -> None:
        for _ in range(seconds):
            self.period(load)


@pytest.mark.parametrize("seed", range(2))
def test_both_swing_workers_follow_the_load_there_and_back(seed: int) -> None:
    loop = Loop(Fleet(spec()), seed=seed)
    loop.phase(None, 3)
    for load, role in (
        (PROMPT_HEAVY, names.ROLE_PREFILL),
        (GENERATION_HEAVY, names.ROLE_DECODE),
        (PROMPT_HEAVY, names.ROLE_PREFILL),
    ):
        before = len(loop.memory.flips)
        loop.phase(load, 20)
        assert loop.fleet.roles() == [role, role]
        loop.phase(load, 15)
        assert loop.fleet.roles() == [role, role]
        assert len(loop.memory.flips) == before + 2
    assert not loop.fleet.refused
    flips = loop.memory.flips
    assert {flip.outcome for flip in flips} == {"Serving"}
    waits = [unix_seconds(flip.serving_at or "") - unix_seconds(flip.decided_at) for flip in flips]
    assert max(waits) <= 3.0
    assert all(not pod.flip for pod in loop.fleet.pods)


def test_a_plain_step_is_decided_within_two_periods() -> None:
    loop = Loop(Fleet(spec()))
    loop.phase(None, 3)
    for _ in range(40):
        loop.fleet.arrive(1800, 24)
    loop.period(None)
    assert loop.fleet.roles() == ["decode", "decode"]
    loop.period(PROMPT_HEAVY)
    assert loop.fleet.roles() == ["prefill", "prefill"]


def test_idle_asks_for_nothing() -> None:
    loop = Loop(Fleet(spec()))
    loop.phase(None, 5)
    view = loop.fleet.view()
    result = step(view, loop.memory, now_unix_s=loop.fleet.now)
    assert result.actions == ()
    assert len(set(loop.summaries[2:])) == 1


@pytest.mark.parametrize("seed", range(2))
def test_a_balanced_load_does_not_flap(seed: int) -> None:
    loop = Loop(Fleet(spec()), seed=seed)
    loop.phase((5.0, 900, 130), 30)
    before = len(loop.memory.flips)
    loop.phase((5.0, 900, 130), 120)
    assert len(loop.memory.flips) - before <= 2


def test_one_hot_worker_moves_nothing() -> None:
    fleet = Fleet(spec())
    loop = Loop(fleet)
    loop.phase(None, 3)
    for _ in range(30):
        fleet.arrive(100, 2000)
    fleet.run(1.0)
    hot = fleet.pod("decode-2")
    for pod in fleet.pods:
        if pod is not hot:
            hot.decodes += pod.decodes
            pod.decodes = []
    assert len(hot.decodes) == 30
    loop.phase(None, 3)
    assert loop.memory.flips == ()


def test_unknown_holds_and_forgets_what_it_saw() -> None:
    loop = Loop(Fleet(spec()))
    loop.phase(None, 3)
    loop.fleet.router_known = False
    for _ in range(40):
        loop.fleet.arrive(1800, 24)
    loop.phase(PROMPT_HEAVY, 5)
    assert loop.fleet.roles() == ["decode", "decode"]
    assert loop.summaries[-1] == "hold: no picker answered"
    loop.fleet.router_known = True
    loop.period(PROMPT_HEAVY)
    assert loop.fleet.roles() == ["decode", "decode"]
    loop.period(PROMPT_HEAVY)
    assert loop.fleet.roles() == ["prefill", "prefill"]


def test_recommend_only_says_what_it_would_do() -> None:
    loop = Loop(Fleet(spec(scaling={"mode": "Recommend"})))
    loop.phase(PROMPT_HEAVY, 10)
    assert loop.fleet.roles() == ["decode", "decode"]
    assert loop.memory.flips == ()
    assert any(summary.startswith("recommended only: swing-3 to prefill") for summary in loop.summaries)


def test_a_new_manager_carries_on_with_flips_that_it_finds() -> None:
    loop = Loop(Fleet(spec()))
    loop.phase(None, 3)
    for _ in range(10):
        loop.period(PROMPT_HEAVY)
        if loop.fleet.roles() != ["decode", "decode"]:
            break
    loop.fleet.status = InferenceClusterStatus()
    loop.memory = SwingMemory()
    loop.phase(PROMPT_HEAVY, 8)
    assert loop.fleet.roles() == ["prefill", "prefill"]
    assert [flip.outcome for flip in loop.memory.flips] == ["Serving", "Serving"]
    assert all(not pod.flip for pod in loop.fleet.pods)


def test_workers_of_a_pool_that_grows_from_zero_are_used_once_ready() -> None:
    pools: list[dict[str, Any]] = [
        {"name": "prefill", "role": "Prefill"},
        {"name": "decode", "role": "Decode"},
        {"name": "swing", "role": "Swing", "replicas": {"min": 0, "max": 2}},
    ]
    loop = Loop(Fleet(spec(pools)))
    loop.phase(PROMPT_HEAVY, 5)
    assert loop.memory.flips == ()
    loop.fleet.replicas["swing"] = 2
    loop.fleet.reconcile()
    loop.phase(PROMPT_HEAVY, 8)
    assert loop.fleet.roles() == ["prefill", "prefill"]


def test_a_role_that_nobody_serves_is_rescued_at_once_when_requests_need_it() -> None:
    fleet = Fleet(spec())
    loop = Loop(fleet)
    loop.phase((2.0, 200, 20), 3)
    fleet.pod("prefill-1").ready = False
    fleet.pod("prefill-1").waiting = "CrashLoopBackOff"
    loop.period((2.0, 200, 20))
    assert sorted(fleet.roles()) == ["decode", "prefill"]
    loop.phase((2.0, 200, 20), 10)
    assert sorted(fleet.roles()) == ["decode", "prefill"]


def test_a_starting_cluster_waits_for_its_own_prefill_worker() -> None:
    fleet = Fleet(spec(), start_s=8.0)
    fleet.pod("prefill-1").ready = False
    loop = Loop(fleet)
    loop.phase(None, 12)
    assert fleet.roles() == ["decode", "decode"]


def test_the_last_decode_worker_stays_however_hot_prefill_is() -> None:
    pools: list[dict[str, Any]] = [{"name": "swing", "role": "Swing", "replicas": {"min": 2, "max": 2}}]
    loop = Loop(Fleet(spec(pools)))
    loop.phase((20.0, 2000, 4), 15)
    assert sorted(loop.fleet.roles()) == ["decode", "prefill"]


def test_a_write_that_is_not_seen_yet_counts_for_neither_role() -> None:
    fleet = Fleet(spec([{"name": "swing", "role": "Swing", "replicas": {"min": 4, "max": 4}}]))
    fleet.pods[0].role = fleet.pods[1].role = "prefill"
    loop = Loop(fleet)
    fleet.guard()
    for _ in range(80):
        fleet.arrive(50, 2000)
    loop.phase(None, 2)
    stale = fleet.view()
    memory = loop.memory
    for _ in range(6):
        result = step(stale, memory, now_unix_s=fleet.now)
        memory = result.memory
        fleet.apply(result.actions)
        fleet.now += 1
        stale = replace(stale, router=fleet.observation())
    assert len(fleet.serving("prefill")) >= 1
