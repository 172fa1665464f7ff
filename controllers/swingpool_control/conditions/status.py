"""The status that a user reads, built so that nothing changes in it while nothing happens."""

from collections.abc import Iterable

from swingpool_control import names
from swingpool_control.api.status import Condition, FlipRecord, InferenceClusterStatus, Plan, PoolStatus
from swingpool_control.api.v1alpha1 import Pool, ReplicaMode, RouterType, ScalingMode
from swingpool_control.conditions import health, problems, roles, traffic
from swingpool_control.conditions.conditions import Finding, Reason, Type, find, set_condition
from swingpool_control.sizing import planning
from swingpool_control.swing.balance import Balance
from swingpool_control.swing.guards import ROLES, is_ready
from swingpool_control.swing.records import newest
from swingpool_control.timestamps import unix_seconds
from swingpool_control.view import ClusterView

FOREIGN_S = 600.0
"""How long another scaler is told of: what it sets is taken over at once, and it may come back in a while."""


def build(
    view: ClusterView,
    *,
    plan: Plan | None,
    flips: tuple[FlipRecord, ...],
    now_unix_s: float,
    router_seen_unix_s: float | None = None,
    applied_generation: int | None = None,
    apply_error: str = "",
    balance: tuple[Balance, ...] = (),
) -> InferenceClusterStatus:
    """Return the status; equal to `view.status` if nothing happened, so that nothing need be written.

    Args:
        view: the cluster.
        plan: the last plan of the sizing loop; None if it has not decided yet: the one in the status stays.
        flips: all flips known to the swing loop, newest first.
        now_unix_s: the time.
        router_seen_unix_s: when the router was known last (`SwingMemory.router_seen_unix_s`); None if never.
        applied_generation: generation of the spec whose children were applied last; None if that is `view.generation`.
        apply_error: why the children could not be applied; empty if they could.
        balance: how each role is (`SwingMemory.balance`).
    """
    kept = kept_plan(view.status.plan, plan)
    if kept is plan and _is_a_blink(view.status.plan, plan, router_seen_unix_s, now_unix_s):
        kept = view.status.plan
    applied = not apply_error and (applied_generation is None or applied_generation >= view.generation)
    found = problems.find(view)
    before = view.status.conditions
    findings = [
        health.ready(view, applied=applied),
        health.progressing(view, applied=applied, blocked=bool(apply_error)),
        health.degraded(found, apply_error=apply_error),
        traffic.metrics_available(
            view,
            find(before, Type.METRICS_AVAILABLE),
            router_seen_unix_s=router_seen_unix_s,
            now_unix_s=now_unix_s,
        ),
        traffic.objectives_met(view, find(before, Type.OBJECTIVES_MET)),
        roles.roles_balanced(view, find(before, Type.ROLES_BALANCED), balance, now_unix_s=now_unix_s),
        health.capacity_available(found),
        _scaling_limited(kept),
        *_foreign_scaler(view, find(before, Type.FOREIGN_SCALER), now_unix_s=now_unix_s),
    ]
    pools = [_pool(view, pool, kept) for pool in view.spec.pools]
    return InferenceClusterStatus(
        observed_generation=view.generation,
        conditions=_conditions(before, findings, generation=view.generation, now_unix_s=now_unix_s),
        pools=pools,
        workers=f"{sum(pool.ready for pool in pools)}/{sum(pool.desired for pool in pools)}",
        roles=_roles(view),
        endpoint=_endpoint(view),
        plan=kept,
        flips=list(newest(flips)),
    )


def invalid(
    status: InferenceClusterStatus, *, generation: int, message: str, now_unix_s: float
) -> InferenceClusterStatus:
    """Return the status of a cluster whose spec cannot be used (`view.InvalidSpecError`); what runs is left alone.

    Args:
        status: as it was last written.
        generation: of the refused spec.
        message: what is wrong with it, by field.
        now_unix_s: the time.
    """
    text = f"the spec cannot be used, and what runs is left as it is: {message}"
    findings = [
        Finding(type=Type.READY, status="False", reason=Reason.INVALID_SPEC, message=text),
        Finding(type=Type.PROGRESSING, status="False", reason=Reason.INVALID_SPEC, message=text),
        Finding(type=Type.DEGRADED, status="True", reason=Reason.INVALID_SPEC, message=text),
    ]
    judged = _conditions(status.conditions, findings, generation=generation, now_unix_s=now_unix_s)
    fresh = {condition.type for condition in judged}
    others = [condition for condition in status.conditions if condition.type not in fresh]
    return status.model_copy(update={"observed_generation": generation, "conditions": (*judged, *others)})


