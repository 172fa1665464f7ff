"""How a pool loses workers without losing a request: choose, drain, and lower the replicas only when they are empty.

Chosen is the worker that costs least to lose: one that is not ready, then one that drains already, then one of the role
that has more workers than the plan gives it, then the one that holds the least. The last ready worker of a role is
never chosen. A drained worker is empty when the router has shown it so for a while, and, if it was prefill, when it
says that its KV cache holds nothing that others may fetch yet; if it does not say so, when none may fetch it any more.
If nothing can be known, it is when the longest request must have ended. Until then a returning need takes the drain
back.

The replicas go down by as many workers as are empty, and only when Kubernetes is bound to end just those: no rolling
update is under way, and no worker of the pool that holds something is less ready or cheaper to delete.
"""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

from swingpool_control import names
from swingpool_control.actions import Action, SetReplicas
from swingpool_control.api.quantities import seconds
from swingpool_control.api.v1alpha1 import Pool, RouterType
from swingpool_control.figures import Unknown
from swingpool_control.sizing import drain
from swingpool_control.sizing.pools import is_stuck
from swingpool_control.swing.guards import may_leave, observed, without
from swingpool_control.swing.idle import Idle, settled
from swingpool_control.swing.protocol import KV_LEASE_S
from swingpool_control.swing.repair import home_role
from swingpool_control.swing.rescue import held
from swingpool_control.view import ClusterView, PoolView, WorkerView

SETTLE_S = 2.0
"""How long a drained decode worker must hold nothing: what was on its way to it has come by then."""

