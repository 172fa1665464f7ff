"""For any pools, need and budgets: bounds and budgets hold, more need never means less, blind never shrinks."""

from dataclasses import replace
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from swingpool_control import names
from swingpool_control.actions import PatchWorker, SetReplicas
from swingpool_control.api.scaling import Scaling
from swingpool_control.api.v1alpha1 import InferenceClusterSpec, PoolRole, ReplicaMode
from swingpool_control.engine import profile
from swingpool_control.engine.model import decode_step_s
from swingpool_control.figures import Unknown
from swingpool_control.sizing import allocate, asked, budget, wanted
from swingpool_control.sizing.capacity import Shape, capacity
from swingpool_control.sizing.memory import Lower, SizingMemory
from swingpool_control.sizing.need import Need
from swingpool_control.sizing.pools import ROLES_OF, PoolFacts
from swingpool_control.sizing.programme import split, totals
from swingpool_control.sizing.step import step
from tests.unit.sizing.problems import rates
from tests.unit.swing.fleet import T0, Fleet, spec

MODEL = profile.built_in("demo").model()
FEW = settings(max_examples=20, deadline=None, suppress_health_check=[HealthCheck.too_slow])
NO_LIMITS = Scaling()


@st.composite
def fleets(draw: st.DrawFn) -> tuple[PoolFacts, ...]:
    count = draw(st.integers(1, 4))
    prices = draw(st.lists(st.integers(1, 50), min_size=count, max_size=count, unique=True))
    return tuple(draw(facts(order, price=float(price))) for order, price in enumerate(prices))


@st.composite
def facts(draw: st.DrawFn, order: int, *, price: float) -> PoolFacts:
    fewest = draw(st.integers(0, 3))
    asked_for = draw(st.integers(0, 8))
    role = draw(st.sampled_from(PoolRole))
    return PoolFacts(
        name=f"pool{order}",
        order=order,
        role=role,
        mode=ReplicaMode.AUTO,
        fewest=fewest,
        most=fewest + draw(st.integers(0, 6)),
        asked=asked_for,
        useful=draw(st.integers(0, asked_for)),
        present=draw(st.integers(0, 10)),
        surge=draw(st.integers(0, 1)),
        warming=False,
        blocked=draw(st.sampled_from(["", "", "no node takes it"])),
        price_per_hour=price,
        product=draw(st.sampled_from(["H100", "H200"])),
        accelerators=draw(st.integers(1, 4)),
        rates={role: draw(rates()) for role in ROLES_OF[role]},
        kv_tokens=draw(st.floats(1, 100)),
    )


needs = st.builds(
    Need, prefill_per_s=st.floats(0, 20), decode_per_s=st.floats(0, 20), kv_tokens=st.sampled_from([0.0, 0.0, 150.0])
)


def limits(most_h100: int, most_h200: int, cost: int) -> Scaling:
    accelerators = [{"product": "H100", "max": most_h100}, {"product": "H200", "max": most_h200}]
    return Scaling.model_validate({"budgets": {"accelerators": accelerators, "costPerHour": str(cost)}})


budgets = st.builds(limits, st.integers(0, 40), st.integers(0, 40), st.integers(0, 400))


def decide(pools: tuple[PoolFacts, ...], scaling: Scaling, now: Need, **parts: Any) -> dict[str, int]:
    base: dict[str, Any] = {"now": now, "lasting": None, "lower": (), "now_unix_s": T0}
    return wanted.decide(pools, scaling, **(base | parts)).counts


def enough_before(pools: tuple[PoolFacts, ...]) -> tuple[Lower, ...]:
    """A history in which nothing at all was enough for the whole scale-down window."""
    nothing = tuple((pool.name, 0) for pool in pools)
    return tuple(Lower(at_unix_s=T0 - 400 + 15 * index, workers=nothing) for index in range(26))


@FEW
@given(pools=fleets(), need=needs, scaling=budgets)
def test_plans_keep_bounds_and_break_no_budget_that_held(
    pools: tuple[PoolFacts, ...], need: Need, scaling: Scaling
) -> None:
    start = allocate.within_bounds(pools, scaling.budgets).counts
    counts = decide(pools, scaling, need, lasting=need, lower=enough_before(pools))
    held = budget.broken(scaling.budgets, pools, {pool.name: min(pool.asked, pool.most) for pool in pools}) is None
    for pool in pools:
        assert counts[pool.name] <= pool.most
        assert counts[pool.name] >= min(pool.fewest, start[pool.name])
        assert not pool.blocked or counts[pool.name] <= start[pool.name]
    if held:
        assert budget.broken(scaling.budgets, pools, counts) is None


