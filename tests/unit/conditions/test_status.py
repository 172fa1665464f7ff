"""The status: quiet while nothing happens, and telling what is wrong, what was tried and what to do."""

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from swingpool_control.api.status import Condition, InferenceClusterStatus, Plan, PlannedPool, Reason
from swingpool_control.conditions import status as statuses
from swingpool_control.conditions.conditions import Finding, Type, find, set_condition
from swingpool_control.figures import Unknown
from swingpool_control.observation import Percentiles, RouterObservation
from swingpool_control.sizing.memory import SizingMemory
from swingpool_control.sizing.step import step as size
from swingpool_control.swing.memory import SwingMemory
from swingpool_control.swing.step import step as swing
from swingpool_control.timestamps import rfc3339
from swingpool_control.view import ClusterView, PoolView
from tests.unit.swing.fleet import T0, Fleet, spec


def build(view: ClusterView, **parts: Any) -> InferenceClusterStatus:
    arguments: dict[str, Any] = {"plan": None, "flips": (), "now_unix_s": T0, "router_seen_unix_s": T0} | parts
    return statuses.build(view, **arguments)


def condition(status: InferenceClusterStatus, kind: Type) -> Condition:
    found = find(status.conditions, kind)
    assert found is not None
    return found


def pool_view(fleet: Fleet, name: str, **changes: Any) -> ClusterView:
    view = fleet.view()
    changed: tuple[PoolView, ...] = tuple(
        replace(pool, **changes) if pool.pool == name else pool for pool in view.pools
    )
    return replace(view, pools=changed)


def test_a_whole_cluster_is_ready() -> None:
    status = build(Fleet(spec()).view())
    assert [(item.type, item.status) for item in status.conditions] == [
        ("Ready", "True"),
        ("Progressing", "False"),
        ("Degraded", "False"),
        ("MetricsAvailable", "True"),
        ("ObjectivesMet", "Unknown"),
        ("RolesBalanced", "Unknown"),
        ("CapacityAvailable", "True"),
        ("ScalingLimited", "False"),
    ]
    assert status.roles == "1 prefill, 3 decode"
    assert status.workers == "4/4"
    assert status.endpoint == "http://chat-router.default.svc"


def test_idle_writes_nothing() -> None:
    fleet = Fleet(spec())
    swing_memory, sizing_memory = SwingMemory(), SizingMemory()
    seen = []
    for _ in range(90):
        fleet.run(1.0, dt=0.5)
        swung = swing(fleet.view(), swing_memory, now_unix_s=fleet.now)
        sized = size(fleet.view(), sizing_memory, now_unix_s=fleet.now)
        swing_memory, sizing_memory = swung.memory, sized.memory
        assert swung.actions == sized.actions == ()
        fleet.status = build(
            fleet.view(),
            plan=sized.plan,
            flips=swung.flips,
            now_unix_s=fleet.now,
            router_seen_unix_s=swing_memory.router_seen_unix_s,
        )
        seen.append(fleet.status)
    assert all(status == seen[0] for status in seen)


def test_ready_is_of_this_generation() -> None:
    view = replace(Fleet(spec()).view(), generation=7)
    ready = condition(build(view, applied_generation=6), Type.READY)
    assert (ready.status, ready.reason, ready.observed_generation) == ("False", "Applying", 7)
    assert condition(build(view, applied_generation=7), Type.READY).status == "True"


@pytest.mark.parametrize(
    ("pods", "reason"),
    [({"prefill-1"}, "NoPrefillWorker"), ({"decode-2", "swing-3", "swing-4"}, "NoDecodeWorker")],
)
def test_a_role_that_nobody_serves_is_not_ready(pods: set[str], reason: str) -> None:
    fleet = Fleet(spec())
    for pod in fleet.pods:
        pod.ready = pod.name not in pods
    ready = condition(build(fleet.view()), Type.READY)
    assert (ready.status, ready.reason) == ("False", reason)


