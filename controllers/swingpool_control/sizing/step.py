"""One step of the sizing loop: what is needed, what of it is allowed, and the next writes towards it."""

from collections.abc import Mapping
from dataclasses import dataclass, replace

from swingpool_control.actions import Action, EmitEvent, SetReplicas
from swingpool_control.api.scaling import Scaling
from swingpool_control.api.v1alpha1 import ReplicaMode, ScalingMode
from swingpool_control.figures import Unknown
from swingpool_control.sizing import (
    advice,
    asked,
    backlog,
    coming,
    demand,
    need,
    objectives,
    planning,
    pools,
    scale_down,
    seen_traffic,
    wanted,
    watch,
)
from swingpool_control.sizing.budget import Bound
from swingpool_control.sizing.capacity import Shape
from swingpool_control.sizing.coming import Coming
from swingpool_control.sizing.demand import DEFAULT_SHAPE, Demand
from swingpool_control.sizing.forecast import BURST
from swingpool_control.sizing.memory import DRAIN_PERIOD_S, PERIOD_S, Reckoned, SizingMemory, SizingResult
from swingpool_control.sizing.need import Need
from swingpool_control.sizing.pools import PoolFacts
from swingpool_control.sizing.programme import split
from swingpool_control.sizing.traffic import Traffic
from swingpool_control.swing import idle
from swingpool_control.swing.guards import serving
from swingpool_control.view import ClusterView


def step(view: ClusterView, memory: SizingMemory, *, now_unix_s: float, forecast: bool = True) -> SizingResult:
    """Decide how many workers each pool has, and move every drain under way on by one step.

    Call it every `result.next_step_s` seconds, and at once after a change of the spec. `SizingMemory()` is the memory
    to start with; drains under way are found on the pods. The view must show the manager's own writes as soon as they
    are answered.

    Args:
        view: the cluster; `view.models` holds the performance model of each pool.
        memory: what the step before returned.
        now_unix_s: the time.
        forecast: whether to look ahead; without it only what arrives and waits now counts.
    """
    shape = memory.shape or DEFAULT_SHAPE
    memory = watch.follow(view, memory)
    seen = _seen(view, memory, shape, now_unix_s=now_unix_s)
    shape = shape if isinstance(seen, Unknown) else seen.shape
    traffic = seen_traffic.of(view.router, shape=shape, last=memory.traffic)
    facts = pools.of(view, traffic=None if isinstance(seen, Unknown) else traffic)
    came = coming.follow(memory.coming, seen)
    ahead = (
        coming.foresee(came, seen, traffic, now_unix_s=now_unix_s, startup_s=_startup_s(view))
        if forecast
        else Unknown("no forecast was asked for")
    )
    reckoned = _reckoned(view, seen, traffic, memory.reckoned, now_unix_s=now_unix_s)
    needed = _needs(view, facts, seen, traffic, ahead, before=memory.reckoned, now_unix_s=now_unix_s)
    soon = coming.soon(came, traffic, now_unix_s=now_unix_s) if forecast else None
    advised = advice.of(
        view, facts, traffic, advice.lately(came, seen, traffic, soon=soon), memory.advice, now_unix_s=now_unix_s
    )
    decided = wanted.decide(
        facts,
        view.spec.scaling,
        now=needed.now,
        lasting=needed.lasting,
        lower=memory.lower,
        now_unix_s=now_unix_s,
        lengths=None if isinstance(seen, Unknown) else traffic.lengths,
    )
    drained = {worker.uid for worker in view.workers if worker.drain}
    idle_now = idle.follow(view, memory.idle, uids=drained, now_unix_s=now_unix_s)
    roles = split(asked.as_is(facts, decided.counts, needed.present, view.spec.scaling), decided.counts)
    actions, draining = _act(view, facts, decided.counts, roles, idle_now, now_unix_s=now_unix_s)
    plan = planning.plan(
        view,
        facts,
        seen,
        ahead=ahead,
        wanted=decided.counts,
        need=needed.present,
        bound=_felt(decided, facts, needed, view.spec.scaling),
        now_unix_s=now_unix_s,
    )
    return SizingResult(
        actions=actions,
        plan=plan,
        memory=SizingMemory(
            lower=decided.lower,
            idle=idle_now,
            shape=shape,
            traffic=traffic,
            coming=came,
            totals=memory.totals,
            advice=advised,
            reckoned=reckoned,
        ),
        summary=planning.summary(plan),
        next_step_s=DRAIN_PERIOD_S if draining else PERIOD_S,
    )


def _seen(view: ClusterView, memory: SizingMemory, shape: Shape, *, now_unix_s: float) -> Demand | Unknown:
    """What is asked now, by the last seconds if the load has just turned."""
    seen = demand.observe(view, now_unix_s=now_unix_s, last_shape=shape)
    if isinstance(seen, Unknown) or isinstance(view.router, Unknown):
        return seen
    return watch.lately(seen, memory, view.router)


