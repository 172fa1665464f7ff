"""Ready, Progressing, Degraded: does it serve as this generation asks, is it on its way, is something wrong."""

from swingpool_control import names
from swingpool_control.api.v1alpha1 import PoolRole, ScalingMode
from swingpool_control.conditions.conditions import Finding, Reason, Type
from swingpool_control.conditions.problems import CAPACITY_REASONS, Problem
from swingpool_control.sizing.pools import is_stuck
from swingpool_control.swing.guards import is_ready
from swingpool_control.view import ClusterView


def ready(view: ClusterView, *, applied: bool) -> Finding:
    """Return whether the cluster serves as this generation of the spec asks.

    Args:
        view: the cluster.
        applied: whether its children are of this generation.
    """
    checks = (
        (not applied, Reason.APPLYING, "the children are not yet as this generation of the spec asks"),
        (not view.router_ready, Reason.ROUTER_NOT_READY, f"no router pod is ready; {_look_at_router(view)}"),
        (not serves(view, names.ROLE_PREFILL), Reason.NO_PREFILL_WORKER, _nobody(view, names.ROLE_PREFILL)),
        (not serves(view, names.ROLE_DECODE), Reason.NO_DECODE_WORKER, _nobody(view, names.ROLE_DECODE)),
        (bool(below := _below(view)), Reason.POOLS_NOT_READY, f"fewer workers are ready than asked for: {below}"),
        (bool(rolling := _rolling(view)), Reason.ROLLING_OUT, f"workers of an older spec still run: {rolling}"),
    )
    for failed, reason, message in checks:
        if failed:
            return Finding(type=Type.READY, status="False", reason=reason, message=message)
    return Finding(
        type=Type.READY, status="True", reason=Reason.SERVING, message="the router, prefill and decode workers serve"
    )


def progressing(view: ClusterView, *, applied: bool, blocked: bool) -> Finding:
    """Return whether the cluster is on its way to what is asked.

    Args:
        view: the cluster.
        applied: whether its children are of this generation.
        blocked: whether they could not be applied.
    """
    checks = (
        (not applied and not blocked, Reason.APPLYING, "the children are being made as the spec asks"),
        (
            bool(rolling := _rolling(view)),
            Reason.ROLLING_OUT,
            f"workers are replaced by such of the new spec: {rolling}",
        ),
        (not view.router_ready, Reason.ROUTER_NOT_READY, f"the router is starting; {_look_at_router(view)}"),
        (bool(starting := _starting(view)), Reason.WORKERS_STARTING, f"workers start: {starting}"),
        (bool(draining := _draining(view)), Reason.WORKERS_DRAINING, f"workers end what they hold: {draining}"),
    )
    for failed, reason, message in checks:
        if failed:
            return Finding(type=Type.PROGRESSING, status="True", reason=reason, message=message)
    return Finding(type=Type.PROGRESSING, status="False", reason=Reason.STABLE, message="nothing is under way")


def degraded(problems: tuple[Problem, ...], *, apply_error: str) -> Finding:
    """Return whether something is wrong that will not pass by itself."""
    found = list(problems)
    if apply_error:
        message = f"the last good state is kept, because children could not be applied: {apply_error}"
        found.insert(0, Problem(reason=Reason.APPLY_FAILED, message=message))
    if not found:
        return Finding(
            type=Type.DEGRADED, status="False", reason=Reason.AS_EXPECTED, message="nothing is known to be wrong"
        )
    message = "; ".join(problem.message for problem in found)
    return Finding(type=Type.DEGRADED, status="True", reason=found[0].reason, message=message)


def capacity_available(problems: tuple[Problem, ...]) -> Finding:
    """Return whether every worker that was asked for can be had."""
    lacking = [problem for problem in problems if problem.reason in CAPACITY_REASONS]
    if not lacking:
        message = "every worker that was asked for has its place"
        return Finding(type=Type.CAPACITY_AVAILABLE, status="True", reason=Reason.ALL_PLACED, message=message)
    message = "; ".join(problem.message for problem in lacking)
    return Finding(type=Type.CAPACITY_AVAILABLE, status="False", reason=lacking[0].reason, message=message)


def serves(view: ClusterView, role: str) -> bool:
    """Tell whether a worker is ready in a role, as Kubernetes sees it."""
    return any(is_ready(worker) and worker.role == role for worker in view.workers)


def _look_at_router(view: ClusterView) -> str:
    return f"if that lasts, look at the pods of Deployment {names.router(view.name)}"


def _nobody(view: ClusterView, role: str) -> str:
    """What to do about a role without a ready worker."""
    text = f"no worker is ready for {role}"
    swings = any(pool.role is PoolRole.SWING for pool in view.spec.pools)
    if swings and view.spec.scaling.mode is ScalingMode.RECOMMEND:
        return f"{text}; spec.scaling.mode Recommend gives no worker another role: set it to Auto"
    return f"{text}; if none is starting, see the conditions Degraded and ScalingLimited"


def _below(view: ClusterView) -> str:
    """Pools that have fewer ready workers than their bounds ask for."""
    names_found = []
    for pool in view.spec.pools:
        ready_now = sum(is_ready(worker) for worker in view.workers if worker.pool == pool.name)
        if ready_now < pool.replicas.fewest:
            names_found.append(pool.name)
    return ", ".join(names_found)


def _rolling(view: ClusterView) -> str:
    """Pools with pods of an older template, or whose newest template was not looked at yet."""
    return ", ".join(
        state.pool for state in view.pools if state.exists and (not state.observed or state.updated < state.current)
    )


def _starting(view: ClusterView) -> str:
    pools = {
        worker.pool
        for worker in view.workers
        if not (worker.ready or worker.deleting or worker.drain or is_stuck(worker))
    }
    pools |= {state.pool for state in view.pools if state.current < state.replicas and not state.failure}
    return ", ".join(sorted(pools))


def _draining(view: ClusterView) -> str:
    return ", ".join(sorted({worker.pool for worker in view.workers if worker.drain or worker.deleting}))