def test_a_pool_below_its_bounds_is_not_ready() -> None:
    fleet = Fleet(spec())
    fleet.pod("swing-3").ready = False
    ready = condition(build(fleet.view()), Type.READY)
    assert (ready.status, ready.reason) == ("False", "PoolsNotReady")
    assert "swing" in ready.message
    assert condition(build(fleet.view()), Type.PROGRESSING).reason == "WorkersStarting"


def test_a_rollout_is_progress_and_not_ready_of_this_generation() -> None:
    view = pool_view(Fleet(spec()), "decode", updated=0)
    status = build(view)
    assert condition(status, Type.READY).reason == "RollingOut"
    assert condition(status, Type.PROGRESSING).status == "True"


@pytest.mark.parametrize(
    ("failure", "reason", "remedy"),
    [
        ("pods is forbidden: exceeded quota: gpus", "QuotaExceeded", "raise the ResourceQuota"),
        ('admission webhook "x" denied the request: no', "AdmissionRefused", "podTemplate"),
        ("pods is forbidden: violates PodSecurity", "PodsForbidden", "allow such pods"),
        ("serviceaccount not found", "PodsNotCreated", "ReplicaSet"),
    ],
)
def test_pods_that_cannot_be_made(failure: str, reason: str, remedy: str) -> None:
    status = build(pool_view(Fleet(spec()), "decode", failure=failure))
    degraded = condition(status, Type.DEGRADED)
    assert (degraded.status, degraded.reason) == ("True", reason)
    assert remedy in degraded.message
    assert failure in degraded.message
    assert condition(status, Type.CAPACITY_AVAILABLE).status == "False"


def test_a_pod_that_no_node_takes_tells_what_was_asked_for() -> None:
    fleet = Fleet(spec())
    pod = fleet.pod("swing-3")
    pod.ready, pod.unschedulable = False, "0/2 nodes are available: 2 Insufficient nvidia.com/gpu. preemption: none"
    status = build(fleet.view())
    degraded = condition(status, Type.DEGRADED)
    assert degraded.reason == "Unschedulable"
    assert "1 x nvidia.com/gpu: 0/2 nodes are available: 2 Insufficient nvidia.com/gpu;" in degraded.message
    assert next(pool.unschedulable for pool in status.pools if pool.name == "swing") == 1
    assert condition(status, Type.PROGRESSING).status == "False"


@pytest.mark.parametrize(
    ("waiting", "reason"),
    [
        ("ImagePullBackOff", "ImagePullFailed"),
        ("ErrImagePull", "ImagePullFailed"),
        ("CrashLoopBackOff", "CrashLooping"),
        ("CreateContainerConfigError", "ContainerFailed"),
    ],
)
def test_containers_that_do_not_run(waiting: str, reason: str) -> None:
    fleet = Fleet(spec())
    pod = fleet.pod("swing-3")
    pod.ready, pod.waiting = False, waiting
    assert condition(build(fleet.view()), Type.DEGRADED).reason == reason


def test_the_kubelets_two_words_for_one_failure_change_nothing() -> None:
    fleet = Fleet(spec())
    pod = fleet.pod("swing-3")
    pod.ready, pod.waiting = False, "ImagePullBackOff"
    fleet.status = build(fleet.view())
    pod.waiting = "ErrImagePull"
    assert build(fleet.view(), now_unix_s=T0 + 60, router_seen_unix_s=T0 + 60) == fleet.status


def test_children_that_cannot_be_applied() -> None:
    status = build(Fleet(spec()).view(), apply_error="deployments is forbidden", applied_generation=0)
    degraded = condition(status, Type.DEGRADED)
    assert degraded.reason == "ApplyFailed"
    assert "last good state is kept" in degraded.message
    assert condition(status, Type.READY).status == "False"


