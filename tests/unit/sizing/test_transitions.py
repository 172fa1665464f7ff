"""Changes of a spec, and rollouts, in the middle of a drain: nothing is left behind, and nothing is taken twice."""

from dataclasses import replace
from typing import Any

from swingpool_control import names
from swingpool_control.actions import Action, EmitEvent, PatchWorker, SetReplicas
from swingpool_control.figures import Unknown
from swingpool_control.sizing.memory import SizingMemory
from swingpool_control.sizing.step import step
from swingpool_control.view import ClusterView
from tests.unit.sizing.test_sizing_loop import fixed, pools
from tests.unit.swing.fleet import T0, Fleet, spec


def decide(view: ClusterView, *, now_unix_s: float = T0) -> tuple[Action, ...]:
    return step(view, SizingMemory(), now_unix_s=now_unix_s).actions


def draining(fleet: Fleet, name: str, *, age_s: float = 5.0) -> None:
    pod = fleet.pod(name)
    pod.drain = f'{{"role":"decode","sinceUnixS":{T0 - age_s},"reason":"test"}}'
    pod.role, pod.cost = names.ROLE_DRAINING, -1000


def in_pool(view: ClusterView, pool: str, **changes: Any) -> ClusterView:
    states = tuple(replace(state, **changes) if state.pool == pool else state for state in view.pools)
    return replace(view, pools=states)


def test_a_pool_given_to_another_scaler_gets_its_drained_workers_back() -> None:
    fleet = Fleet(fixed(1, 3))
    draining(fleet, "decode-3")
    fleet.spec = spec([*pools(prefill=(1, 1)), external("decode")])
    actions = decide(fleet.view())
    assert [action.pod for action in actions if isinstance(action, PatchWorker)] == ["decode-3"]
    fleet.apply(actions)
    pod = fleet.pod("decode-3")
    assert (pod.role, pod.drain, pod.cost) == ("decode", "", 0)
    assert decide(fleet.view()) == ()


def external(name: str) -> dict[str, Any]:
    return {"name": name, "role": name.capitalize(), "replicas": {"mode": "External"}}


def test_during_a_rollout_no_further_worker_is_drained() -> None:
    fleet = Fleet(fixed(1, 4))
    fleet.spec = fixed(1, 3)
    draining(fleet, "decode-3")
    surge = fleet.create("decode", ready=True)
    rolling = in_pool(fleet.view(), "decode", current=5, updated=1)
    assert surge.pool == "decode"
    assert decide(rolling) == ()


def test_during_a_rollout_no_drain_begins() -> None:
    fleet = Fleet(fixed(1, 4))
    fleet.spec = fixed(1, 3)
    assert [action.pod for action in decide(fleet.view()) if isinstance(action, PatchWorker)] == ["decode-2"]
    assert decide(in_pool(fleet.view(), "decode", current=4, updated=1)) == ()


def test_a_worker_that_the_router_still_sends_to_is_not_empty() -> None:
    fleet = Fleet(fixed(1, 3))
    fleet.spec = fixed(1, 2)
    draining(fleet, "decode-3")
    memory = SizingMemory()
    for seen_by_router in (False, True):
        found: list[Action] = []
        for _ in range(4):
            view = fleet.view()
            if not seen_by_router:
                view = replace(view, router=unaware(view, "decode-3"))
            result = step(view, memory, now_unix_s=fleet.now)
            memory = result.memory
            found += [action for action in result.actions if isinstance(action, SetReplicas)]
            fleet.run(2.0, dt=1.0)
        assert bool(found) == seen_by_router


def unaware(view: ClusterView, pod: str) -> Any:
    """What a router tells that has not seen yet that a worker drains."""
    router: Any = view.router
    workers = tuple(
        replace(worker, role="decode", in_rotation=True) if worker.pod == pod else worker for worker in router.workers
    )
    return replace(router, workers=workers)


def test_before_an_external_router_a_workers_own_word_ends_its_drain() -> None:
    outside = {"router": {"type": "External", "external": {"drainSettle": "6s"}}}
    wanted = [
        {"name": name, "role": name.capitalize(), "replicas": {"mode": "Fixed", "count": count}}
        for name, count in (("prefill", 1), ("decode", 3))
    ]
    fleet = Fleet(spec(wanted, **outside))
    wanted[1]["replicas"] = {"mode": "Fixed", "count": 2}
    fleet.spec = spec(wanted, **outside)
    draining(fleet, "decode-3", age_s=0)
    for running, expected in ((1.0, False), (0.0, True)):
        memory, lowered = SizingMemory(), False
        for _ in range(5):
            view = fleet.view()
            assert not isinstance(view.router, Unknown)
            told = tuple(replace(one, running=running) if one.pod == "decode-3" else one for one in view.router.workers)
            silent = Unknown("decode-1: it does not answer /metrics")
            router = replace(view.router, workers=told, requests_per_s=silent, arrived_requests=silent)
            result = step(replace(view, router=router), memory, now_unix_s=fleet.now)
            memory = result.memory
            lowered = lowered or any(isinstance(action, SetReplicas) for action in result.actions)
            fleet.run(2.0, dt=1.0)
        assert lowered == expected


def test_others_give_way_for_a_pool_below_its_fewest() -> None:
    wanted = pools(prefill=(2, 2), decode=(1, 6))
    fleet = Fleet(spec(wanted, scaling={"budgets": {"accelerators": [{"product": "*", "max": 6}]}}))
    fleet.replicas |= {"prefill": 1, "decode": 5}
    fleet.pods = [pod for pod in fleet.pods if pod.name != "prefill-2"]
    for _ in range(4):
        fleet.create("decode", ready=True)
    memory = SizingMemory()
    for _ in range(20):
        result = step(fleet.view(), memory, now_unix_s=fleet.now)
        memory = result.memory
        fleet.apply(result.actions)
        assert len(fleet.pods) <= 6
        fleet.run(5.0, dt=2.5)
    assert fleet.replicas == {"prefill": 2, "decode": 4}


def test_a_number_that_something_else_set_is_taken_over_where_it_may_stay() -> None:
    fleet = Fleet(spec(pools(prefill=(1, 1), decode=(1, 4))))
    fleet.replicas["decode"] = 2
    fleet.create("decode", ready=True)
    actions = decide(in_pool(fleet.view(), "decode", foreign_scaler="kubectl"))
    assert [(a.pool, a.replicas) for a in actions if isinstance(a, SetReplicas)] == [("decode", 2)]
    assert [a.message for a in actions if isinstance(a, EmitEvent)] == [
        "pool decode: kubectl set 2 replicas, which Swingpool decides"
    ]
    fleet.spec = spec(pools(prefill=(1, 1), decode=(1, 4)), scaling={"mode": "Recommend"})
    assert decide(in_pool(fleet.view(), "decode", foreign_scaler="kubectl")) == ()
