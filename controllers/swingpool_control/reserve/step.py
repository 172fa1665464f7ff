"""The reserve's decisions: which drained worker sleeps, which one wakes, and what the other loops see of it.

The loops that size pools and give roles know nothing of sleep. They see a cluster without the workers that sleep, in
which one that wakes is a worker that starts; and the numbers of workers that they ask for are made into sleep, waking
and, for the rest, replicas:

- fewer: drained workers sleep, as many as the pool's reserve has room for, and only the others end;
- more: those that sleep are woken first, the last to fall asleep before the others, and only the rest are made.

A worker is told to sleep or wake after its mark says so, and told again until it has answered: whoever restarts the
manager in between loses nothing.
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace

from swingpool_control import names
from swingpool_control.actions import Action, EngineCall, PatchWorker, SetReplicas
from swingpool_control.api.v1alpha1 import Pool, ReplicaMode, ScalingMode
from swingpool_control.reserve import mark
from swingpool_control.reserve.mark import Mark, State
from swingpool_control.sizing.drain import COST_EMPTY
from swingpool_control.swing.repair import home_role
from swingpool_control.view import ClusterView, PoolView, WorkerView


@dataclass(frozen=True, slots=True, kw_only=True)
class _Sleeper:
    worker: WorkerView
    mark: Mark


def awake(view: ClusterView) -> ClusterView:
    """Return the cluster as if the workers that sleep did not exist, and those that wake had just been made."""
    hidden = {one.worker.uid for pool in view.spec.pools for one in _asleep(view, pool.name)}
    if not any(worker.asleep for worker in view.workers):
        return view
    return replace(
        view,
        workers=tuple(_as_seen(view, worker) for worker in view.workers if worker.uid not in hidden),
        pools=tuple(_without(view, state) for state in view.pools),
    )


def carry_out(view: ClusterView, actions: Iterable[Action], *, now_unix_s: float) -> tuple[Action, ...]:
    """Return actions that were decided on `awake(view)`, with sleep and waking where they spare a pod's end or start.

    Args:
        view: the cluster with all its workers.
        actions: what to do.
        now_unix_s: the time.
    """
    found: list[Action] = []
    for action in actions:
        if isinstance(action, SetReplicas):
            found += _replicas(view, action, now_unix_s=now_unix_s)
        else:
            found.append(action)
    return tuple(found)


def step(view: ClusterView, *, now_unix_s: float) -> tuple[Action, ...]:
    """Return the next writes and calls for every worker of the reserve."""
    actions: list[Action] = []
    for pool in view.spec.pools:
        for one in _marked(view, pool.name):
            actions += _advance(view, pool, one, now_unix_s=now_unix_s)
        actions += _shrink(view, pool)
    orphans = [
        worker for worker in view.workers if worker.asleep and worker.pool not in {p.name for p in view.spec.pools}
    ]
    return (*actions, *(_called(one, "wake", None) for one in orphans if not one.deleting))


def room(pool: Pool) -> int:
    """Return how many workers of a pool may sleep."""
    return pool.replicas.reserve if pool.replicas.mode is ReplicaMode.AUTO else 0


def _replicas(view: ClusterView, asked: SetReplicas, *, now_unix_s: float) -> list[Action]:
    pool = next(pool for pool in view.spec.pools if pool.name == asked.pool)
    state = next(state for state in view.pools if state.pool == asked.pool)
    asleep = _asleep(view, asked.pool)
    serving = state.replicas - len(asleep)
    actions: list[Action] = []
    sleepers = len(asleep)
    if asked.replicas < serving:
        chosen = _spared(view, asked.pool, serving - asked.replicas)[: max(0, room(pool) - sleepers)]
        actions += [mark.begin(view.spec, worker, now_unix_s=now_unix_s) for worker in chosen]
        sleepers += len(chosen)
    elif asked.replicas > serving:
        # One that is still falling asleep wakes as well as any; the last to fall asleep is the likeliest to be warm.
        for one in sorted(asleep, key=lambda one: -one.mark.since_unix_s)[: asked.replicas - serving]:
            reason = f"woken: {asked.reason}"
            actions.append(mark.turn(one.worker, one.mark, State.WAKING, now_unix_s=now_unix_s, reason=reason))
            sleepers -= 1
    replicas = asked.replicas + sleepers
    if replicas != state.replicas or not actions:
        actions.append(replace(asked, replicas=replicas))
    return actions


def _spared(view: ClusterView, pool: str, lost: int) -> list[WorkerView]:
    """The workers that would end and can sleep: of the drained ones those that Kubernetes would end, if they serve."""
    drained = [one for one in view.workers if one.pool == pool and one.drain and not one.deleting]
    ending = sorted(drained, key=lambda one: (one.ready, one.deletion_cost, one.pod))[:lost]
    return [one for one in ending if one.ready]


def _advance(view: ClusterView, pool: Pool, one: _Sleeper, *, now_unix_s: float) -> list[Action]:
    """Tell a worker what its mark says, until it has done it."""
    worker, state = one.worker, one.mark.state
    if not worker.ready:
        return []
    if state is State.WAKING:
        woken = mark.end(view.spec, worker, role=home_role(pool), reason="it is awake")
        return [_called(worker, "wake", woken)]
    if state is State.FALLING_ASLEEP or worker.restarts != one.mark.restarts:
        slept = mark.turn(worker, one.mark, State.ASLEEP, now_unix_s=now_unix_s, reason="it sleeps")
        return [_called(worker, "sleep", slept)]
    return []


def _shrink(view: ClusterView, pool: Pool) -> list[Action]:
    """End workers that sleep beyond what the pool may have now."""
    asleep = _asleep(view, pool.name)
    surplus = len(asleep) - room(pool)
    state = next(state for state in view.pools if state.pool == pool.name)
    draining = any(worker.drain for worker in view.workers if worker.pool == pool.name and not worker.deleting)
    external = pool.replicas.mode is ReplicaMode.EXTERNAL or view.spec.scaling.mode is ScalingMode.RECOMMEND
    if surplus <= 0 or draining or external or not state.observed or state.updated < state.current:
        return []
    ending = sorted(asleep, key=lambda one: (one.worker.deletion_cost, one.mark.since_unix_s))[:surplus]
    unmarked = [one.worker for one in ending if one.worker.deletion_cost > COST_EMPTY]
    if unmarked:
        return [
            PatchWorker(
                pod=worker.pod,
                uid=worker.uid,
                expected_role=worker.role,
                annotations={names.ANNOTATION_DELETION_COST: str(COST_EMPTY)},
                reason="the reserve is smaller now",
            )
            for worker in unmarked
        ]
    return [SetReplicas(pool=pool.name, replicas=state.replicas - surplus, reason="the reserve is smaller now")]


def _called(worker: WorkerView, call: str, then: PatchWorker | None) -> EngineCall:
    return EngineCall(pod=worker.pod, uid=worker.uid, call="sleep" if call == "sleep" else "wake", then=then)


def _marked(view: ClusterView, pool: str) -> list[_Sleeper]:
    found = []
    for worker in view.workers:
        known = mark.parse(worker.asleep) if worker.pool == pool and not worker.deleting else None
        if known is not None:
            found.append(_Sleeper(worker=worker, mark=known))
    return found


def _asleep(view: ClusterView, pool: str) -> list[_Sleeper]:
    """The workers that count as none: those that sleep or are about to."""
    return [one for one in _marked(view, pool) if one.mark.state is not State.WAKING]


def _as_seen(view: ClusterView, worker: WorkerView) -> WorkerView:
    if not worker.asleep or worker.deleting:
        return worker
    pool = next((pool for pool in view.spec.pools if pool.name == worker.pool), None)
    return replace(worker, ready=False, asleep="", role=worker.role if pool is None else home_role(pool))


def _without(view: ClusterView, state: PoolView) -> PoolView:
    asleep = [one.worker for one in _asleep(view, state.pool)]
    waking = sum(one.mark.state is State.WAKING and one.worker.ready for one in _marked(view, state.pool))
    ready = sum(worker.ready for worker in asleep)
    newest = state.updated == state.current
    return replace(
        state,
        asleep=len(asleep),
        replicas=max(0, state.replicas - len(asleep)),
        current=max(0, state.current - len(asleep)),
        ready=max(0, state.ready - ready - waking),
        # Whether a rolling update is under way must read the same, whichever of its pods sleep.
        updated=max(0, state.current - len(asleep)) if newest else max(0, state.updated - len(asleep)),
    )