@FEW
@given(pools=fleets(), need=needs)
def test_growth_covers_the_need_or_says_what_bound(pools: tuple[PoolFacts, ...], need: Need) -> None:
    found = wanted.decide(pools, NO_LIMITS, now=need, lasting=None, lower=(), now_unix_s=T0)
    start = allocate.within_bounds(pools, NO_LIMITS.budgets).counts
    assert all(found.counts[name] >= count for name, count in start.items())
    problem = asked.to_grow(pools, start, need, NO_LIMITS)
    covered = wanted.covers(problem, found.counts) or all(
        load <= 1 + 1e-9 for load in totals.totals(problem, split(problem, found.counts)).load.values()
    )
    swings = sum(pool.role is PoolRole.SWING for pool in pools)
    assert found.bound is not None or covered or swings > 1, "two kinds of swing workers are split by the programme"


@FEW
@given(pools=fleets(), need=needs)
def test_what_shrinks_still_covers_what_arrives_and_waits(pools: tuple[PoolFacts, ...], need: Need) -> None:
    start = allocate.within_bounds(pools, NO_LIMITS.budgets).counts
    before = wanted.covers(asked.as_is(pools, start, need, NO_LIMITS), start)
    counts = decide(pools, NO_LIMITS, need, lasting=Need.nothing(), lower=enough_before(pools))
    swings = sum(pool.role is PoolRole.SWING for pool in pools)
    if before and swings < 2:
        assert wanted.covers(asked.as_is(pools, counts, need, NO_LIMITS), counts)


@FEW
@given(pools=fleets(), need=needs, order=st.randoms(use_true_random=False))
def test_the_order_of_pools_does_not_matter(pools: tuple[PoolFacts, ...], need: Need, order: Any) -> None:
    shuffled = list(pools)
    order.shuffle(shuffled)
    renumbered = tuple(replace(pool, order=index) for index, pool in enumerate(shuffled))
    assert decide(pools, NO_LIMITS, need) == decide(renumbered, NO_LIMITS, need)


@FEW
@given(pools=fleets(), need=needs, factor=st.floats(1, 3))
def test_more_need_never_means_cheaper_workers(pools: tuple[PoolFacts, ...], need: Need, factor: float) -> None:
    def cost(counts: dict[str, int]) -> float:
        prices = {p.name: 0.0 if isinstance(p.price_per_hour, Unknown) else p.price_per_hour for p in pools}
        return sum(count * prices[name] for name, count in counts.items())

    less = wanted.decide(pools, NO_LIMITS, now=need, lasting=None, lower=(), now_unix_s=T0)
    more = wanted.decide(pools, NO_LIMITS, now=need.scaled(factor), lasting=None, lower=(), now_unix_s=T0)
    if more.bound is None:
        assert less.bound is None
        assert cost(less.counts) <= cost(more.counts) * (1 + 2 * asked.FIXED_ROLE) + 1e-6


@FEW
@given(pools=fleets(), need=needs, scaling=budgets)
def test_a_lowered_budget_takes_no_role_its_last_worker(
    pools: tuple[PoolFacts, ...], need: Need, scaling: Scaling
) -> None:
    counts = {pool.name: pool.asked for pool in pools}
    problem = asked.as_is(pools, counts, need, scaling)
    before = totals.totals(problem, split(problem, counts)).workers
    trimmed = allocate.trim(pools, counts, problem, scaling.budgets).counts
    if all(before.values()):
        assert all(totals.totals(problem, split(problem, trimmed)).workers.values())


@given(
    isl=st.floats(1, 20_000),
    osl=st.floats(1, 4000),
    ttft_s=st.floats(0.01, 10),
    itl_s=st.floats(0.001, 1),
)
def test_a_worker_filled_to_its_capacity_meets_the_itl_objective(
    isl: float, osl: float, ttft_s: float, itl_s: float
) -> None:
    shape = Shape(isl_tokens=isl, osl_tokens=osl)
    able = capacity(MODEL, shape=shape, ttft_s=ttft_s, itl_s=itl_s)
    sequences = int(able.decode_sequences)
    step_s = decode_step_s(MODEL, sequences=sequences, context_tokens=sequences * shape.context_tokens)
    assert able.prefill_tokens_per_s > 0
    assert step_s <= itl_s or not able.itl_feasible
    assert sequences * shape.context_tokens <= max(able.kv_tokens, shape.context_tokens)


