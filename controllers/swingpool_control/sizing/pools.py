"""What sizing knows of each pool: bounds, price, what a worker does, and what is there already."""

import math
from collections.abc import Mapping
from dataclasses import dataclass

from swingpool_control import names
from swingpool_control.api.quantities import money
from swingpool_control.api.v1alpha1 import Pool, PoolRole, ReplicaMode
from swingpool_control.engine.model import PerformanceModel
from swingpool_control.figures import Unknown
from swingpool_control.sizing import objectives
from swingpool_control.sizing.capacity import KV_FILL
from swingpool_control.sizing.programme import Rates
from swingpool_control.sizing.rates import Latencies, Sustained, sustains
from swingpool_control.sizing.traffic import Traffic
from swingpool_control.view import ClusterView, WorkerView

NOMINAL = Rates(steps=((1, 1.0),))
"""Stands for rates that nobody knows, where only the number of workers counts."""

ROLES_OF = {
    PoolRole.PREFILL: (names.ROLE_PREFILL,),
    PoolRole.DECODE: (names.ROLE_DECODE,),
    PoolRole.SWING: (names.ROLE_PREFILL, names.ROLE_DECODE),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolFacts:
    """One pool, as sizing sees it."""

    name: str
    order: int
    role: PoolRole
    mode: ReplicaMode
    fewest: int
    most: int
    asked: int
    """Workers that were asked for and are not being drained."""
    useful: int
    """Of these, the workers that serve or will: not those that no node takes or whose container cannot run."""
    present: int
    """Pods that exist, those that end included: they still hold their accelerators."""
    surge: int
    warming: bool
    """Whether workers are on their way to being ready."""
    blocked: str
    """Why more workers would not help; empty if they would."""
    price_per_hour: float | Unknown
    product: str | None
    accelerators: int
    """Of one worker."""
    rates: Mapping[str, Rates]
    """What workers sustain by role; `NOMINAL` if their performance model is unknown: then the demand is unknown too."""
    unreachable: frozenset[str] = frozenset()
    """Roles in which no number of workers meets the objectives."""
    kv_tokens: float = math.inf
    """KV cache of one worker that a plan fills."""

    @property
    def scales(self) -> bool:
        """Whether Swingpool decides how many workers it has."""
        return self.mode is ReplicaMode.AUTO


def of(view: ClusterView, *, traffic: Traffic | None) -> tuple[PoolFacts, ...]:
    """Return the facts of all pools of the spec, in the spec's order.

    Args:
        view: the cluster.
        traffic: what comes in, for what workers sustain; None where only their number counts.
    """
    most = sum(pool.replicas.most or 0 for pool in view.spec.pools) + sum(pool.replicas for pool in view.pools)
    return tuple(_facts(view, pool, order, traffic, most) for order, pool in enumerate(view.spec.pools))


def is_stuck(worker: WorkerView) -> bool:
    """Tell whether a worker cannot start: no node takes it, or its container cannot run."""
    return not worker.ready and bool(worker.unschedulable or worker.waiting)


def _facts(view: ClusterView, pool: Pool, order: int, traffic: Traffic | None, all_most: int) -> PoolFacts:
    state = next(state for state in view.pools if state.pool == pool.name)
    pods = [worker for worker in view.workers if worker.pool == pool.name]
    alive = [worker for worker in pods if not worker.deleting]
    drained = sum(bool(worker.drain) for worker in alive)
    kept = [worker for worker in alive if not worker.drain]
    stuck = sum(is_stuck(worker) for worker in kept)
    asked = max(0, state.replicas - drained)
    missing = max(0, asked - len(kept))
    external = pool.replicas.mode is ReplicaMode.EXTERNAL
    most = pool.replicas.most
    model = view.models.get(pool.name)
    known = None if model is None or isinstance(model, Unknown) else model
    able = _sustained(view, pool, known, traffic, all_most)
    return PoolFacts(
        name=pool.name,
        order=order,
        role=pool.role,
        mode=pool.replicas.mode,
        fewest=asked if external else pool.replicas.fewest,
        most=asked if most is None else most,
        asked=asked,
        useful=max(0, min(asked, len(kept)) - stuck) + (0 if state.failure else missing),
        present=len(pods),
        surge=state.surge,
        warming=missing > 0 or any(not worker.ready and not is_stuck(worker) for worker in kept),
        blocked=state.failure or _blocked(kept),
        price_per_hour=Unknown("no costPerHour") if pool.cost_per_hour is None else money(pool.cost_per_hour),
        product=pool.accelerator.product,
        accelerators=pool.accelerator.count,
        rates=able.rates,
        unreachable=able.unreachable,
        kv_tokens=math.inf if known is None else known.kv_capacity_tokens * KV_FILL,
    )


def _blocked(workers: list[WorkerView]) -> str:
    stuck = [worker for worker in workers if is_stuck(worker)]
    return min((worker.unschedulable or worker.waiting for worker in stuck), default="")


def _sustained(
    view: ClusterView, pool: Pool, model: PerformanceModel | None, traffic: Traffic | None, most: int
) -> Sustained:
    roles = ROLES_OF[pool.role]
    if model is None or traffic is None:
        return Sustained(rates=dict.fromkeys(roles, NOMINAL), unreachable=frozenset())
    latencies = Latencies.of(
        ttft=objectives.by_percentile(view.spec.objectives.ttft), itl=objectives.by_percentile(view.spec.objectives.itl)
    )
    return sustains(model, traffic=traffic, latencies=latencies, roles=roles, most=most)
