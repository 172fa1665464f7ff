"""RolesBalanced: is a role short of workers, or is one of its workers loaded far beyond the others."""

from swingpool_control.api.status import Condition
from swingpool_control.api.v1alpha1 import PoolRole, ScalingMode
from swingpool_control.conditions.conditions import Finding, Reason, Status, Type
from swingpool_control.figures import Unknown
from swingpool_control.swing.balance import Balance, State
from swingpool_control.view import ClusterView

LASTS_S = 30.0
"""How long a shortage or skew must last to be told, and be over to be told as over: flips cure most within seconds."""


def roles_balanced(
    view: ClusterView, before: Condition | None, balance: tuple[Balance, ...], *, now_unix_s: float
) -> Finding:
    """Return whether roles are balanced; what has not lasted changes nothing.

    Args:
        view: the cluster.
        before: the condition as it was last written.
        balance: how each role is (`SwingMemory.balance`); empty if it is not known yet.
        now_unix_s: the time.
    """
    if isinstance(view.router, Unknown) or not balance:
        return _kept(before) or _finding("Unknown", Reason.WAITING_FOR_ROUTER, "the load of roles is not known yet")
    if before is not None and any(now_unix_s - item.since_unix_s < LASTS_S for item in balance):
        return _finding(before.status, before.reason, before.message)
    short = [item.role for item in balance if item.state is State.SHORTAGE]
    if short:
        return _finding("False", Reason.SHORTAGE, f"{_and(short)} short of workers; {_remedy(view, short)}")
    pods = {worker.uid: worker.pod for worker in view.workers}
    skewed = [f"{pods.get(item.worker, 'one')} of {item.role}" for item in balance if item.state is State.SKEW]
    if skewed:
        message = (
            f"not a shortage but skew: worker {' and '.join(skewed)} is loaded far beyond the others, which no change "
            "of roles cures; look whether it is slow, or requests insist on it"
        )
        return _finding("False", Reason.SKEW, message)
    return _finding("True", Reason.BALANCED, "both roles have the workers that they need")


def _and(short: list[str]) -> str:
    return f"{short[0]} is" if len(short) == 1 else f"{' and '.join(short)} are"


def _remedy(view: ClusterView, short: list[str]) -> str:
    if len(short) > 1:
        return "more workers are needed, see ScalingLimited and CapacityAvailable"
    if not any(pool.role is PoolRole.SWING for pool in view.spec.pools):
        return "no pool swings: add one, or replicas"
    if view.spec.scaling.mode is ScalingMode.RECOMMEND:
        return "with scaling.mode Auto swing workers would change their role, as far as the other role can spare them"
    return "swing workers change their role as far as the other role can spare them"


def _kept(before: Condition | None) -> Finding | None:
    return None if before is None else _finding(before.status, before.reason, before.message)


def _finding(status: Status, reason: str, message: str) -> Finding:
    return Finding(type=Type.ROLES_BALANCED, status=status, reason=reason, message=message)
