"""The warm reserve: what the other loops see of it, and what becomes of the numbers that they ask for."""

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from swingpool_control import names
from swingpool_control.actions import Action, EngineCall, PatchWorker, SetReplicas
from swingpool_control.api.v1alpha1 import InferenceClusterSpec
from swingpool_control.reserve import mark
from swingpool_control.reserve.mark import Mark, State
from swingpool_control.reserve.step import awake, carry_out, step
from swingpool_control.view import ClusterView, WorkerView
from tests.unit.swing.fleet import T0, Fleet, spec

NOW = T0 + 100.0


def reserving(reserve: int, *, workers: int = 4) -> InferenceClusterSpec:
    bounds = {"min": 1, "max": workers, "reserve": reserve}
    return spec([{"name": "prefill", "role": "Prefill"}, {"name": "decode", "role": "Decode", "replicas": bounds}])


def cluster(reserve: int, *, serving: int = 0, drained: int = 0, asleep: int = 0, waking: int = 0) -> ClusterView:
    """A pool `decode` whose workers are in these states, beside one prefill worker."""
    states = ["serving"] * serving + ["drained"] * drained + ["asleep"] * asleep + ["waking"] * waking
    fleet = Fleet(reserving(reserve, workers=max(4, len(states))))
    for _ in range(len(states) - 1):
        fleet.create("decode", ready=True)
    fleet.replicas["decode"] = len(states)
    view = fleet.view()
    workers = [worker for worker in view.workers if worker.pool == "decode"]
    changed = {worker.uid: as_is(worker, state) for worker, state in zip(workers, states, strict=True)}
    pools = tuple(
        replace(pool, replicas=len(states), current=len(states), ready=len(states), updated=len(states), observed=True)
        if pool.pool == "decode"
        else pool
        for pool in view.pools
    )
    return replace(view, workers=tuple(changed.get(worker.uid, worker) for worker in view.workers), pools=pools)


def as_is(worker: WorkerView, state: str, **changes: Any) -> WorkerView:
    if state == "drained":
        drain = f'{{"role":"decode","sinceUnixS":{T0},"reason":"test"}}'
        return replace(worker, role=names.ROLE_DRAINING, drain=drain, deletion_cost=-2000)
    if state in ("asleep", "waking"):
        known = Mark(
            state=State.ASLEEP if state == "asleep" else State.WAKING, since_unix_s=T0, restarts=worker.restarts
        )
        return replace(worker, role=names.ROLE_ASLEEP, asleep=known.to_json(), **changes)
    return worker


def asked(view: ClusterView, replicas: int) -> tuple[Action, ...]:
    return carry_out(view, [SetReplicas(pool="decode", replicas=replicas, reason="test")], now_unix_s=NOW)


def marks(actions: tuple[Action, ...]) -> list[State]:
    texts = [action.annotations.get(names.ANNOTATION_ASLEEP) for action in actions if isinstance(action, PatchWorker)]
    return [known.state for text in texts if text and (known := mark.parse(text))]


def replicas(actions: tuple[Action, ...]) -> list[int]:
    return [action.replicas for action in actions if isinstance(action, SetReplicas)]


def test_drained_workers_sleep_as_far_as_there_is_room_and_the_others_end() -> None:
    actions = asked(cluster(1, serving=2, drained=2), 2)
    assert marks(actions) == [State.FALLING_ASLEEP]
    assert replicas(actions) == [3]


def test_a_worker_that_falls_asleep_is_no_more_drained_and_no_longer_the_first_to_end() -> None:
    (patch,) = asked(cluster(1, serving=2, drained=1), 2)
    assert isinstance(patch, PatchWorker)
    assert patch.labels[names.LABEL_ROLE] == names.ROLE_ASLEEP
    assert patch.annotations[names.ANNOTATION_DRAIN] is None
    assert patch.annotations[names.ANNOTATION_DELETION_COST] is None


def test_sleeping_workers_are_woken_before_new_ones_are_made() -> None:
    actions = asked(cluster(2, serving=1, asleep=2), 4)
    assert marks(actions) == [State.WAKING, State.WAKING]
    assert replicas(actions) == [4]


def test_without_a_reserve_numbers_stay_what_they_are() -> None:
    assert asked(cluster(0, serving=2, drained=2), 2) == (SetReplicas(pool="decode", replicas=2, reason="test"),)


