"""From a view to the figures on which `roles` decides, and to the workers that it may move."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

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
from swingpool_control.swing import balance, evidence, flip, guards, rates, records, roles
from swingpool_control.swing.balance import SHORT
from swingpool_control.swing.evidence import Evidence
from swingpool_control.swing.growth import Generating, growth_per_s
from swingpool_control.swing.guards import ROLES, observed
from swingpool_control.swing.load import HORIZON_S, HOT, Asked, Seat, counted_sequences
from swingpool_control.swing.memory import SwingMemory
from swingpool_control.swing.rescue import held
from swingpool_control.view import ClusterView, WorkerView

FIRST_S = 1.0
"""What the first observation counts for."""

KEPT = 0.5
"""Share of a worker's KV cache from which on prompts that are computed, and wait to be fetched, are what keeps a full
worker from computing others."""


def remember(view: ClusterView, memory: SwingMemory, *, now_unix_s: float) -> tuple[SwingMemory, Unknown | None]:
    """Return the memory with the newest observation in it, and why there is none if there is none."""
    seen = demand.observe(view, now_unix_s=now_unix_s, last_shape=memory.shape)
    if isinstance(seen, Unknown):
        return replace(memory, demand=None, totals=(), decoding=None, evidence=(), weighed_unix_s=None), seen
    totals = () if isinstance(view.router, Unknown) else rates.follow(memory.totals, view.router)
    memory = replace(memory, shape=seen.shape, totals=totals, router_seen_unix_s=now_unix_s)
    if memory.demand is not None and seen.at_unix_s <= memory.demand.at_unix_s:
        return memory, None
    return replace(memory, demand=seen), None


def swing_workers(view: ClusterView) -> tuple[WorkerView, ...]:
    """Return the workers of all swing pools."""
    pools = swing_pools(view)
    return tuple(worker for worker in view.workers if worker.pool in pools)


def swing_pools(view: ClusterView) -> frozenset[str]:
    """Return the names of all swing pools."""
    return frozenset(pool.name for pool in view.spec.pools if pool.role is PoolRole.SWING)


@dataclass(frozen=True, slots=True, kw_only=True)
class Outlook:
    """What the newest observation shows."""

    seats: tuple[Seat, ...]
    asked: Asked
    loads: Mapping[str, float]
    """By role."""
    options: Mapping[str, roles.Option]
    """The best way to give workers to a role, by role."""


def weigh(
    view: ClusterView, memory: SwingMemory, serving: Mapping[str, frozenset[str]], *, now_unix_s: float
) -> tuple[SwingMemory, Outlook | Unknown]:
    """Return what the newest observation shows, or why it shows nothing, and the memory with that as evidence.

    Args:
        view: the cluster.
        memory: with the newest observation in it.
        serving: uids of the workers that serve for certain, by role.
        now_unix_s: the time.
    """
    seen = memory.demand
    if seen is None:
        return memory, Unknown("nothing was observed yet")
    able = _capacities(view, seen)
    if isinstance(able, Unknown):
        return memory, able
    seats = tuple(
        seat
        for worker in view.workers
        if worker.pool in able
        and (seat := _seat(view, memory, serving, worker, able[worker.pool], now_unix_s=now_unix_s)) is not None
    )
    decoders = [seat for seat in seats if seat.role == names.ROLE_DECODE]
    decoding = Generating(at_unix_s=seen.at_unix_s, sequences=counted_sequences(decoders))
    asked = _asked(view, memory, seen, seats, decoding)
    loads = roles.loads(seats, asked)
    dead_band = view.spec.scaling.stabilization.dead_band_percent / 100
    options = roles.decide(seats, asked, dead_band=dead_band)
    outlook = Outlook(seats=seats, asked=asked, loads=loads, options=options)
    before_unix_s = memory.weighed_unix_s
    if before_unix_s is not None and seen.at_unix_s <= before_unix_s:
        return memory, outlook
    past_s = FIRST_S if before_unix_s is None else seen.at_unix_s - before_unix_s
    return replace(
        memory,
        decoding=decoding,
        weighed_unix_s=seen.at_unix_s,
        evidence=tuple(
            _gather(memory, role, options.get(role), turned=asked.turned, past_s=past_s, now_unix_s=now_unix_s)
            for role in ROLES
        ),
        balance=balance.judge(seats, asked, loads, memory.balance, now_unix_s=now_unix_s),
    ), outlook


def moves(memory: SwingMemory, options: Mapping[str, roles.Option]) -> tuple[roles.Move, ...]:
    """Return the workers that should change their role now: those of which observations have shown enough."""
    for gathered in sorted(memory.evidence, key=lambda one: one.gathered, reverse=True):
        option = options.get(gathered.to_role)
        if option is not None and option.worthwhile and evidence.is_enough(gathered):
            chosen = option.uids[: gathered.workers]
            return tuple(roles.Move(uid=uid, to_role=option.to_role, reason=option.reason) for uid in chosen)
    return ()


def advised(memory: SwingMemory, outlook: Outlook) -> tuple[roles.Move, ...]:
    """Return the workers that should change their role now by what sizing says of the last minute.

    Nobody moves while their own role is short by what the newest observation shows.
    """
    advice = memory.advice
    if advice is None or not advice.workers or not advice.lasts or outlook.loads[guards.other(advice.to_role)] >= SHORT:
        return ()
    gives = [seat for seat in outlook.seats if seat.role == guards.other(advice.to_role)]
    movable = sorted((seat for seat in gives if seat.movable), key=lambda seat: (seat.held, seat.uid))
    chosen = movable[: min(advice.workers, len(gives) - 1)]
    return tuple(roles.Move(uid=seat.uid, to_role=advice.to_role, reason=advice.reason) for seat in chosen)


def _gather(
    memory: SwingMemory, role: str, option: roles.Option | None, *, turned: bool, past_s: float, now_unix_s: float
) -> Evidence:
    if option is None:
        return Evidence(to_role=role)
    doubted = not turned and memory.advice is not None and role in memory.advice.needless
    return evidence.gather(
        next((one for one in memory.evidence if one.to_role == role), Evidence(to_role=role)),
        workers=len(option.uids) if option.worthwhile else 0,
        saving=option.saving,
        past_s=past_s,
        doubted=doubted,
        since_reverse_s=_since_reverse_s(memory.flips, role, now_unix_s),
    )


def _since_reverse_s(flips: tuple[FlipRecord, ...], role: str, now_unix_s: float) -> float:
    """How long ago the last flip was, if it took a worker from a role; infinity if it gave it one."""
    last = max(flips, key=records.decided_unix_s, default=None)
    return math.inf if last is None or last.to == role else now_unix_s - records.decided_unix_s(last)


def _asked(view: ClusterView, memory: SwingMemory, now: Demand, seats: Sequence[Seat], decoding: Generating) -> Asked:
    decoders = [seat for seat in seats if seat.role == names.ROLE_DECODE]
    computing = [seat for seat in seats if seat.role == names.ROLE_PREFILL]
    blocked = sum(seat.blocked for seat in computing) / max(1, len(computing))
    bound = sum(sight.pending_prefill_tokens for sight in observed(view).values())
    cached, spread = 0.0, 2.0
    if not isinstance(view.router, Unknown):
        cached, spread = _cached_share(view.router), rates.spread(view.router)
    arriving = rates.arriving(
        memory.totals,
        requests_per_s=now.requests_per_s,
        prompt_tokens_per_s=now.prompt_tokens_per_s,
        spread=spread,
    )
    generated = sum(min(seat.tokens_per_s, seat.capacity.decode_tokens_per_s * HOT) for seat in decoders)
    # While the load turns, the lengths of answers are still those of what is over.
    wanted = 0.0 if arriving.turned else arriving.requests_per_s * now.shape.osl_tokens
    sequences = decoding.sequences
    grows = growth_per_s(memory.decoding, decoding, requests_per_s=now.requests_per_s, turned=arriving.turned)
    if not arriving.turned:
        # Answers that end before a flip has worked are no reason for one: in their place come those that arrive.
        answer_s = now.shape.osl_tokens * objectives.mean_itl_s(view.spec.objectives)
        lasting = min(1.0, answer_s / HORIZON_S)
        sequences = lasting * sequences + (1.0 - lasting) * arriving.requests_per_s * answer_s
        generated = lasting * generated + (1.0 - lasting) * wanted
        grows *= lasting
    return Asked(
        prompt_tokens_per_s=arriving.prompt_tokens_per_s * (1.0 - cached),
        queued_tokens=max(0.0, now.pending_tokens - bound) * (1.0 - blocked),
        output_tokens_per_s=max(generated, wanted),
        sequences=sequences,
        kv_tokens=sum(min(seat.kv_tokens, seat.capacity.kv_tokens) for seat in decoders),
        growth_per_s=grows,
        ttft_s=objectives.mean_ttft_s(view.spec.objectives),
        cached_share=cached,
        turned=arriving.turned,
    )


def _cached_share(router: RouterObservation) -> float:
    """Share of prompt tokens that need not be computed; 0 where nobody tells."""
    cached, arriving = router.cached_prompt_tokens_per_s, router.prompt_tokens_per_s
    if isinstance(cached, Unknown) or isinstance(arriving, Unknown) or arriving <= 0:
        return 0.0
    return min(1.0, max(0.0, cached / arriving))


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
    kv_tokens = 0.0 if sight is None else _told(sight.kv_usage) * able.kv_tokens / capacity.KV_FILL
    waiting_tokens = 0.0 if sight is None else max(0.0, sight.pending_prefill_tokens)
    computing_tokens = min(waiting_tokens, memory.shape.isl_tokens)
    blocked = target == names.ROLE_PREFILL and is_blocked(able, kv_tokens, computing_tokens)
    return Seat(
        uid=worker.uid,
        role=target,
        movable=serves and not changing and rested and worker.pool in swing_pools(view),
        held=held(view, worker),
        capacity=able,
        waiting_tokens=0.0 if blocked else waiting_tokens,
        sequences=sequences,
        tokens_per_s=_tokens_per_s(view, memory, worker, sequences),
        kv_tokens=kv_tokens,
        blocked=blocked,
    )


def is_blocked(able: Capacity, kv_tokens: float, computing_tokens: float) -> bool:
    """Tell whether a prefill worker's KV cache is full of prompts that are computed and wait to be fetched.

    What waits there then waits for decode workers, which more prefill workers would not make any faster. A prompt that
    is computed there holds KV cache, too; those behind it do not yet.
    """
    return kv_tokens >= able.kv_tokens and kv_tokens - computing_tokens >= KEPT * able.kv_tokens


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
