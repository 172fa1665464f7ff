"""From a view to the figures on which `roles` decides, and to the workers that it may move."""

import math
from collections.abc import Mapping
from dataclasses import replace

from swingpool_control import names
from swingpool_control.api.quantities import seconds
from swingpool_control.api.status import FlipRecord
from swingpool_control.api.v1alpha1 import PoolRole
from swingpool_control.engine.model import decode_step_s
from swingpool_control.figures import Figure, Unknown
from swingpool_control.observation import RouterObservation, WorkerObservation
from swingpool_control.sizing import capacity, demand, objectives
from swingpool_control.sizing.capacity import Capacity
from swingpool_control.sizing.demand import Demand
from swingpool_control.swing import evidence, flip, rates, records, roles
from swingpool_control.swing.evidence import Evidence
from swingpool_control.swing.guards import ROLES, observed, other
from swingpool_control.swing.load import Asked, Seat
from swingpool_control.swing.memory import SwingMemory
from swingpool_control.swing.rescue import held
from swingpool_control.view import ClusterView, WorkerView

CERTAIN = 2.0
"""Standard deviations of chance by which decode must grow for it to count as growth."""


def remember(view: ClusterView, memory: SwingMemory, *, now_unix_s: float) -> tuple[SwingMemory, Unknown | None]:
    """Return the memory with the newest observation in it, and why there is none if there is none."""
    seen = demand.observe(view, now_unix_s=now_unix_s, last_shape=memory.shape)
    if isinstance(seen, Unknown):
        return replace(memory, demands=(), totals=(), evidence=Evidence()), seen
    totals = () if isinstance(view.router, Unknown) else rates.follow(memory.totals, view.router)
    memory = replace(memory, shape=seen.shape, totals=totals, router_seen_unix_s=now_unix_s)
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
) -> roles.Proposal | Unknown:
    """Return what the newest observation speaks for, or why nothing can be said.

    Args:
        view: the cluster.
        memory: with the newest observation in it.
        serving: uids of the workers that serve for certain, by role.
        now_unix_s: the time.
    """
    if not memory.demands:
        return Unknown("nothing was observed yet")
    able = _capacities(view, memory.demands[-1])
    if isinstance(able, Unknown):
        return able
    seats = tuple(
        seat
        for worker in view.workers
        if worker.pool in able
        and (seat := _seat(view, memory, serving, worker, able[worker.pool], now_unix_s=now_unix_s)) is not None
    )
    dead_band = view.spec.scaling.stabilization.dead_band_percent / 100
    return roles.decide(seats, _asked(view, memory), dead_band=dead_band)


def weigh(memory: SwingMemory, proposal: roles.Proposal) -> SwingMemory:
    """Return the memory with what the newest observation speaks for added to the evidence, once for each."""
    at_unix_s = memory.demands[-1].at_unix_s
    if memory.evidence.at_unix_s is not None and at_unix_s <= memory.evidence.at_unix_s:
        return memory
    gathered = evidence.gather(
        memory.evidence,
        to_role=proposal.to_role,
        workers=len(proposal.uids),
        saving=proposal.saving,
        at_unix_s=at_unix_s,
    )
    return replace(memory, evidence=gathered)


def moves(memory: SwingMemory, proposal: roles.Proposal, *, now_unix_s: float) -> tuple[roles.Move, ...]:
    """Return the workers that should change their role now: those of which observations have shown enough."""
    gathered = memory.evidence
    if not proposal.uids or gathered.to_role != proposal.to_role:
        return ()
    since_s = now_unix_s - _last_flip_unix_s(memory.flips, other(proposal.to_role))
    if not evidence.is_enough(gathered, since_reverse_s=since_s):
        return ()
    chosen = proposal.uids[: gathered.workers]
    return tuple(roles.Move(uid=uid, to_role=proposal.to_role, reason=proposal.reason) for uid in chosen)


def _last_flip_unix_s(flips: tuple[FlipRecord, ...], to_role: str) -> float:
    times = [records.decided_unix_s(record) for record in flips if record.to == to_role]
    return max(times, default=-math.inf)


def _asked(view: ClusterView, memory: SwingMemory) -> Asked:
    now = memory.demands[-1]
    bound = sum(sight.pending_prefill_tokens for sight in observed(view).values())
    queued, cached, spread = 0, 0.0, 2.0
    if not isinstance(view.router, Unknown):
        queued, cached, spread = view.router.queued_requests, _cached_share(view.router), rates.spread(view.router)
    arriving = rates.arriving(
        memory.totals,
        requests_per_s=now.requests_per_s,
        prompt_tokens_per_s=now.prompt_tokens_per_s,
        spread=spread,
    )
    return Asked(
        prompt_tokens_per_s=arriving.prompt_tokens_per_s * (1.0 - cached),
        queued_tokens=max(0.0, now.pending_tokens - bound),
        output_tokens_per_s=0.0 if arriving.turned else arriving.requests_per_s * now.shape.osl_tokens,
        queued_sequences=queued,
        growth_per_s=_growth_per_s(memory.demands),
        ttft_s=objectives.mean_ttft_s(view.spec.objectives),
        cached_share=cached,
    )


