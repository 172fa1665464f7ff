"""How fast the workers are, against their profiles: what both loops' models are corrected by.

Decode: the mean time between tokens of the router's window, against what the profiles say of the batches that the
decode workers hold. Prompts that they are given to compute make some steps longer: their part is taken off, by the
profiles, and if it is large the time says nothing.
Prefill: what the router learns from every batch of prompts that it sends, against its own prediction. A worker whose KV
cache is full of prompts that wait to be fetched computes the next ones no slower: it waits for decode workers, for a
single hot one perhaps, so its times say nothing. Taken for slowness they would ask for prefill workers, who help none.

Both are compared with the profiles as they are, not as corrected before, so that a factor never feeds on itself.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from swingpool_control import names
from swingpool_control.engine.calibration import Calibration, Evidence, corrected, update
from swingpool_control.engine.linear import LinearModel
from swingpool_control.engine.model import PerformanceModel, decode_step_s, prefill_s
from swingpool_control.figures import Figure, Unknown
from swingpool_control.observation import NOT_TOLD, RouterObservation, WorkerObservation
from swingpool_control.sizing.demand import STALE_S
from swingpool_control.view import ClusterView

MOST_PROMPTS = 0.3
"""Share of decode workers' time that may go to prompts: beyond it nothing is said of their steps."""

HELD = 0.5
"""Share of a prefill worker's KV cache that may wait to be fetched: beyond it, its prompts may wait for room."""

_ByPod = Mapping[str, PerformanceModel | Unknown | None]


@dataclass(frozen=True, slots=True, kw_only=True)
class SpeedMemory:
    """What is known of the workers' speed. Losing it means to begin with the profiles again."""

    calibration: Calibration = field(default_factory=Calibration)
    deflected_prompt_tokens: Figure = NOT_TOLD
    """As the last observation told, and when."""
    at_unix_s: float = 0.0


def follow(view: ClusterView, memory: SpeedMemory, *, now_unix_s: float) -> SpeedMemory:
    """Return the memory after one more look; call it about as often as sizing decides.

    Args:
        view: the cluster; its models are the profiles' own, not corrected.
        memory: what the look before returned.
        now_unix_s: the time.
    """
    router = view.router
    if isinstance(router, Unknown) or now_unix_s - router.at_unix_s > STALE_S:
        return replace(memory, calibration=update(memory.calibration, {}, now_unix_s=now_unix_s))
    models = {worker.pod: view.models.get(worker.pool) for worker in view.workers}
    evidence = {
        names.ROLE_PREFILL: _prefill(router, models),
        names.ROLE_DECODE: _decode(router, models, memory),
    }
    return SpeedMemory(
        calibration=update(memory.calibration, evidence, now_unix_s=now_unix_s),
        deflected_prompt_tokens=router.deflected_prompt_tokens,
        at_unix_s=router.at_unix_s,
    )


def calibrated(view: ClusterView, memory: SpeedMemory) -> ClusterView:
    """Return a view whose models have the factors applied; a model that is not linear stays as it is."""
    calibration = memory.calibration
    if calibration.neutral:
        return replace(view, calibration=calibration)
    models = {
        pool: corrected(model, calibration) if isinstance(model, LinearModel) else model
        for pool, model in view.models.items()
    }
    return replace(view, models=models, calibration=calibration)


def _prefill(router: RouterObservation, models: _ByPod) -> Evidence:
    """The mean of what the router learnt of each prefill worker that had room, by the prompts that it stands on."""
    served, total, waited = 0, 0.0, False
    for worker in router.workers:
        if worker.role != names.ROLE_PREFILL or isinstance(worker.slowness, Unknown):
            continue
        if not _had_room(worker, models.get(worker.pod)):
            waited = True
            continue
        served += worker.prefills_served
        total += worker.slowness * worker.prefills_served
    why = "prefill workers hold prompts that wait to be fetched" if waited else "the router has learnt nothing of them"
    observed: Figure = total / served if served else Unknown(why)
    return Evidence(observed_s=observed, predicted_s=1.0, values=served)


