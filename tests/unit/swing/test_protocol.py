"""Worked cases of a flip's life: what each look finds, and the one write that it leads to."""

from dataclasses import replace
from typing import Any

import pytest

from swingpool_control import names
from swingpool_control.actions import EmitEvent, PatchWorker
from swingpool_control.api.status import InferenceClusterStatus
from swingpool_control.figures import Unknown
from swingpool_control.swing.flip import Flip, Phase
from swingpool_control.swing.memory import PendingPatch, SwingMemory, SwingResult
from swingpool_control.swing.step import step
from tests.unit.swing.fleet import T0, Fleet, spec

EXTERNAL: dict[str, Any] = {
    "router": {"type": "External", "external": {"drainSettle": "6s"}},
    "engine": {"type": "Simulated", "maxRequestDuration": "60s"},
}


def flip(phase: Phase, *, age_s: float, from_role: str = "decode") -> Flip:
    to_role = "prefill" if from_role == "decode" else "decode"
    return Flip(
        from_role=from_role,
        to_role=to_role,
        decided_unix_s=T0 - age_s,
        phase=phase,
        phase_since_unix_s=T0 - age_s,
        reason="test",
    )


def flipping(phase: Phase, *, age_s: float, from_role: str = "decode", **parts: Any) -> Fleet:
    """A fleet whose worker swing-3 is in the middle of a flip."""
    fleet = Fleet(spec(**parts))
    state = flip(phase, age_s=age_s, from_role=from_role)
    pod = fleet.pod("swing-3")
    pod.flip = state.to_json()
    pod.role = names.ROLE_DRAINING if phase is Phase.DRAINING else state.to_role
    pod.role_since = T0 - age_s
    return fleet


def look(fleet: Fleet, memory: SwingMemory | None = None) -> SwingResult:
    return step(fleet.view(), memory or SwingMemory(), now_unix_s=fleet.now)


def writes(result: SwingResult) -> list[PatchWorker]:
    return [action for action in result.actions if isinstance(action, PatchWorker)]


def test_the_end_is_told_before_it_is_taken_off_the_pod() -> None:
    fleet = flipping(Phase.SWITCHED, age_s=3)
    fleet.pod("swing-3").first_served = T0 - 1.5
    first = look(fleet)
    assert writes(first) == []
    assert [(record.outcome, record.serving_at) for record in first.flips] == [("Serving", "2025-10-09T08:53:18.500Z")]
    fleet.status = InferenceClusterStatus(flips=list(first.flips))
    [write] = writes(look(fleet, first.memory))
    assert write.annotations == {names.ANNOTATION_FLIP: None}
    assert write.labels == {}
    fleet.apply((write,))
    assert writes(look(fleet, first.memory)) == []


def test_without_traffic_a_flip_waits_and_writes_nothing() -> None:
    fleet = flipping(Phase.SWITCHED, age_s=3600)
    result = look(fleet)
    assert result.actions == ()
    assert [record.outcome for record in result.flips] == ["InProgress"]


def test_what_it_served_before_the_flip_does_not_count() -> None:
    fleet = flipping(Phase.SWITCHED, age_s=2)
    pod = fleet.pod("swing-3")
    pod.role_since, pod.first_served = T0 - 500, T0 - 490
    assert [record.outcome for record in look(fleet).flips] == ["InProgress"]


def test_a_flip_that_the_router_never_takes_up_is_taken_back() -> None:
    fleet = flipping(Phase.SWITCHED, age_s=61)
    fleet.pod("swing-3").in_rotation = False
    result = look(fleet)
    [write] = writes(result)
    assert write.labels == {names.LABEL_ROLE: "decode"}
    assert write.annotations == {names.ANNOTATION_FLIP: None}
    assert [record.outcome for record in result.flips] == ["Aborted"]
    assert result.memory.pending == (PendingPatch(uid="uid-swing-3", role="decode", target="decode", asked_unix_s=T0),)


@pytest.mark.parametrize("gone", ["deleted", "vanished"])
def test_a_worker_that_goes_in_the_middle_is_told(gone: str) -> None:
    fleet = flipping(Phase.SWITCHED, age_s=5)
    first = look(fleet)
    if gone == "deleted":
        fleet.pod("swing-3").deleting = True
    else:
        fleet.pods.remove(fleet.pod("swing-3"))
    result = look(fleet, first.memory)
    assert [record.outcome for record in result.flips] == ["WorkerLost"]
    [event] = [action for action in result.actions if isinstance(action, EmitEvent)]
    assert event.message == "swing-3: flip from decode to prefill ended as WorkerLost"


def test_a_flip_undone_by_hand_is_over() -> None:
    fleet = flipping(Phase.SWITCHED, age_s=5)
    fleet.pod("swing-3").role = "decode"
    assert [record.outcome for record in look(fleet).flips] == ["Aborted"]


def test_a_record_without_its_annotation_is_ended_by_what_is_seen() -> None:
    fleet = flipping(Phase.SWITCHED, age_s=30)
    first = look(fleet)
    fleet.pod("swing-3").flip = ""
    assert [record.outcome for record in look(fleet, first.memory).flips] == ["Aborted"]
    fleet.pod("swing-3").first_served = T0 - 25
    assert [record.outcome for record in look(fleet, first.memory).flips] == ["Serving"]


