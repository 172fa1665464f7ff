"""From a view to the figures on which `roles` decides, and to the workers that it may move."""

from collections.abc import Mapping
from dataclasses import replace

from swingpool_control.api.quantities import seconds
from swingpool_control.api.v1alpha1 import PoolRole
from swingpool_control.figures import Unknown
from swingpool_control.sizing import capacity, demand, objectives
from swingpool_control.sizing.capacity import Capacity
from swingpool_control.sizing.demand import Demand
from swingpool_control.swing import flip, records, roles
from swingpool_control.swing.guards import ROLES
from swingpool_control.swing.memory import SwingMemory
from swingpool_control.swing.rescue import held
from swingpool_control.view import ClusterView, WorkerView


def remember(view: ClusterView, memory: SwingMemory, *, now_unix_s: float) -> tuple[SwingMemory, Unknown | None]:
    """Return the memory with the newest observation in it, and why there is none if there is none."""
    seen = demand.observe(view, now_unix_s=now_unix_s, last_shape=memory.shape)
    if isinstance(seen, Unknown):
        return replace(memory, demands=()), seen
    memory = replace(memory, shape=seen.shape, router_seen_unix_s=now_unix_s)
    if memory.demands and seen.at_unix_s <= memory.demands[-1].at_unix_s:
        return memory, None
    return replace(memory, demands=(*memory.demands[-1:], seen)), None


def swing_workers(view: ClusterView) -> tuple[WorkerView, ...]:
    """Return the workers of all swing pools."""
    pools = swing_pools(view)
    return tuple(worker for worker in view.workers if worker.pool in pools)


def swing_pools(view: ClusterView) -> frozenset[str]:
    """Return the names of all swing pools."""
    return frozenset(pool.name for pool in view.spec.pools if pool.role is PoolRole.SWING)


def propose(
    view: ClusterView, memory: SwingMemory, serving: Mapping[str, frozenset[str]], *, now_unix_s: float
) -> tuple[roles.Move, ...] | Unknown:
    """Return the workers that should change their role now, or why nothing can be said.

    Args:
        view: the cluster.
        memory: with the newest observation in it.
        serving: uids of the workers that serve for certain, by role.
        now_unix_s: the time.
    """
    if len(memory.demands) < 2:
        return Unknown("one observation is not enough")
    demands = (memory.demands[0], memory.demands[1])
    able = _capacities(view, demands)
    if isinstance(able, Unknown):
        return able
    seats = tuple(
        seat
        for worker in view.workers
        if worker.pool in able
        and (seat := _seat(view, memory, serving, worker, able[worker.pool], now_unix_s=now_unix_s)) is not None
    )
    return roles.decide(
        seats,
        demands,
        ttft_s=objectives.mean_ttft_s(view.spec.objectives),
        dead_band=view.spec.scaling.stabilization.dead_band_percent / 100,
    )


def _capacities(view: ClusterView, demands: tuple[Demand, Demand]) -> dict[str, tuple[Capacity, Capacity]] | Unknown:
    """Capacity of a worker of each pool, by the shape of requests in both observations."""
    ttft_s, itl_s = objectives.mean_ttft_s(view.spec.objectives), objectives.mean_itl_s(view.spec.objectives)
    found: dict[str, tuple[Capacity, Capacity]] = {}
    for pool in view.spec.pools:
        model = view.models.get(pool.name, Unknown("its performance profile was not loaded"))
        if isinstance(model, Unknown):
            return Unknown(f"pool {pool.name}: {model.why}")
        before, now = (capacity.capacity(model, shape=demand.shape, ttft_s=ttft_s, itl_s=itl_s) for demand in demands)
        found[pool.name] = (before, now)
    return found


def _seat(
    view: ClusterView,
    memory: SwingMemory,
    serving: Mapping[str, frozenset[str]],
    worker: WorkerView,
    able: tuple[Capacity, Capacity],
    *,
    now_unix_s: float,
) -> roles.Seat | None:
    """A worker's place in the decision; None if it serves nothing and is not about to."""
    target = role_to_be(worker, memory)
    serves = any(worker.uid in serving[role] for role in ROLES)
    changing = target != worker.role and worker.ready and not worker.deleting and not worker.drain
    if not serves and not changing:
        return None
    dwell_s = seconds(view.spec.scaling.stabilization.min_role_duration)
    rested = now_unix_s - records.last_change_unix_s(memory.flips, worker) >= dwell_s
    return roles.Seat(
        uid=worker.uid,
        role=target,
        movable=serves and not changing and rested and worker.pool in swing_pools(view),
        held=held(view, worker),
        capacities=able,
    )


def role_to_be(worker: WorkerView, memory: SwingMemory) -> str:
    """Return the role that a worker has, or is changing to."""
    for asked in memory.pending:
        if asked.uid == worker.uid:
            return asked.target
    state = flip.parse(worker.flip)
    return worker.role if state is None else state.to_role