def auto(low: int, high: int) -> InferenceClusterSpec:
    bounds = {"min": low, "max": high}
    return spec([{"name": role.lower(), "role": role, "replicas": bounds} for role in ("Prefill", "Decode", "Swing")])


@FEW
@given(
    replicas=st.tuples(st.integers(1, 6), st.integers(1, 6), st.integers(1, 6)),
    blind=st.sampled_from(["router", "model", "figures", "stale"]),
    minutes=st.integers(0, 30),
)
def test_blind_never_shrinks(replicas: tuple[int, int, int], blind: str, minutes: int) -> None:
    fleet = Fleet(auto(1, 6))
    fleet.replicas = dict(zip(("prefill", "decode", "swing"), replicas, strict=True))
    fleet.reconcile()
    fleet.run(3.0, dt=1.0)
    enough = tuple(sorted({"prefill": 1, "decode": 1, "swing": 1}.items()))
    memory = SizingMemory(lower=tuple(Lower(at_unix_s=T0 - 600 + 15 * n, workers=enough) for n in range(40)))
    for _ in range(minutes):
        fleet.now += 60
        view = fleet.view()
        if blind == "router":
            view = replace(view, router=Unknown("no answer"))
        elif blind == "model":
            view = replace(view, models={**view.models, "decode": Unknown("no profile")})
        elif blind == "figures":
            view = replace(view, router=replace(fleet.observation(), prompt_tokens_per_s=Unknown("NaN")))
        else:
            view = replace(view, router=replace(fleet.observation(), at_unix_s=fleet.now - 120))
        result = step(view, memory, now_unix_s=fleet.now)
        memory = result.memory
        assert not [action for action in result.actions if isinstance(action, SetReplicas | PatchWorker)]
        assert {pool.name: pool.replicas for pool in result.plan.pools} == fleet.replicas


EVENTS = st.lists(
    st.tuples(
        st.sampled_from(["load", "quiet", "blind", "sees", "kill", "full", "room", "budget"]), st.integers(1, 12)
    ),
    min_size=3,
    max_size=10,
)


@settings(max_examples=8, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(events=EVENTS, budget_before=st.integers(4, 14))
def test_bounds_budgets_and_last_workers_hold_at_every_moment(
    events: list[tuple[str, int]], budget_before: int
) -> None:
    """Loads, deaths, blindness, full nodes and lowered budgets, while drains and starts are half done."""

    def wanted_with(most: int) -> InferenceClusterSpec:
        pools = [
            {"name": role.lower(), "role": role, "replicas": {"min": low, "max": 5}}
            for role, low in (("Prefill", 1), ("Decode", 1), ("Swing", 0))
        ]
        budgets_of = {"accelerators": [{"product": "*", "max": most}]}
        return spec(pools, scaling={"budgets": budgets_of, "stabilization": {"scaleDownWindow": "20s"}})

    fleet = Fleet(wanted_with(budget_before))
    memory, most, due = SizingMemory(), budget_before, fleet.now
    allowed = budget_before
    for event, number in events:
        if event == "kill" and len(fleet.pods) > 2:
            fleet.pods.remove(fleet.pods[number % len(fleet.pods)])
        elif event in ("blind", "sees"):
            fleet.router_known = event == "sees"
        elif event in ("full", "room"):
            fleet.unschedulable_pools = {"prefill"} if event == "full" else set()
        elif event == "budget":
            most = max(2, number)
            fleet.spec = wanted_with(most)
            due = fleet.now
        for tick in range(24):
            if event == "load":
                for _ in range(number if tick % 2 else 0):
                    fleet.arrive(800, 60)
            if fleet.now >= due:
                fleet.guard()
                before = dict(fleet.replicas)
                result = step(fleet.view(), memory, now_unix_s=fleet.now)
                fleet.apply(result.actions)
                memory, due = result.memory, fleet.now + result.next_step_s
                if not fleet.router_known and most >= sum(before.values()):
                    kept = {name: sum(not pod.drain for pod in fleet.of(name)) for name in before}
                    assert all(fleet.replicas[name] >= min(before[name], kept[name]) for name in before)
            # What existed when a budget was lowered may only get less.
            allowed = max(most, min(allowed, len(fleet.pods)))
            assert len(fleet.pods) <= allowed
            assert all(count <= 5 for count in fleet.replicas.values())
            fleet.run(1.0, dt=0.5)
    roles = {pod.role for pod in fleet.pods}
    assert roles >= {names.ROLE_PREFILL, names.ROLE_DECODE} or not fleet.pods
