"""What sizing knows of each pool: bounds, price, what a worker does, and what is there already."""

from dataclasses import dataclass

from swingpool_control.api.quantities import money
from swingpool_control.api.v1alpha1 import Pool, PoolRole, ReplicaMode
from swingpool_control.figures import Unknown
from swingpool_control.sizing import capacity, objectives
from swingpool_control.sizing.capacity import Capacity, Shape
from swingpool_control.view import ClusterView, WorkerView

NOMINAL = Capacity(
    prefill_tokens_per_s=1.0,
    decode_sequences=1.0,
    decode_tokens_per_s=1.0,
    kv_tokens=1.0,
    ttft_feasible=True,
    itl_feasible=True,
)
"""Stands for a capacity that nobody knows, where only the number of workers counts."""


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
    capacity: Capacity
    """Of one worker; `NOMINAL` if its performance model is unknown: then the demand is unknown too."""

    def effective(self, count: int) -> int:
        """Return how many of so many workers would serve: those that cannot start are the first to go."""
        return min(count, self.useful) + max(0, count - self.asked)


def of(view: ClusterView, *, shape: Shape) -> tuple[PoolFacts, ...]:
    """Return the facts of all pools of the spec, in the spec's order.

    Args:
        view: the cluster.
        shape: mean lengths of the requests.
    """
    return tuple(_facts(view, pool, order, shape) for order, pool in enumerate(view.spec.pools))


def is_stuck(worker: WorkerView) -> bool:
    """Tell whether a worker cannot start: no node takes it, or its container cannot run."""
    return not worker.ready and bool(worker.unschedulable or worker.waiting)


def _facts(view: ClusterView, pool: Pool, order: int, shape: Shape) -> PoolFacts:
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
        capacity=_capacity(view, pool, shape),
    )


def _blocked(workers: list[WorkerView]) -> str:
    stuck = [worker for worker in workers if is_stuck(worker)]
    return min((worker.unschedulable or worker.waiting for worker in stuck), default="")


def _capacity(view: ClusterView, pool: Pool, shape: Shape) -> Capacity:
    model = view.models.get(pool.name, Unknown("its performance profile was not loaded"))
    if isinstance(model, Unknown):
        return NOMINAL
    return capacity.capacity(
        model,
        shape=shape,
        ttft_s=objectives.mean_ttft_s(view.spec.objectives),
        itl_s=objectives.mean_itl_s(view.spec.objectives),
    )