RUNNING_S = 7.0
"""How old what runs must be to be compared with."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Needs:
    now: Need
    """With what is expected."""
    present: Need
    """Without."""
    lasting: Need | None


def _reckoned(
    view: ClusterView, seen: Demand | Unknown, traffic: Traffic, before: Reckoned | None, *, now_unix_s: float
) -> Reckoned | None:
    """What the next step shall know of this one."""
    if isinstance(seen, Unknown):
        return None
    running_per_s, ran_unix_s = need.running_per_s(seen, traffic, itl_s=_tightest(view)[1]), now_unix_s
    if before is not None and now_unix_s - before.ran_unix_s < RUNNING_S:
        running_per_s, ran_unix_s = before.running_per_s, before.ran_unix_s
    return Reckoned(
        at_unix_s=now_unix_s,
        prompt_tokens_per_s=seen.prompt_tokens_per_s,
        running_per_s=running_per_s,
        ran_unix_s=ran_unix_s,
    )


def _needs(
    view: ClusterView,
    facts: tuple[PoolFacts, ...],
    seen: Demand | Unknown,
    traffic: Traffic,
    ahead: Coming | Unknown,
    *,
    before: Reckoned | None,
    now_unix_s: float,
) -> _Needs:
    """What must be sustained: nothing that is known of, on an unknown demand, and then nothing goes down."""
    if isinstance(seen, Unknown):
        return _Needs(now=Need.nothing(), present=Need.nothing(), lasting=None)
    ttft_s, itl_s = _tightest(view)
    waiting = backlog.expected(view, facts, seen, traffic, now_unix_s=now_unix_s)
    running = need.running_per_s(seen, traffic, itl_s=itl_s)
    running = running if before is None else min(running, before.running_per_s)
    now = need.now(seen, traffic, ttft_s=ttft_s, running=running, waiting=waiting)
    lasting = need.arriving(seen, traffic)
    if isinstance(ahead, Unknown):
        return _Needs(now=now, present=now, lasting=lasting)
    then = ahead.need
    if ahead.traffic != traffic:
        then = coming.translated(then, pools.of(view, traffic=ahead.traffic), facts)
    return _Needs(now=now.at_least(then), present=now, lasting=lasting.at_least(_without_bursts(then, ahead, lasting)))


def _without_bursts(then: Need, ahead: Coming, lasting: Need) -> Need:
    """What is foretold, but for where a burst might grow to: that may ask for workers, but keeps none."""
    return replace(
        then,
        prefill_per_s=lasting.prefill_per_s if ahead.prompt_tokens.model == BURST else then.prefill_per_s,
        decode_per_s=lasting.decode_per_s if ahead.requests.model == BURST else then.decode_per_s,
    )


def _tightest(view: ClusterView) -> tuple[float, float]:
    """The tightest objectives of TTFT and ITL."""
    given = view.spec.objectives.ttft, view.spec.objectives.itl
    ttft_s, itl_s = (min(objectives.by_percentile(one).values()) for one in given)
    return ttft_s, itl_s


def _felt(decided: wanted.Wanted, facts: tuple[PoolFacts, ...], needed: _Needs, scaling: Scaling) -> Bound | None:
    """Return what kept the plan from more workers, if they are missed now: what may come is no reason for an alarm."""
    if decided.bound is None or needed.present == needed.now:
        return decided.bound
    covered = wanted.covers(asked.as_is(facts, decided.counts, needed.present, scaling), decided.counts)
    return None if covered else decided.bound


def _startup_s(view: ClusterView) -> float:
    """What the slowest worker takes to start."""
    known = (model.startup_s for model in view.models.values() if not isinstance(model, Unknown))
    return max(known, default=0.0)


def _act(
    view: ClusterView,
    facts: tuple[PoolFacts, ...],
    counts: Mapping[str, int],
    roles: Mapping[tuple[str, str], int],
    idle_now: tuple[idle.Idle, ...],
    *,
    now_unix_s: float,
) -> tuple[tuple[Action, ...], bool]:
    """The next writes for every pool, and whether workers drain after them."""
    serving_now = serving(view)
    exists = {state.pool for state in view.pools if state.exists}
    actions: list[Action] = []
    draining = False
    for pool, known in zip(view.spec.pools, facts, strict=True):
        target = _carried_out(view, known, counts[known.name])
        if known.name not in exists:
            continue
        if target is None:
            actions += scale_down.take_back(view, pool)
            continue
        change = scale_down.resize(
            view,
            pool,
            target,
            roles={role: count for (name, role), count in roles.items() if name == pool.name},
            serving=serving_now,
            idle=idle_now,
            reason=f"{target} workers are enough" if target < known.asked else f"{target} workers are needed",
            now_unix_s=now_unix_s,
        )
        actions += change.actions
        actions += _taken_over(view, known, change.actions)
        serving_now = change.serving
        draining = draining or change.draining or bool(change.actions)
    return tuple(actions), draining


def _taken_over(view: ClusterView, pool: PoolFacts, actions: tuple[Action, ...]) -> list[Action]:
    """Tell that something else set a pool's number, and make it ours if it stays: what that does next is seen then."""
    state = next(state for state in view.pools if state.pool == pool.name)
    if not state.foreign_scaler or _is_only_recommended(view, pool):
        return []
    message = f"pool {pool.name}: {state.foreign_scaler} set {state.replicas} replicas, which Swingpool decides"
    told = EmitEvent(type="Warning", reason="ForeignScaler", message=message)
    if any(isinstance(action, SetReplicas) for action in actions):
        return [told]
    return [told, SetReplicas(pool=pool.name, replicas=state.replicas, reason="they stay, and are Swingpool's again")]


def _is_only_recommended(view: ClusterView, pool: PoolFacts) -> bool:
    return view.spec.scaling.mode is ScalingMode.RECOMMEND and pool.mode is ReplicaMode.AUTO


def _carried_out(view: ClusterView, pool: PoolFacts, wanted: int) -> int | None:
    """How many workers the pool is brought to; None if something else scales it.

    A recommendation changes nothing that Swingpool decides: a pool in mode Auto keeps what was asked for, and its
    drains are taken back. A fixed number is the user's own decision and carried out.
    """
    if pool.mode is ReplicaMode.EXTERNAL:
        return None
    if _is_only_recommended(view, pool):
        return next(state.replicas for state in view.pools if state.pool == pool.name)
    return wanted
