"""Worked cases in which only the guard stands between a decision and the last ready worker of a role."""

from dataclasses import replace
from typing import Any

from swingpool_control.actions import PatchWorker
from swingpool_control.sizing.memory import SizingMemory
from swingpool_control.sizing.step import step as size
from swingpool_control.swing import guards
from swingpool_control.swing.flip import Flip, Phase
from swingpool_control.swing.memory import PendingPatch, SwingMemory
from swingpool_control.swing.step import step as swing
from tests.unit.swing.fleet import Fleet, Request, spec


def swing_pool(count: int, *, fixed: bool = False) -> Fleet:
    replicas: dict[str, Any] = {"mode": "Fixed", "count": count} if fixed else {"min": count, "max": count}
    return Fleet(spec([{"name": "swing", "role": "Swing", "replicas": replicas}]))


def load(fleet: Fleet, name: str, sequences: int) -> None:
    pod = fleet.pod(name)
    pod.decodes += [Request(isl=50, osl=5000, arrived=fleet.now) for _ in range(sequences)]


def moved(fleet: Fleet, memory: SwingMemory) -> set[str]:
    """Pods that two looks at a fleet give another role."""
    found: set[str] = set()
    for _ in range(2):
        result = swing(fleet.view(), memory, now_unix_s=fleet.now)
        memory = result.memory
        found |= {action.pod for action in result.actions if isinstance(action, PatchWorker) and action.labels}
        fleet.now += 1
    return found


def hot_decode() -> Fleet:
    """Four swing workers, two of them prefill, and far more sequences than the others can serve."""
    fleet = swing_pool(4)
    fleet.pods[0].role = fleet.pods[1].role = "prefill"
    load(fleet, "swing-3", 80)
    load(fleet, "swing-4", 80)
    return fleet


def test_without_hindrance_one_of_two_prefill_workers_helps() -> None:
    assert moved(hot_decode(), SwingMemory()) == {"swing-1"}


def test_a_worker_that_is_about_to_serve_does_not_count_yet() -> None:
    fleet = hot_decode()
    pod = fleet.pod("swing-2")
    pod.in_rotation = False
    state = Flip(
        from_role="decode",
        to_role="prefill",
        decided_unix_s=fleet.now - 1,
        phase=Phase.SWITCHED,
        phase_since_unix_s=fleet.now - 1,
        reason="test",
    )
    pod.flip = state.to_json()
    pod.role = "decode"
    pending = PendingPatch(uid=pod.uid, role="prefill", target="prefill", asked_unix_s=fleet.now)
    assert moved(fleet, SwingMemory(pending=(pending,))) == set()


def test_a_worker_that_was_just_asked_to_leave_does_not_count_any_more() -> None:
    fleet = hot_decode()
    load(fleet, fleet.create("swing", ready=True).name, 80)
    load(fleet, "swing-3", 400)
    leaves = PendingPatch(uid="uid-swing-1", role="decode", target="decode", asked_unix_s=fleet.now)
    comes = PendingPatch(uid="uid-swing-5", role="prefill", target="prefill", asked_unix_s=fleet.now)
    assert moved(fleet, SwingMemory(pending=(leaves, comes))) == set()


def test_a_hung_worker_does_not_count() -> None:
    fleet = hot_decode()
    fleet.pod("swing-2").in_rotation = False
    assert moved(fleet, SwingMemory()) == set()


def test_a_scale_down_does_not_take_the_last_worker_of_a_role_though_it_is_the_cheapest() -> None:
    fleet = swing_pool(3, fixed=True)
    fleet.pods[0].role = "prefill"
    load(fleet, "swing-2", 5)
    load(fleet, "swing-3", 7)
    fleet.spec = swing_pool(2, fixed=True).spec
    result = size(fleet.view(), SizingMemory(), now_unix_s=fleet.now)
    assert [action.pod for action in result.actions if isinstance(action, PatchWorker)] == ["swing-2"]


def test_a_worker_that_is_empty_goes_before_one_that_still_drains() -> None:
    fleet = swing_pool(4, fixed=True)
    fleet.pods[0].role = "prefill"
    load(fleet, "swing-3", 3)
    load(fleet, "swing-4", 9)
    fleet.pod("swing-3").created += 60  # Kubernetes would end it first: it is the younger one
    fleet.spec = swing_pool(2, fixed=True).spec
    memory = SizingMemory()
    for _ in range(12):
        result = size(fleet.view(), memory, now_unix_s=fleet.now)
        memory = result.memory
        fleet.apply(result.actions)
        fleet.now += 2
        fleet.run(0.1)
    assert {pod.name: pod.cost for pod in fleet.pods if not pod.deleting} == {
        "swing-1": 0,
        "swing-3": -1000,
        "swing-4": 0,
    }
    assert fleet.replicas == {"swing": 3}
    assert fleet.lost == 0


def test_a_worker_whose_last_change_was_not_answered_serves_nothing_for_certain() -> None:
    fleet = Fleet(spec())
    uid = fleet.pod("decode-2").uid
    view = replace(fleet.view(), uncertain=frozenset({uid}))
    assert uid in guards.serving(fleet.view())["decode"]
    assert uid not in guards.serving(view)["decode"]


def test_a_pool_that_the_spec_dropped_is_kept_while_it_alone_serves_a_role() -> None:
    fleet = Fleet(spec())
    fleet.spec = spec([{"name": "swing", "role": "Swing", "replicas": {"min": 2, "max": 2}}])
    assert guards.only_served_by(fleet.view(), "prefill") == "prefill"
    assert guards.only_served_by(fleet.view(), "decode") == "", "swing workers decode"
    # Nobody but the dropped pool prefills: a swing worker takes over, and then it may go.
    memory = SwingMemory()
    for _ in range(3):
        result = swing(fleet.view(), memory, now_unix_s=fleet.now)
        memory = result.memory
        fleet.apply(result.actions)
        fleet.run(1.0, dt=0.5)
    assert sorted(fleet.roles()) == ["decode", "prefill"]
    assert guards.only_served_by(fleet.view(), "prefill") == ""
