"""For any pools, need and budgets: bounds and budgets hold, more need never means less, blind never shrinks."""

from dataclasses import replace
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from swingpool_control.actions import PatchWorker, SetReplicas
from swingpool_control.api.scaling import Budgets
from swingpool_control.api.v1alpha1 import InferenceClusterSpec, PoolRole, ReplicaMode
from swingpool_control.engine import profile
from swingpool_control.engine.model import decode_step_s
from swingpool_control.figures import Unknown
from swingpool_control.sizing import allocate, budget
from swingpool_control.sizing.capacity import Capacity, Shape, capacity
from swingpool_control.sizing.memory import Lower, SizingMemory
from swingpool_control.sizing.need import Need, spread
from swingpool_control.sizing.pools import PoolFacts
from swingpool_control.sizing.step import step
from tests.unit.swing.fleet import T0, Fleet, spec

MODEL = profile.built_in("demo").model()


@st.composite
def fleets(draw: st.DrawFn) -> tuple[PoolFacts, ...]:
    count = draw(st.integers(1, 4))
    prices = draw(st.lists(st.integers(1, 50), min_size=count, max_size=count, unique=True))
    return tuple(draw(facts(order, price=float(price))) for order, price in enumerate(prices))


@st.composite
def facts(draw: st.DrawFn, order: int, *, price: float) -> PoolFacts:
    fewest = draw(st.integers(0, 3))
    most = fewest + draw(st.integers(0, 8))
    asked = draw(st.integers(0, 10))
    return PoolFacts(
        name=f"pool{order}",
        order=order,
        role=draw(st.sampled_from(PoolRole)),
        mode=ReplicaMode.AUTO,
        fewest=fewest,
        most=most,
        asked=asked,
        useful=draw(st.integers(0, asked)),
        present=draw(st.integers(0, 12)),
        surge=draw(st.integers(0, 1)),
        warming=False,
        blocked=draw(st.sampled_from(["", "", "no node takes it"])),
        price_per_hour=price,
        product=draw(st.sampled_from(["H100", "H200"])),
        accelerators=draw(st.integers(1, 4)),
        capacity=Capacity(
            prefill_tokens_per_s=draw(st.floats(100, 10_000)),
            decode_sequences=draw(st.floats(1, 100)),
            decode_tokens_per_s=draw(st.floats(10, 5000)),
            kv_tokens=draw(st.floats(1000, 1e6)),
            ttft_feasible=True,
            itl_feasible=True,
        ),
    )


needs = st.builds(
    Need,
    prefill=st.tuples(st.floats(0, 60_000)),
    decode=st.tuples(st.floats(0, 30_000), st.floats(0, 600), st.floats(0, 1e6)),
)


def limits(most_h100: int, most_h200: int, cost: int) -> Budgets:
    accelerators = [{"product": "H100", "max": most_h100}, {"product": "H200", "max": most_h200}]
    return Budgets.model_validate({"accelerators": accelerators, "costPerHour": str(cost)})


budgets = st.builds(limits, st.integers(0, 40), st.integers(0, 40), st.integers(0, 400))


@given(pools=fleets(), need=needs, limit=budgets)
def test_growth_keeps_bounds_and_breaks_no_budget_that_held(
    pools: tuple[PoolFacts, ...], need: Need, limit: Budgets
) -> None:
    start = allocate.within_bounds(pools, limit).counts
    grown = allocate.grow(pools, start, need, limit).counts
    held = budget.broken(limit, pools, {pool.name: min(pool.asked, pool.most) for pool in pools}) is None
    for pool in pools:
        assert grown[pool.name] >= start[pool.name]
        assert grown[pool.name] <= pool.most
        assert not pool.blocked or grown[pool.name] == start[pool.name]
    if held:
        assert budget.broken(limit, pools, grown) is None


@given(pools=fleets(), need=needs)
def test_growth_covers_the_need_or_says_what_bound(pools: tuple[PoolFacts, ...], need: Need) -> None:
    start = allocate.within_bounds(pools, Budgets()).counts
    grown = allocate.grow(pools, start, need, Budgets())
    assert grown.bound is not None or spread(pools, grown.counts, need).complete


