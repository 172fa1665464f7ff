"""What a cluster's requests ask of each role now, as totals over all workers.

Totals, because one hot worker is the placement's business and never a reason to move capacity. A figure that is missing
makes the whole demand unknown: if one role is blind, both hold.
"""

from collections.abc import Iterable
from dataclasses import dataclass

from swingpool_control import names
from swingpool_control.figures import Figure, Unknown
from swingpool_control.observation import RouterObservation, WorkerObservation
from swingpool_control.sizing.capacity import Capacity, Shape
from swingpool_control.view import ClusterView

DEFAULT_SHAPE = Shape(isl_tokens=1024, osl_tokens=256)
"""Lengths before any request was seen."""

UTILIZATION = 0.8
"""Share of its prefill rate that a role is loaded to by arrivals; the rest absorbs their randomness."""

STALE_S = 30.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Demand:
    """What is asked of both roles."""

    at_unix_s: float
    """When the router saw it, by its clock."""
    shape: Shape
    requests_per_s: float
    prompt_tokens_per_s: float
    """Arriving."""
    pending_tokens: float
    """Prompt tokens that arrived and are not computed yet."""
    sequences: float
    """Requests that tokens are generated for, or wait to be."""
    kv_tokens: float
    """KV cache held by decode workers, as far as they tell."""


def observe(view: ClusterView, *, now_unix_s: float, last_shape: Shape = DEFAULT_SHAPE) -> Demand | Unknown:
    """Return what is asked of the cluster now, or why that is unknown.

    Args:
        view: the cluster.
        now_unix_s: the time.
        last_shape: the lengths that were seen last; they hold while no request arrives.
    """
    router = view.router
    if isinstance(router, Unknown):
        return router
    if now_unix_s - router.at_unix_s > STALE_S:
        return Unknown(f"the router's figures are older than {STALE_S:.0f} s")
    ready = {worker.pod for worker in view.workers if worker.ready and not worker.deleting}
    if ready and not ready & {worker.pod for worker in router.workers}:
        return Unknown("the router sees none of the ready workers")
    for name in ("requests_per_s", "prompt_tokens_per_s"):
        value: Figure = getattr(router, name)
        if isinstance(value, Unknown):
            return Unknown(f"{name}: {value.why}")
    return _demand(view, router, last_shape)


def prefill_pressure(demand: Demand, workers: Iterable[Capacity], *, ttft_s: float) -> float:
    """Return what is asked of prefill over what these workers do within `ttft_s`; 1 is just enough."""
    rate = sum(worker.prefill_tokens_per_s for worker in workers)
    asked = max(demand.prompt_tokens_per_s / UTILIZATION, demand.pending_tokens / ttft_s)
    return _over(asked, rate)


def decode_pressure(demand: Demand, workers: Iterable[Capacity]) -> float:
    """Return what is asked of decode over what these workers do within the ITL objective; 1 is just enough."""
    each = tuple(workers)
    return max(
        _over(demand.sequences, sum(worker.decode_sequences for worker in each)),
        _over(demand.kv_tokens, sum(worker.kv_tokens for worker in each)),
    )


def _over(asked: float, capacity: float) -> float:
    if capacity > 0:
        return asked / capacity
    return float("inf") if asked > 0 else 0.0


def _demand(view: ClusterView, router: RouterObservation, last_shape: Shape) -> Demand:
    isl, osl = router.mean_isl_tokens, router.mean_osl_tokens
    shape = Shape(
        isl_tokens=last_shape.isl_tokens if isinstance(isl, Unknown) else isl,
        osl_tokens=last_shape.osl_tokens if isinstance(osl, Unknown) else osl,
    )
    decoding = [worker for worker in router.workers if worker.role == names.ROLE_DECODE]
    sent = sum(worker.decodes_in_flight for worker in router.workers)
    told = sum(_number(worker.running) + _number(worker.waiting) for worker in decoding)
    return Demand(
        at_unix_s=router.at_unix_s,
        shape=shape,
        requests_per_s=_number(router.requests_per_s),
        prompt_tokens_per_s=_number(router.prompt_tokens_per_s),
        pending_tokens=sum(worker.pending_prefill_tokens for worker in router.workers)
        + router.queued_requests * shape.isl_tokens,
        sequences=max(sent, told) + router.queued_requests,
        kv_tokens=sum(_kv_tokens(view, worker) for worker in decoding),
    )


def _kv_tokens(view: ClusterView, worker: WorkerObservation) -> float:
    pool = next((known.pool for known in view.workers if known.pod == worker.pod), "")
    model = view.models.get(pool)
    if model is None or isinstance(model, Unknown):
        return 0.0
    return _number(worker.kv_usage) * model.kv_capacity_tokens


def _number(value: Figure) -> float:
    """A worker's own figure, 0 if it is missing: the router's counts carry the decision, these can only raise it."""
    return 0.0 if isinstance(value, Unknown) else value