NOT_READY_S = 10.0
"""How long a worker that is not ready must have drained before the router's word that it holds nothing is taken."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolStep:
    """What to do with one pool now."""

    actions: tuple[Action, ...]
    serving: dict[str, frozenset[str]]
    """Who still serves each role when the actions are done."""
    draining: bool
    """Whether workers of the pool drain then."""
    held_back: bool
    """Whether fewer workers are drained than asked for, because the last ready of a role stays."""


def resize(
    view: ClusterView,
    pool: Pool,
    target: int,
    *,
    roles: Mapping[str, int],
    serving: dict[str, frozenset[str]],
    idle: tuple[Idle, ...],
    reason: str,
    now_unix_s: float,
) -> PoolStep:
    """Return the next writes that bring a pool to `target` workers.

    Args:
        view: the cluster.
        pool: the pool; its Deployment exists.
        target: workers it shall have.
        roles: of these, how many the plan has in each role.
        serving: uids of the workers that serve each role for certain.
        idle: workers that drain and hold nothing.
        reason: why, for the drained workers' annotation.
        now_unix_s: the time.
    """
    state = next(state for state in view.pools if state.pool == pool.name)
    alive = [worker for worker in view.workers if worker.pool == pool.name and not worker.deleting]
    surplus = _surplus(state, alive, target)
    victims, serving_after = _victims(view, alive, surplus, roles, serving)
    actions: list[Action] = []
    for worker in alive:
        known = drain.parse(worker.drain, default_role=home_role(pool))
        if worker.uid in victims and (known is None or worker.role != names.ROLE_DRAINING):
            begun = drain.begin(view, worker, default_role=home_role(pool), reason=reason, now_unix_s=now_unix_s)
            actions.append(begun)
        elif worker.uid not in victims and known is not None:
            actions.append(drain.cancel(view, worker, known))
    if target > state.replicas:
        actions.append(SetReplicas(pool=pool.name, replicas=target, reason=reason))
    elif target < state.replicas:
        actions += _lower(
            view, pool, state, alive, victims=victims, target=target, idle=idle, reason=reason, now_unix_s=now_unix_s
        )
    return PoolStep(
        actions=tuple(actions),
        serving=serving_after,
        draining=bool(victims),
        held_back=len(victims) < surplus,
    )


def take_back(view: ClusterView, pool: Pool) -> list[Action]:
    """Return the writes that end all drains of a pool that something else scales now."""
    return [
        drain.cancel(view, worker, known)
        for worker in view.workers
        if worker.pool == pool.name
        and not worker.deleting
        and (known := drain.parse(worker.drain, default_role=home_role(pool))) is not None
    ]


def _surplus(state: PoolView, alive: list[WorkerView], target: int) -> int:
    """How many workers to lose. Pods beyond `replicas` are drained and about to end.

    During a rolling update some are the update's own, and nobody can tell which: no drain begins then.
    """
    drained = sum(bool(worker.drain) for worker in alive)
    if state.updated < state.current:
        return min(drained, state.replicas - target)
    beyond = len(alive) - state.replicas
    return (len(alive) if drained >= beyond else state.replicas) - target


def _victims(
    view: ClusterView,
    alive: list[WorkerView],
    count: int,
    roles: Mapping[str, int],
    serving: dict[str, frozenset[str]],
) -> tuple[frozenset[str], dict[str, frozenset[str]]]:
    """The workers to lose, as many as `count` if no role loses its last; and who serves each role without them."""
    chosen: set[str] = set()
    beyond = Counter(worker.role for worker in alive if worker.ready and not worker.drain)
    beyond.subtract(roles)
    left = list(alive)
    while left and len(chosen) < count:
        worker = min(left, key=lambda one: (one.ready, not one.drain, -beyond[one.role], held(view, one), one.pod))
        left.remove(worker)
        if not worker.drain and not may_leave(worker, serving):
            continue
        chosen.add(worker.uid)
        beyond[worker.role] -= 1
        serving = without(serving, worker)
    return frozenset(chosen), serving


def _lower(
    view: ClusterView,
    pool: Pool,
    state: PoolView,
    alive: list[WorkerView],
    *,
    victims: frozenset[str],
    target: int,
    idle: tuple[Idle, ...],
    reason: str,
    now_unix_s: float,
) -> list[Action]:
    """Lower the replicas by the drained workers that are empty, if Kubernetes then ends just those."""
    drained = [worker for worker in alive if worker.uid in victims and worker.drain]
    empty = {worker.uid for worker in drained if _is_empty(view, pool, worker, idle=idle, now_unix_s=now_unix_s)}
    replicas = max(target, len(alive) - len(empty))
    if replicas >= state.replicas or not state.observed or state.updated < state.current:
        return []
    if any(not worker.ready and worker.uid not in empty for worker in alive):
        return []
    unmarked = [worker for worker in drained if worker.uid in empty and worker.deletion_cost > drain.COST_EMPTY]
    if len(empty) < len(drained) and unmarked:
        return [drain.mark_empty(worker) for worker in unmarked]
    return [SetReplicas(pool=pool.name, replicas=replicas, reason=reason)]


def _is_empty(view: ClusterView, pool: Pool, worker: WorkerView, *, idle: tuple[Idle, ...], now_unix_s: float) -> bool:
    known = drain.parse(worker.drain, default_role=home_role(pool))
    if known is None:
        return False
    if is_stuck(worker):
        return True
    drained_s = now_unix_s - known.since_unix_s
    lease_s = KV_LEASE_S if known.role == names.ROLE_PREFILL else 0.0
    if drained_s >= seconds(view.spec.engine.max_request_duration) + lease_s:
        return True
    if not worker.ready and not isinstance(view.router, Unknown):
        sight = observed(view).get(worker.pod)
        nothing = sight is None or sight.prefills_in_flight + sight.decodes_in_flight == 0
        return nothing and drained_s >= NOT_READY_S + lease_s
    external = view.spec.router.type is RouterType.EXTERNAL
    settle_s = seconds(view.spec.router.external.drain_settle) if external else SETTLE_S
    if not _holds_no_kv(view, worker):
        settle_s = max(settle_s, lease_s)
    return settled(idle, worker.uid, settle_s=settle_s, now_unix_s=now_unix_s)


def _holds_no_kv(view: ClusterView, worker: WorkerView) -> bool:
    """Tell whether a worker says that all its blocks are free: those that others may fetch are not, until they have."""
    sight = observed(view).get(worker.pod)
    return sight is not None and not isinstance(sight.kv_usage, Unknown) and sight.kv_usage <= 0.0