def test_other_loops_see_no_sleeper_and_a_waking_worker_as_one_that_starts() -> None:
    seen = awake(cluster(2, serving=1, asleep=2, waking=1))
    workers = [worker for worker in seen.workers if worker.pool == "decode"]
    assert [(worker.ready, worker.role) for worker in workers] == [(True, "decode"), (False, "decode")]
    pool = next(pool for pool in seen.pools if pool.pool == "decode")
    assert (pool.replicas, pool.current, pool.ready, pool.asleep) == (2, 2, 1, 2)


def test_a_worker_is_told_until_it_has_answered() -> None:
    view = cluster(2, serving=1, asleep=1, waking=1)
    (call,) = [action for action in step(view, now_unix_s=NOW) if isinstance(action, EngineCall)]
    assert call.call == "wake"
    assert call.then is not None
    assert call.then.labels[names.LABEL_ROLE] == names.ROLE_DECODE
    assert call.then.annotations[names.ANNOTATION_ASLEEP] is None


def test_a_container_that_starts_anew_in_its_sleep_is_put_to_sleep_again() -> None:
    view = cluster(1, serving=1, asleep=1)
    restarted = tuple(replace(one, restarts=1) if one.asleep else one for one in view.workers)
    (call,) = step(replace(view, workers=restarted), now_unix_s=NOW)
    assert isinstance(call, EngineCall)
    assert call.call == "sleep"
    assert call.then is not None
    known = mark.parse(str(call.then.annotations[names.ANNOTATION_ASLEEP]))
    assert known == Mark(state=State.ASLEEP, since_unix_s=NOW, restarts=1)


def test_a_smaller_reserve_ends_the_surplus_and_marks_it_first() -> None:
    view = cluster(1, serving=1, asleep=3)
    actions = step(view, now_unix_s=NOW)
    assert {
        action.annotations[names.ANNOTATION_DELETION_COST] for action in actions if isinstance(action, PatchWorker)
    } == {"-2000"}
    cheap = {action.uid for action in actions if isinstance(action, PatchWorker)}
    assert len(cheap) == 2
    workers = tuple(replace(one, deletion_cost=-2000) if one.uid in cheap else one for one in view.workers)
    assert replicas(step(replace(view, workers=workers), now_unix_s=NOW)) == [2]


@pytest.mark.parametrize("text", ["{", "[]", '{"state":"Dozing","sinceUnixS":1}', '{"state":"Asleep","sinceUnixS":-5}'])
def test_a_mark_that_cannot_be_read_wakes_its_worker(text: str) -> None:
    known = mark.parse(text)
    assert known is not None
    assert known.state is State.WAKING


@given(
    reserve=st.integers(0, 4),
    serving=st.integers(1, 4),
    drained=st.integers(0, 3),
    asleep=st.integers(0, 3),
    wanted=st.integers(1, 9),
)
def test_as_many_serve_as_were_asked_for_and_no_more_sleep_than_may(
    reserve: int, serving: int, drained: int, asleep: int, wanted: int
) -> None:
    view = cluster(reserve, serving=serving, drained=drained, asleep=asleep)
    before = serving + drained
    if wanted < serving:
        return  # sizing lowers replicas by drained workers only
    actions = asked(view, wanted)
    pods = (replicas(actions) or [before + asleep])[0]
    turned = marks(actions)
    sleeping = asleep + turned.count(State.FALLING_ASLEEP) - turned.count(State.WAKING)
    assert pods - sleeping == wanted
    assert sleeping <= max(reserve, asleep)
    assert turned.count(State.WAKING) == (min(asleep, wanted - before) if wanted > before else 0)


@pytest.mark.parametrize(
    ("state", "allowed"),
    [
        (None, set()),
        (State.FALLING_ASLEEP, {"sleep", "wake"}),
        (State.ASLEEP, {"sleep", "wake"}),
        (State.WAKING, {"wake"}),
    ],
)
def test_only_what_a_pod_speaks_of_is_passed_on(state: State | None, allowed: set[str]) -> None:
    text = "" if state is None else Mark(state=state, since_unix_s=T0, restarts=0).to_json()
    assert {call for call in ("sleep", "wake") if mark.allows(text, call)} == allowed