def test_a_spec_that_cannot_be_used_keeps_the_rest_of_the_status() -> None:
    before = build(Fleet(spec()).view())
    after = statuses.invalid(before, generation=2, message="spec.pools[0].role: wrong", now_unix_s=T0 + 5)
    assert condition(after, Type.READY).reason == "InvalidSpec"
    assert "spec.pools[0].role: wrong" in condition(after, Type.DEGRADED).message
    assert after.pools == before.pools
    assert condition(after, Type.METRICS_AVAILABLE) == condition(before, Type.METRICS_AVAILABLE)
    assert statuses.invalid(after, generation=2, message="spec.pools[0].role: wrong", now_unix_s=T0 + 9) == after


def test_a_router_that_is_silent_is_told_after_a_while() -> None:
    fleet = Fleet(spec())
    fleet.status = build(fleet.view())
    fleet.router_known = False
    assert build(fleet.view(), now_unix_s=T0 + 10).conditions == fleet.status.conditions
    late = condition(build(fleet.view(), now_unix_s=T0 + 40), Type.METRICS_AVAILABLE)
    assert (late.status, late.reason) == ("False", "RouterUnreachable")


def test_a_new_router_is_waited_for_but_not_for_ever() -> None:
    fleet = Fleet(spec())
    fleet.router_known = False
    fleet.status = build(fleet.view(), router_seen_unix_s=None)
    assert condition(fleet.status, Type.METRICS_AVAILABLE).status == "Unknown"
    soon = build(fleet.view(), router_seen_unix_s=None, now_unix_s=T0 + 60)
    assert soon.conditions == fleet.status.conditions
    late = build(fleet.view(), router_seen_unix_s=None, now_unix_s=T0 + 400)
    assert condition(late, Type.METRICS_AVAILABLE).status == "False"


def seen(*, ttft_s: float, itl_s: float, count: int = 100) -> RouterObservation:
    def latency(value: float) -> Percentiles:
        return Percentiles(p50=value, p90=value, p95=value, p99=value, count=count)

    return replace(Fleet(spec()).observation(), ttft_s=latency(ttft_s), itl_s=latency(itl_s))


def test_objectives_are_missed_and_met_again_with_a_band_between() -> None:
    fleet = Fleet(spec())
    told = []
    for ttft_s in (0.5, 1.2, 0.95, 0.8, 0.95):
        fleet.status = build(replace(fleet.view(), router=seen(ttft_s=ttft_s, itl_s=0.02)))
        met = condition(fleet.status, Type.OBJECTIVES_MET)
        told.append((met.status, met.message))
    assert [status for status, _ in told] == ["True", "False", "False", "True", "True"]
    assert told[1][1] == "TTFT is above its objective"


def test_few_values_change_nothing_and_none_is_no_traffic() -> None:
    fleet = Fleet(spec())
    fleet.status = build(replace(fleet.view(), router=seen(ttft_s=0.5, itl_s=0.02)))
    few = build(replace(fleet.view(), router=seen(ttft_s=9.0, itl_s=9.0, count=3)))
    assert condition(few, Type.OBJECTIVES_MET).status == "True"
    none = build(replace(fleet.view(), router=seen(ttft_s=9.0, itl_s=9.0, count=0)))
    assert condition(none, Type.OBJECTIVES_MET).reason == "NoTraffic"


def test_an_unknown_profile_is_told() -> None:
    view = replace(Fleet(spec()).view(), models={"decode": Unknown("no built-in profile fits demo; set spec.profile")})
    degraded = condition(build(view), Type.DEGRADED)
    assert degraded.reason == "ProfileUnavailable"
    assert "set spec.profile" in degraded.message


