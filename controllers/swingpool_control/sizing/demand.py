"""What a cluster's requests ask of each role now, as totals over all workers.

Totals, because one hot worker is the placement's business and never a reason to move capacity. A figure that is missing
makes the whole demand unknown: if one role is blind, both hold.
"""

from dataclasses import dataclass

from swingpool_control import names
from swingpool_control.engine.model import PerformanceModel, decode_step_s
from swingpool_control.figures import Figure, Unknown
from swingpool_control.observation import RouterObservation, WorkerObservation
from swingpool_control.sizing.capacity import Shape
from swingpool_control.view import ClusterView

DEFAULT_SHAPE = Shape(isl_tokens=1024, osl_tokens=256)
"""Lengths before any request was seen."""

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
    pending_requests: float
    """Requests whose prompts those are, as far as they wait in the router or are with a prefill worker."""
    sequences: float
    """Requests that tokens are generated for."""
    generated_tokens_per_s: float
    """Tokens that the workers generate now, by the performance model from the sequences that each holds."""
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
        return Unknown(f"the router's figures are older than {STALE_S:.0f} s, or its clock is behind")
    ready = {worker.pod for worker in view.workers if worker.ready and not worker.deleting}
    if ready and not ready & {worker.pod for worker in router.workers}:
        return Unknown("the router sees none of the ready workers")
    for name in ("requests_per_s", "prompt_tokens_per_s"):
        value: Figure = getattr(router, name)
        if isinstance(value, Unknown):
            return Unknown(f"{name}: {value.why}")
    for pool in view.spec.pools:
        model = view.models.get(pool.name, Unknown("its performance profile was not loaded"))
        if isinstance(model, Unknown):
            return Unknown(f"pool {pool.name}: {model.why}")
    return _demand(view, router, last_shape)


def _demand(view: ClusterView, router: RouterObservation, last_shape: Shape) -> Demand:
    isl, osl = router.mean_isl_tokens, router.mean_osl_tokens
    shape = Shape(
        isl_tokens=last_shape.isl_tokens if isinstance(isl, Unknown) else isl,
        osl_tokens=last_shape.osl_tokens if isinstance(osl, Unknown) else osl,
    )
    decoding = [worker for worker in router.workers if worker.role == names.ROLE_DECODE]
    sent = sum(worker.decodes_in_flight for worker in router.workers)
    told = sum(_number(worker.running) + _number(worker.waiting) for worker in decoding)
    models = _models(view)
    return Demand(
        at_unix_s=router.at_unix_s,
        shape=shape,
        requests_per_s=_number(router.requests_per_s),
        prompt_tokens_per_s=_number(router.prompt_tokens_per_s),
        pending_tokens=sum(worker.pending_prefill_tokens for worker in router.workers)
        + (router.queued_prompt_tokens or router.queued_requests * shape.isl_tokens),
        pending_requests=router.queued_requests + sum(worker.prefills_in_flight for worker in router.workers),
        sequences=max(sent, told),
        generated_tokens_per_s=sum(
            _generated_tokens_per_s(models.get(worker.pod), worker, shape) for worker in router.workers
        ),
        kv_tokens=sum(_kv_tokens(models.get(worker.pod), worker) for worker in decoding),
    )


def _models(view: ClusterView) -> dict[str, PerformanceModel]:
    """Performance model by pod."""
    found = {}
    for worker in view.workers:
        model = view.models.get(worker.pool)
        if model is not None and not isinstance(model, Unknown):
            found[worker.pod] = model
    return found


def _generated_tokens_per_s(model: PerformanceModel | None, worker: WorkerObservation, shape: Shape) -> float:
    sequences = min(worker.decodes_in_flight, model.max_sequences) if model is not None else 0
    if model is None or sequences == 0:
        return 0.0
    step_s = decode_step_s(model, sequences=sequences, context_tokens=sequences * shape.context_tokens)
    return sequences / max(step_s, 1e-9)


def _kv_tokens(model: PerformanceModel | None, worker: WorkerObservation) -> float:
    return 0.0 if model is None else _number(worker.kv_usage) * model.kv_capacity_tokens


def _number(value: Figure) -> float:
    """A worker's own figure, 0 if it is missing: the router's counts carry the decision, these can only raise it."""
    return 0.0 if isinstance(value, Unknown) else value