def _cached_share(router: RouterObservation) -> float:
    """Share of prompt tokens that need not be computed; 0 where nobody tells."""
    cached, arriving = router.cached_prompt_tokens_per_s, router.prompt_tokens_per_s
    if isinstance(cached, Unknown) or isinstance(arriving, Unknown) or arriving <= 0:
        return 0.0
    return min(1.0, max(0.0, cached / arriving))


def _growth_per_s(demands: tuple[Demand, ...]) -> float:
    """Sequences per second by which decode grows, beyond what chance explains of a load that stays."""
    if len(demands) < 2:
        return 0.0
    before, now = demands[-2:]
    past_s = max(now.at_unix_s - before.at_unix_s, 1e-3)
    growth = (now.sequences - before.sequences) / past_s
    chance = CERTAIN * math.sqrt(2.0 * max(now.requests_per_s, growth, 0.0) / past_s)
    return max(0.0, growth - chance)


def _capacities(view: ClusterView, seen: Demand) -> dict[str, Capacity] | Unknown:
    """Capacity of a worker of each pool, by the shape of requests."""
    ttft_s, itl_s = objectives.mean_ttft_s(view.spec.objectives), objectives.mean_itl_s(view.spec.objectives)
    found: dict[str, Capacity] = {}
    for pool in view.spec.pools:
        model = view.models.get(pool.name, Unknown("its performance profile was not loaded"))
        if isinstance(model, Unknown):
            return Unknown(f"pool {pool.name}: {model.why}")
        found[pool.name] = capacity.capacity(model, shape=seen.shape, ttft_s=ttft_s, itl_s=itl_s)
    return found


def _seat(
    view: ClusterView,
    memory: SwingMemory,
    serving: Mapping[str, frozenset[str]],
    worker: WorkerView,
    able: Capacity,
    *,
    now_unix_s: float,
) -> Seat | None:
    """A worker's place in the decision; None if it serves nothing and is not about to."""
    target = role_to_be(worker, memory)
    serves = any(worker.uid in serving[role] for role in ROLES)
    changing = target != worker.role and worker.ready and not worker.deleting and not worker.drain
    if not serves and not changing:
        return None
    dwell_s = seconds(view.spec.scaling.stabilization.min_role_duration)
    rested = now_unix_s - records.last_change_unix_s(memory.flips, worker) >= dwell_s
    sight = observed(view).get(worker.pod)
    sequences = 0.0 if sight is None else _sequences(sight)
    return Seat(
        uid=worker.uid,
        role=target,
        movable=serves and not changing and rested and worker.pool in swing_pools(view),
        held=held(view, worker),
        capacity=able,
        waiting_tokens=0.0 if sight is None else max(0.0, sight.pending_prefill_tokens),
        sequences=sequences,
        tokens_per_s=_tokens_per_s(view, memory, worker, sequences),
        kv_tokens=0.0 if sight is None else _told(sight.kv_usage) * able.kv_tokens / capacity.KV_FILL,
    )


def _sequences(sight: WorkerObservation) -> float:
    """Sequences that a worker generates for: what was sent to it, or what it says if that is more."""
    told = _told(sight.running) + _told(sight.waiting) if sight.role == names.ROLE_DECODE else 0.0
    return max(float(sight.decodes_in_flight), told)


def _tokens_per_s(view: ClusterView, memory: SwingMemory, worker: WorkerView, sequences: float) -> float:
    """Tokens per second that a worker generates for so many sequences of the mean context."""
    model = view.models.get(worker.pool)
    if model is None or isinstance(model, Unknown) or sequences < 1:
        return 0.0
    batch = min(round(sequences), model.max_sequences)
    step_s = decode_step_s(model, sequences=batch, context_tokens=batch * memory.shape.context_tokens)
    return batch / max(step_s, 1e-9)


def _told(value: Figure) -> float:
    """A worker's own figure, 0 if it is missing: the router's counts carry the decision, these can only raise it."""
    return 0.0 if isinstance(value, Unknown) else value


def role_to_be(worker: WorkerView, memory: SwingMemory) -> str:
    """Return the role that a worker has, or is changing to."""
    for asked in memory.pending:
        if asked.uid == worker.uid:
            return asked.target
    state = flip.parse(worker.flip)
    return worker.role if state is None else state.to_role