def _had_room(worker: WorkerObservation, model: PerformanceModel | Unknown | None) -> bool:
    """Whether a prefill worker could begin what it was sent, for all that is known; unknown is no room."""
    if isinstance(worker.kv_usage, Unknown) or model is None or isinstance(model, Unknown):
        return False
    computing = min(worker.pending_prefill_tokens, model.max_batched_tokens) / model.kv_capacity_tokens
    return worker.kv_usage - computing <= HELD


def _decode(router: RouterObservation, models: _ByPod, memory: SpeedMemory) -> Evidence:
    """The mean time between tokens, less what prompts add, against the mean step of all tokens made now."""
    observed, share = router.itl_s.mean, _prompts_share(router, models, memory)
    if not isinstance(observed, Unknown):
        observed = share if isinstance(share, Unknown) else observed * (1.0 - share)
    return Evidence(observed_s=observed, predicted_s=_step_s(router, models), values=router.itl_s.count)


def _prompts_share(router: RouterObservation, models: _ByPod, memory: SpeedMemory) -> Figure:
    """The share of decode workers' time that goes to prompts which they were given to compute."""
    now, before, passed_s = router.deflected_prompt_tokens, memory.deflected_prompt_tokens, 0.0
    if isinstance(now, Unknown):
        return 0.0  # a router that does not deflect
    if isinstance(before, Unknown) or now < before or (passed_s := router.at_unix_s - memory.at_unix_s) <= 0:
        return Unknown("how many prompts decode workers compute is not known yet")
    isl = router.mean_isl_tokens
    if now == before or isinstance(isl, Unknown):
        return 0.0
    known = [models.get(worker.pod) for worker in router.workers if worker.role == names.ROLE_DECODE]
    costs = [_token_s(model, max(1, round(isl))) for model in known if isinstance(model, PerformanceModel)]
    if not costs:
        return Unknown("no decode worker is known")
    share = (now - before) / passed_s * (sum(costs) / len(costs)) / len(known)
    return share if share <= MOST_PROMPTS else Unknown("decode workers compute many prompts")


def _token_s(model: PerformanceModel, tokens: int) -> float:
    """What a token of a prompt takes beside an iteration's base."""
    return (
        max(0.0, prefill_s(model, prompt_tokens=tokens) - decode_step_s(model, sequences=1, context_tokens=0)) / tokens
    )


def _step_s(router: RouterObservation, models: _ByPod) -> Figure:
    context = _context_tokens(router)
    if isinstance(context, Unknown):
        return context
    sequences, tokens_per_s = 0.0, 0.0
    for worker in router.workers:
        model = models.get(worker.pod)
        running = _running(worker)
        if worker.role != names.ROLE_DECODE or running < 1:
            continue
        if model is None or isinstance(model, Unknown):
            return Unknown(f"the profile of {worker.pod} is not known")
        sequences += running
        tokens_per_s += running / decode_step_s(model, sequences=running, context_tokens=round(running * context))
    return sequences / tokens_per_s if tokens_per_s > 0 else Unknown("no decode worker generates")


def _running(worker: WorkerObservation) -> int:
    """Sequences in a worker's batch: by its own count, or as many as the router has sent there."""
    if isinstance(worker.running, Unknown):
        return worker.decodes_in_flight
    return math.floor(worker.running)


def _context_tokens(router: RouterObservation) -> Figure:
    """Tokens that a sequence reads per step, on the average over generated tokens."""
    if not isinstance(router.lengths, Unknown):
        return router.lengths.mean_context_tokens
    if isinstance(router.mean_isl_tokens, Unknown):
        return router.mean_isl_tokens
    if isinstance(router.mean_osl_tokens, Unknown):
        return router.mean_osl_tokens
    return router.mean_isl_tokens + router.mean_osl_tokens / 2
