"""One step of the sizing loop: what is needed, what of it is allowed, and the next writes towards it."""

from dataclasses import dataclass

from swingpool_control.actions import Action, EmitEvent, SetReplicas
from swingpool_control.api.quantities import seconds
from swingpool_control.api.v1alpha1 import ReplicaMode, ScalingMode
from swingpool_control.figures import Unknown
from swingpool_control.sizing import allocate, demand, need, objectives, planning, pools, scale_down, stabilize
from swingpool_control.sizing.budget import Bound
from swingpool_control.sizing.demand import DEFAULT_SHAPE, Demand
from swingpool_control.sizing.memory import DRAIN_PERIOD_S, PERIOD_S, Lower, SizingMemory, SizingResult
from swingpool_control.sizing.need import Need
from swingpool_control.sizing.pools import PoolFacts
from swingpool_control.swing import idle
from swingpool_control.swing.guards import serving
from swingpool_control.view import ClusterView


def step(view: ClusterView, memory: SizingMemory, *, now_unix_s: float) -> SizingResult:
    """Decide how many workers each pool has, and move every drain under way on by one step.

    Call it every `result.next_step_s` seconds, and at once after a change of the spec. `SizingMemory()` is the memory
    to start with; drains under way are found on the pods. The view must show the manager's own writes as soon as they
    are answered.

    Args:
        view: the cluster; `view.models` holds the performance model of each pool.
        memory: what the step before returned.
        now_unix_s: the time.
    """
    shape = memory.shape or DEFAULT_SHAPE
    seen = demand.observe(view, now_unix_s=now_unix_s, last_shape=shape)
    shape = shape if isinstance(seen, Unknown) else seen.shape
    facts = pools.of(view, shape=shape)
    sized = _size(view, facts, seen, memory.lower, now_unix_s=now_unix_s)
    drained = {worker.uid for worker in view.workers if worker.drain}
    idle_now = idle.follow(view, memory.idle, uids=drained, now_unix_s=now_unix_s)
    actions, draining = _act(view, facts, sized, idle_now, now_unix_s=now_unix_s)
    plan = planning.plan(
        view,
        facts,
        seen,
        wanted=sized.counts,
        need=sized.need,
        bound=sized.bound,
        now_unix_s=now_unix_s,
    )
    return SizingResult(
        actions=actions,
        plan=plan,
        memory=SizingMemory(lower=sized.lower, idle=idle_now, shape=shape),
        summary=planning.summary(plan),
        next_step_s=DRAIN_PERIOD_S if draining else PERIOD_S,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Sized:
    counts: dict[str, int]
    need: Need
    bound: Bound | None
    lower: tuple[Lower, ...]


def _size(
    view: ClusterView,
    facts: tuple[PoolFacts, ...],
    seen: Demand | Unknown,
    lower: tuple[Lower, ...],
    *,
    now_unix_s: float,
) -> _Sized:
    """Workers by pool: up at once, down only after the window; nothing goes down on an unknown demand."""
    scaling = view.spec.scaling
    blind = isinstance(seen, Unknown)
    wanted = (
        Need.nothing()
        if isinstance(seen, Unknown)
        else need.of(seen, itl_s=objectives.mean_itl_s(view.spec.objectives))
    )
    bounded = allocate.within_bounds(facts, scaling.budgets)
    grown = allocate.grow(facts, bounded.counts, wanted, scaling.budgets)
    counts = dict(grown.counts)
    enough = dict(counts)
    if not blind and not any(pool.warming for pool in facts):
        band = 1 + scaling.stabilization.dead_band_percent / 100
        enough = allocate.shrink(facts, counts, wanted.scaled(band))
    window_s = seconds(scaling.stabilization.scale_down_window)
    lower = stabilize.remember(lower, enough, window_s=window_s, now_unix_s=now_unix_s)
    floor = stabilize.fewest(lower, window_s=window_s, now_unix_s=now_unix_s)
    if floor is not None and grown.counts == bounded.counts:
        counts = {name: min(count, floor.get(name, count)) for name, count in counts.items()}
    # Others give way for a pool that may not be without its fewest workers; it gets them when theirs have ended.
    fewest = {pool.name: max(counts[pool.name], pool.fewest) for pool in facts}
    trimmed = allocate.trim(facts, fewest, wanted, scaling.budgets)
    counts = {name: min(count, trimmed.counts[name]) for name, count in counts.items()}
    return _Sized(counts=counts, need=wanted, bound=grown.bound or bounded.bound or trimmed.bound, lower=lower)


def _act(
    view: ClusterView,
    facts: tuple[PoolFacts, ...],
    sized: _Sized,
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
        target = _carried_out(view, known, sized.counts[known.name])
        if known.name not in exists:
            continue
        if target is None:
            actions += scale_down.take_back(view, pool)
            continue
        change = scale_down.resize(
            view,
            pool,
            target,
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