def test_growth_covers_the_need_with_swing_workers_of_two_kinds() -> None:
    """The cheaper kind serves prefill once the other is there, so that adding up in order would deceive."""
    cheap = PoolFacts(
        name="cheap",
        order=0,
        role=PoolRole.SWING,
        mode=ReplicaMode.AUTO,
        fewest=0,
        most=1,
        asked=0,
        useful=0,
        present=0,
        surge=0,
        warming=False,
        blocked="",
        price_per_hour=1.0,
        product="H100",
        accelerators=1,
        capacity=Capacity(
            prefill_tokens_per_s=100.0,
            decode_sequences=1.0,
            decode_tokens_per_s=11.0,
            kv_tokens=1000.0,
            ttft_feasible=True,
            itl_feasible=True,
        ),
    )
    capacity = replace(cheap.capacity, prefill_tokens_per_s=201.0, decode_tokens_per_s=10.0)
    dear = replace(cheap, name="dear", order=1, most=2, price_per_hour=2.0, capacity=capacity)
    need = Need(prefill=(0.0,), decode=(11.0, 0.0, 0.0))
    grown = allocate.grow((cheap, dear), {"cheap": 0, "dear": 0}, need, Budgets())
    assert grown.counts == {"cheap": 1, "dear": 2}


@given(pools=fleets(), need=needs)
def test_what_shrinks_still_covers_the_need(pools: tuple[PoolFacts, ...], need: Need) -> None:
    counts = {pool.name: max(pool.asked, pool.fewest) for pool in pools}
    lower = allocate.shrink(pools, counts, need)
    covered = spread(pools, counts, need).complete
    for pool in pools:
        assert min(pool.fewest, counts[pool.name]) <= lower[pool.name] <= counts[pool.name]
    if covered:
        assert spread(pools, lower, need).complete


@given(pools=fleets(), need=needs, order=st.randoms(use_true_random=False))
def test_the_order_of_pools_does_not_matter_when_prices_differ(
    pools: tuple[PoolFacts, ...], need: Need, order: Any
) -> None:
    shuffled = list(pools)
    order.shuffle(shuffled)
    renumbered = tuple(replace(pool, order=index) for index, pool in enumerate(shuffled))
    dedicated = all(pool.role is not PoolRole.SWING for pool in pools)
    start = allocate.within_bounds(pools, Budgets()).counts
    one = allocate.grow(pools, start, need, Budgets()).counts
    two = allocate.grow(renumbered, start, need, Budgets()).counts
    if dedicated:
        assert one == two
    assert allocate.within_bounds(renumbered, Budgets()).counts == start


@given(pools=fleets(), need=needs, factor=st.floats(1, 3))
def test_more_need_never_means_fewer_workers_of_dedicated_pools(
    pools: tuple[PoolFacts, ...], need: Need, factor: float
) -> None:
    dedicated = tuple(replace(pool, role=PoolRole.PREFILL) for pool in pools)
    start = allocate.within_bounds(dedicated, Budgets()).counts
    less = allocate.grow(dedicated, start, need, Budgets()).counts
    more = allocate.grow(dedicated, start, need.scaled(factor), Budgets()).counts
    assert all(more[name] >= less[name] for name in less)


@given(pools=fleets(), need=needs, limit=budgets)
def test_a_lowered_budget_takes_no_role_its_last_worker(
    pools: tuple[PoolFacts, ...], need: Need, limit: Budgets
) -> None:
    counts = {pool.name: pool.asked for pool in pools}
    before = spread(pools, counts, need).workers
    after = spread(pools, allocate.trim(pools, counts, need, limit).counts, need).workers
    if all(before.values()):
        assert all(after.values())


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
    limits = {"min": low, "max": high}
    return spec([{"name": role.lower(), "role": role, "replicas": limits} for role in ("Prefill", "Decode", "Swing")])


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
