"""A rolling update of swing workers, as the Deployment controller does it: both roles are served at every moment."""

from dataclasses import replace
from typing import Any

import pytest

from swingpool_control import names
from swingpool_control.swing.memory import SwingMemory
from swingpool_control.swing.rollout import COST_KEPT
from swingpool_control.swing.step import step
from swingpool_control.view import ClusterView
from tests.unit.swing.fleet import Fleet, spec

MIN_READY_S = 5.0


def fleet_of(count: int, *, prefill: int, **parts: Any) -> Fleet:
    pools = [{"name": "swing", "role": "Swing", "replicas": {"min": count, "max": count}}]
    fleet = Fleet(spec(pools, **parts))
    for pod in fleet.pods[:prefill]:
        pod.role = names.ROLE_PREFILL
    fleet.guard()
    return fleet


class Rollout:
    """One worker more, ready for a while; then the cheapest old one ends."""

    def __init__(self, fleet: Fleet, *, spiteful: bool) -> None:
        self.fleet = fleet
        self.memory = SwingMemory()
        self.spiteful = spiteful
        self.costs_written = 0

    def view(self) -> ClusterView:
        view = self.fleet.view()
        states = tuple(replace(state, updated=1 if self.old() else state.current) for state in view.pools)
        return replace(view, pools=states)

    def old(self) -> list[Any]:
        return [pod for pod in self.fleet.of("swing") if pod.revision == "1"]

    def second(self) -> None:
        result = step(self.view(), self.memory, now_unix_s=self.fleet.now)
        self.memory = result.memory
        self.costs_written += sum(
            names.ANNOTATION_DELETION_COST in getattr(action, "annotations", {}) for action in result.actions
        )
        self.fleet.apply(result.actions)
        self.fleet.run(1.0, dt=0.5)
        self.fleet.check()

    def run(self) -> None:
        while self.old():
            pod = self.fleet.create("swing")
            pod.revision = "2"
            while not pod.ready:
                self.second()
            for _ in range(int(MIN_READY_S)):
                self.second()
            self.end_one()
            self.second()
        for _ in range(5):
            self.second()

    def end_one(self) -> None:
        """End an old worker; among equally dear ones the one that hurts most, or the one that hurts least."""
        lonely = {pod.name: len(self.fleet.serving(pod.role)) for pod in self.old()}
        sign = 1 if self.spiteful else -1
        victim = min(self.old(), key=lambda pod: (pod.cost, sign * lonely[pod.name]))
        victim.deleting = True
        self.fleet.check()


@pytest.mark.parametrize("spiteful", [True, False])
@pytest.mark.parametrize(("count", "prefill"), [(2, 1), (3, 1), (3, 2), (5, 2), (5, 4)])
def test_both_roles_are_served_all_the_while(count: int, prefill: int, *, spiteful: bool) -> None:
    fleet = fleet_of(count, prefill=prefill)
    rollout = Rollout(fleet, spiteful=spiteful)
    rollout.run()
    assert {pod.revision for pod in fleet.of("swing")} == {"2"}
    assert fleet.serving(names.ROLE_PREFILL)
    assert all(pod.cost == 0 for pod in fleet.of("swing")), "what was dear is cheap again"
    assert rollout.costs_written <= 4, "one worker of each role, dear and cheap again"


def test_no_rollout_no_write() -> None:
    fleet = fleet_of(3, prefill=1)
    memory = SwingMemory()
    for _ in range(3):
        result = step(fleet.view(), memory, now_unix_s=fleet.now)
        assert result.actions == ()
        memory = result.memory
        fleet.run(1.0, dt=0.5)


def test_a_recommendation_leaves_costs_alone() -> None:
    fleet = fleet_of(2, prefill=1, scaling={"mode": "Recommend"})
    fleet.create("swing", ready=True).revision = "2"
    assert step(fleet.view(), SwingMemory(), now_unix_s=fleet.now).actions == ()


def test_a_role_that_dedicated_workers_serve_needs_no_swing_worker() -> None:
    fleet = Fleet(spec())
    fleet.pod("swing-3").role = names.ROLE_PREFILL
    fleet.create("swing", ready=True).revision = "2"
    fleet.guard()
    assert step(fleet.view(), SwingMemory(), now_unix_s=fleet.now).actions == ()
    assert COST_KEPT > 0