def kept_plan(before: Plan | None, now: Plan | None) -> Plan | None:
    """Return the plan to show: the one before, unless the new one decides otherwise or for other reasons."""
    if now is None:
        return before
    return before if before is not None and _decision(before) == _decision(now) else now


def _is_a_blink(before: Plan | None, now: Plan | None, router_seen_unix_s: float | None, now_unix_s: float) -> bool:
    """Tell whether a plan only says that the router was not heard just now: a missed answer is no news."""
    if before is None or now is None or before.pools != now.pools or router_seen_unix_s is None:
        return False
    blind = any(reason.code == planning.UNKNOWN for reason in now.reasons)
    return blind and now_unix_s - router_seen_unix_s < traffic.GRACE_S


def _decision(plan: Plan) -> tuple[object, ...]:
    return (
        [(pool.name, pool.replicas) for pool in plan.pools],
        plan.prefill_workers,
        plan.decode_workers,
        plan.binding,
        [reason.code for reason in plan.reasons],
    )


def _conditions(
    before: Iterable[Condition], findings: Iterable[Finding], *, generation: int, now_unix_s: float
) -> list[Condition]:
    known = tuple(before)
    return [
        set_condition(find(known, finding.type), finding, generation=generation, now_unix_s=now_unix_s)
        for finding in findings
    ]


def _scaling_limited(plan: Plan | None) -> Finding:
    if plan is None or not plan.binding:
        message = "bounds and budgets allow what is needed"
        return Finding(type=Type.SCALING_LIMITED, status="False", reason=Reason.WITHIN_LIMITS, message=message)
    code, _, limit = plan.binding.partition(": ")
    message = f"more workers are needed than {limit} allows; raise it, or accept that objectives may be missed"
    return Finding(type=Type.SCALING_LIMITED, status="True", reason=code, message=message)


def _foreign_scaler(view: ClusterView, before: Condition | None, *, now_unix_s: float) -> list[Finding]:
    """Whether something else sets replicas that Swingpool sets; told only once it has happened.

    Where plans are only recommended, others are meant to carry them out.
    """
    recommends = view.spec.scaling.mode is ScalingMode.RECOMMEND
    ours = {
        pool.name
        for pool in view.spec.pools
        if pool.replicas.mode is ReplicaMode.FIXED or (pool.replicas.mode is ReplicaMode.AUTO and not recommends)
    }
    found = [
        f"pool {state.pool} by {state.foreign_scaler}"
        for state in view.pools
        if state.foreign_scaler and state.pool in ours
    ]
    if found:
        message = f"something else set replicas: {', '.join(found)}; remove it, or set replicas.mode External"
        return [Finding(type=Type.FOREIGN_SCALER, status="True", reason=Reason.SCALED_BY_ANOTHER, message=message)]
    if before is None:
        return []
    if before.status == "True" and now_unix_s - unix_seconds(before.last_transition_time) < FOREIGN_S and ours:
        kept = Finding(type=Type.FOREIGN_SCALER, status="True", reason=before.reason, message=before.message)
        return [kept]
    message = "nothing else scales the pools any more"
    return [Finding(type=Type.FOREIGN_SCALER, status="False", reason=Reason.NONE_SEEN, message=message)]


def _pool(view: ClusterView, pool: Pool, plan: Plan | None) -> PoolStatus:
    state = next(state for state in view.pools if state.pool == pool.name)
    planned = {item.name: item.replicas for item in plan.pools} if plan is not None else {}
    workers = [worker for worker in view.workers if worker.pool == pool.name and not worker.deleting]
    held = [worker.role for worker in workers]
    return PoolStatus(
        name=pool.name,
        role=pool.role.value,
        desired=planned.get(pool.name, state.replicas),
        current=len(workers),
        ready=sum(worker.ready for worker in workers),
        prefill=held.count(names.ROLE_PREFILL),
        decode=held.count(names.ROLE_DECODE),
        draining=held.count(names.ROLE_DRAINING),
        asleep=state.asleep,
        unschedulable=sum(bool(worker.unschedulable) for worker in workers),
    )


def _roles(view: ClusterView) -> str:
    """Ready workers by role, as one reads it."""
    ready = [worker.role for worker in view.workers if is_ready(worker)]
    text = ", ".join(f"{ready.count(role)} {role}" for role in ROLES)
    draining = sum(
        worker.role == names.ROLE_DRAINING for worker in view.workers if worker.ready and not worker.deleting
    )
    return f"{text}, {draining} draining" if draining else text


def _endpoint(view: ClusterView) -> str:
    if view.spec.router.type is RouterType.EXTERNAL:
        return ""
    scheme = "https" if view.spec.router.built_in.tls else "http"
    return f"{scheme}://{names.router(view.name)}.{view.namespace}.svc"