@pytest.mark.parametrize(
    ("from_role", "idle_s", "switches"), [("decode", 4, False), ("decode", 7, True), ("prefill", 20, False)]
)
def test_an_external_router_gets_a_drained_worker(from_role: str, idle_s: int, switches: bool) -> None:
    fleet = flipping(Phase.DRAINING, age_s=1, from_role=from_role, **EXTERNAL)
    memory, written = SwingMemory(), []
    for _ in range(idle_s + 1):
        result = look(fleet, memory)
        memory = result.memory
        written += writes(result)
        fleet.now += 1
    assert bool(written) is switches
    if switches:
        assert written[0].labels == {"llm-d.ai/role": "prefill", names.LABEL_ROLE: "prefill"}


def test_a_worker_that_never_gets_empty_gets_its_role_back() -> None:
    fleet = flipping(Phase.DRAINING, age_s=61, **EXTERNAL)
    fleet.arrive(10, 5000)
    fleet.pod("swing-3").decodes.append(fleet.queue.popleft())
    [write] = writes(look(fleet))
    assert write.labels == {"llm-d.ai/role": "decode", names.LABEL_ROLE: "decode"}
    assert "maxRequestDuration" in write.reason


def test_unseen_a_draining_worker_waits_for_the_longest_request() -> None:
    fleet = flipping(Phase.DRAINING, age_s=59, **EXTERNAL)
    fleet.router_known = False
    fleet.pod("prefill-1").waiting, fleet.pod("prefill-1").ready = "CrashLoopBackOff", False
    assert writes(look(fleet)) == []
    fleet.now += 2
    [write] = writes(look(fleet))
    assert write.labels[names.LABEL_ROLE] == "prefill"


def test_a_refused_write_is_forgotten_and_a_lost_one_after_a_while() -> None:
    pending = PendingPatch(uid="uid-swing-3", role="prefill", target="prefill", asked_unix_s=T0)
    memory = SwingMemory(pending=(pending,))
    assert memory.refused("uid-swing-3").pending == ()
    assert memory.refused("another").pending == (pending,)
    fleet = Fleet(spec())
    assert look(fleet, memory).memory.pending == (pending,)
    fleet.now += 16
    assert look(fleet, memory).memory.pending == ()


@pytest.mark.parametrize(
    ("pod", "role", "right"),
    [("prefill-1", "decode", "prefill"), ("decode-2", "", "decode"), ("swing-3", "draining", "decode")],
)
def test_a_role_that_nothing_explains_is_put_right(pod: str, role: str, right: str) -> None:
    fleet = Fleet(spec())
    fleet.pod(pod).role = role
    [write] = writes(look(fleet))
    assert (write.pod, write.expected_role, write.labels) == (pod, role, {names.LABEL_ROLE: right})


def test_a_swing_worker_may_be_given_its_other_role_by_hand() -> None:
    fleet = Fleet(spec())
    fleet.pod("swing-3").role = "prefill"
    assert writes(look(fleet)) == []


def test_a_stale_router_is_unknown() -> None:
    fleet = Fleet(spec())
    view = replace(fleet.view(), router=replace(fleet.observation(), at_unix_s=T0 - 60))
    summary = step(view, SwingMemory(), now_unix_s=T0).summary
    assert summary == "hold: the router's figures are older than 30 s, or its clock is behind"
    assert not isinstance(view.router, Unknown)


def test_before_an_external_router_a_flip_that_nobody_needs_any_more_is_taken_back() -> None:
    fleet = flipping(Phase.DRAINING, age_s=5, **EXTERNAL)
    fleet.router_known = False
    (action,) = writes(look(fleet))
    assert action.labels[names.LABEL_ROLE] == "decode", "worker prefill-1 serves prefill"
    fleet.pod("prefill-1").ready = False
    assert writes(look(fleet)) == []


def test_before_an_external_router_a_workers_own_word_ends_its_drain() -> None:
    fleet = flipping(Phase.DRAINING, age_s=0, **EXTERNAL)
    fleet.pod("prefill-1").waiting, fleet.pod("prefill-1").ready = "CrashLoopBackOff", False
    memory, switched = SwingMemory(), []
    for _ in range(8):
        view = fleet.view()
        assert not isinstance(view.router, Unknown)
        silent = Unknown("prefill-1: it does not answer /metrics")
        told = replace(view.router, requests_per_s=silent, arrived_requests=silent, arrived_prompt_tokens=silent)
        result = step(replace(view, router=told), memory, now_unix_s=fleet.now)
        memory = result.memory
        switched += [(fleet.now - T0, w.labels[names.LABEL_ROLE]) for w in writes(result) if w.labels]
        fleet.apply(tuple(w for w in result.actions if isinstance(w, PatchWorker)))
        fleet.run(1.0, dt=0.5)
    assert [(round(at), role) for at, role in switched] == [(6, "prefill")]