def test_something_else_that_scales_is_told_and_so_is_its_end() -> None:
    fleet = Fleet(spec())
    assert find(build(fleet.view()).conditions, Type.FOREIGN_SCALER) is None
    fleet.status = build(pool_view(fleet, "decode", foreign_scaler="kubectl"))
    assert condition(fleet.status, Type.FOREIGN_SCALER).status == "True"
    assert condition(build(fleet.view(), now_unix_s=T0 + 300), Type.FOREIGN_SCALER).status == "True", "it may come back"
    fleet.status = build(fleet.view(), now_unix_s=T0 + 601)
    assert condition(fleet.status, Type.FOREIGN_SCALER).status == "False"
    assert condition(build(fleet.view(), now_unix_s=T0 + 602), Type.FOREIGN_SCALER).status == "False"


def test_where_plans_are_recommended_others_may_scale() -> None:
    view = pool_view(Fleet(spec(scaling={"mode": "Recommend"})), "decode", foreign_scaler="kubectl")
    assert find(build(view).conditions, Type.FOREIGN_SCALER) is None


def test_a_missed_answer_of_the_router_changes_no_plan() -> None:
    fleet = Fleet(spec())
    before = plan(1)
    fleet.status = InferenceClusterStatus(plan=before)
    blind = plan(1, code="Unknown", at=T0 + 15)
    assert build(fleet.view(), plan=blind, router_seen_unix_s=T0 - 5).plan == before
    assert build(fleet.view(), plan=blind, router_seen_unix_s=T0 - 60).plan == blind
    grown = plan(2, code="Unknown", at=T0 + 15)
    assert build(fleet.view(), plan=grown, router_seen_unix_s=T0 - 5).plan == grown


def test_a_router_that_is_not_there_is_progress_and_tells_where_to_look() -> None:
    status = build(replace(Fleet(spec()).view(), router_ready=False))
    assert condition(status, Type.PROGRESSING).status == "True"
    assert "Deployment chat-router" in condition(status, Type.READY).message


def test_a_role_that_a_recommendation_would_fill_says_so() -> None:
    fleet = Fleet(spec([{"name": "swing", "role": "Swing", "replicas": {"min": 2, "max": 2}}]))
    fleet.spec = spec(
        [{"name": "swing", "role": "Swing", "replicas": {"min": 2, "max": 2}}], scaling={"mode": "Recommend"}
    )
    assert "set it to Auto" in condition(build(fleet.view()), Type.READY).message


def plan(replicas: int, *, code: str = "Enough", at: float = T0, binding: str = "", message: str = "") -> Plan:
    return Plan(
        at=rfc3339(at),
        pools=[PlannedPool(name="decode", replicas=replicas)],
        reasons=[Reason(code=code, message=message)],
        binding=binding,
    )


def test_a_plan_stays_until_it_decides_otherwise() -> None:
    first = plan(2)
    assert statuses.kept_plan(first, plan(2, at=T0 + 15, message="other figures")) is first
    assert statuses.kept_plan(first, None) is first
    for other in (plan(3, at=T0 + 15), plan(2, code="ScaleUp", at=T0 + 15), plan(2, binding="CostBudget: x")):
        assert statuses.kept_plan(first, other) is other


def test_a_binding_limit_is_told_with_its_remedy() -> None:
    limited = condition(
        build(Fleet(spec()).view(), plan=plan(2, binding="MaxReplicas: replicas.max of pool decode")),
        Type.SCALING_LIMITED,
    )
    assert (limited.status, limited.reason) == ("True", "MaxReplicas")
    assert "replicas.max of pool decode" in limited.message


@given(looks=st.lists(st.sampled_from(["True", "False", "Unknown"]), min_size=1, max_size=12))
def test_transition_time_moves_with_the_status_only(looks: list[Any]) -> None:
    before: Condition | None = None
    for second, status in enumerate(looks):
        finding = Finding(type=Type.READY, status=status, reason=f"Look{second}", message="")
        after = set_condition(before, finding, generation=second, now_unix_s=T0 + second)
        moved = before is None or before.status != status
        assert (after.last_transition_time == rfc3339(T0 + second)) == moved
        assert (after.reason, after.observed_generation) == (f"Look{second}", second)
        before = after
