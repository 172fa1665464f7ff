"""The decision on roles as a pure function: monotone, blind to order, deaf to one hot worker, and slow to turn back."""

import itertools
import math
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from swingpool_control.sizing.capacity import Capacity
from swingpool_control.swing import balance, policy
from swingpool_control.swing.balance import State
from swingpool_control.swing.evidence import Evidence, gather, is_enough
from swingpool_control.swing.guards import ROLES, other
from swingpool_control.swing.load import Asked, Seat, counted_sequences, decode_load, late, load, prefill_load
from swingpool_control.swing.roles import decide, loads

ABLE = Capacity(
    prefill_tokens_per_s=6000.0,
    decode_sequences=40.0,
    decode_tokens_per_s=800.0,
    kv_tokens=100_000.0,
    ttft_feasible=True,
    itl_feasible=True,
)
NOTHING = Asked(
    prompt_tokens_per_s=0.0,
    queued_tokens=0.0,
    output_tokens_per_s=0.0,
    sequences=0.0,
    kv_tokens=0.0,
    growth_per_s=0.0,
    ttft_s=0.75,
)
PREFILL, DECODE = ROLES


def seat(number: int, role: str, *, movable: bool = True, held: int = 0, waiting: float = 0.0) -> Seat:
    return Seat(
        uid=f"uid-{number}",
        role=role,
        movable=movable,
        held=held,
        capacity=ABLE,
        waiting_tokens=waiting,
        sequences=float(held),
        tokens_per_s=0.0,
        kv_tokens=0.0,
    )


SEATS = st.lists(
    st.tuples(st.sampled_from(ROLES), st.booleans(), st.integers(0, 100), st.floats(0, 50_000)), min_size=2, max_size=9
).map(
    lambda items: tuple(
        seat(number, role, movable=movable, held=held, waiting=waiting)
        for number, (role, movable, held, waiting) in enumerate(items)
    )
)
ASKED = st.builds(
    Asked,
    prompt_tokens_per_s=st.floats(0, 60_000),
    queued_tokens=st.floats(0, 100_000),
    output_tokens_per_s=st.floats(0, 8000),
    sequences=st.floats(0, 400),
    kv_tokens=st.floats(0, 800_000),
    growth_per_s=st.floats(0, 50),
    ttft_s=st.floats(0.05, 5),
    cached_share=st.floats(0, 1),
)
MORE = {
    PREFILL: ("prompt_tokens_per_s", "queued_tokens"),
    DECODE: ("output_tokens_per_s", "sequences", "kv_tokens", "growth_per_s"),
}


@given(SEATS, ASKED)
def test_a_worker_more_never_raises_a_load_nor_does_less_being_asked(seats: tuple[Seat, ...], asked: Asked) -> None:
    for role in ROLES:
        served = [one for one in seats if one.role == role]
        now = load(role, served, asked)
        assert load(role, [*served, seat(99, role)], asked) <= now + 1e-9
        for name in MORE[role]:
            assert load(role, served, replace(asked, **{name: getattr(asked, name) * 1.5 + 1})) >= now - 1e-9


@given(SEATS, ASKED, st.randoms(use_true_random=False))
def test_the_order_of_workers_does_not_matter(seats: tuple[Seat, ...], asked: Asked, shuffle: object) -> None:
    mixed = list(seats)
    shuffle.shuffle(mixed)  # type: ignore[attr-defined]
    ours, theirs = decide(seats, asked, dead_band=0.1), decide(mixed, asked, dead_band=0.1)
    assert {role: option.uids for role, option in ours.items()} == {role: one.uids for role, one in theirs.items()}


@given(SEATS, ASKED)
def test_an_option_takes_movable_workers_and_never_the_last(seats: tuple[Seat, ...], asked: Asked) -> None:
    by_uid = {one.uid: one for one in seats}
    for role, option in decide(seats, asked, dead_band=0.1).items():
        assert option.uids
        assert all(by_uid[uid].movable and by_uid[uid].role == other(role) for uid in option.uids)
        assert len(option.uids) < sum(one.role == other(role) for one in seats)
        # All else equal, moving never helps the role that gives.
        if any(one.role == role for one in seats):  # else the first to come brings what it holds
            assert option.after[role] <= option.before[role] + 1e-9
        assert option.after[other(role)] >= option.before[other(role)] - 1e-9


@given(st.floats(0, 60_000), st.floats(0, 8000), st.floats(1.0, 3.0))
def test_more_demand_for_a_role_never_argues_for_fewer_workers_in_it(
    tokens: float, generated: float, factor: float
) -> None:
    seats = tuple(seat(number, ROLES[number % 2]) for number in range(8))
    asked = replace(NOTHING, prompt_tokens_per_s=tokens, output_tokens_per_s=generated)
    more = replace(asked, prompt_tokens_per_s=tokens * factor)
    before, after = (decide(seats, one, dead_band=0.1) for one in (asked, more))

    def to_prefill(options: object) -> int:
        found = options if isinstance(options, dict) else {}
        gain = len(found[PREFILL].uids) if PREFILL in found and found[PREFILL].worthwhile else 0
        loss = len(found[DECODE].uids) if DECODE in found and found[DECODE].worthwhile else 0
        return gain - loss

    assert to_prefill(after) >= to_prefill(before)


def test_lateness_is_convex_and_rises() -> None:
    values = [late(number / 20) for number in range(60)]
    steps = [two - one for one, two in itertools.pairwise(values)]
    assert all(step > 0 for step in steps)
    assert all(two >= one - 1e-12 for one, two in itertools.pairwise(steps))
    assert late(1.0) == 1.0


def test_a_prompt_waits_for_whoever_is_free_first() -> None:
    hot = [seat(0, PREFILL, waiting=60_000.0), seat(1, PREFILL)]
    asked = replace(NOTHING, prompt_tokens_per_s=3000.0)
    assert prefill_load(hot, asked) == pytest.approx(3000 / 12_000)
    both = [seat(0, PREFILL, waiting=60_000.0), seat(1, PREFILL, waiting=60_000.0)]
    assert prefill_load(both, asked) > 1.0
    queued = replace(asked, queued_tokens=60_000.0)
    assert prefill_load([seat(0, PREFILL), seat(1, PREFILL)], queued) == pytest.approx(0.25 + (5.0 - 0.75) / 5.0)


def test_a_hot_decode_worker_counts_as_its_fellows_do() -> None:
    calm = [seat(number, DECODE, held=10) for number in range(3)]
    hot = [*calm[:2], seat(2, DECODE, held=400)]
    assert counted_sequences(hot) == pytest.approx(10 + 10 + 40)
    full = [seat(number, DECODE, held=60) for number in range(3)]
    assert counted_sequences(full) == 180
    assert decode_load(full, replace(NOTHING, sequences=180.0)) == pytest.approx(1.5)


@pytest.mark.parametrize("role", ROLES)
def test_one_hot_worker_is_skew_all_of_them_are_a_shortage(role: str) -> None:
    held = {PREFILL: {"waiting": 60_000.0}, DECODE: {"held": 100}}[role]
    for count, state in ((0, State.ENOUGH), (1, State.SKEW), (4, State.SHORTAGE)):
        loaded = [seat(number, role, **(held if number < count else {})) for number in range(4)]  # type: ignore[arg-type]
        seats = (*loaded, seat(9, other(role)))
        decoders = [one for one in seats if one.role == DECODE]
        asked = replace(NOTHING, sequences=counted_sequences(decoders))
        found = balance.judge(seats, asked, loads(seats, asked), (), now_unix_s=5.0)
        judged = {item.role: item for item in found}[role]
        assert judged.state is state
        assert judged.worker == ("uid-0" if state is State.SKEW else "")
        again = balance.judge(seats, asked, loads(seats, asked), found, now_unix_s=9.0)
        assert {item.since_unix_s for item in again} == {5.0}


def test_a_load_that_sways_about_its_limit_is_one_shortage() -> None:
    found: tuple[balance.Balance, ...] = ()
    told = []
    for at_s, of_prefill in enumerate((0.95, 1.02, 0.9, 1.1, 0.85, 0.79, 0.95)):
        found = balance.judge((), NOTHING, {PREFILL: of_prefill, DECODE: 0.1}, found, now_unix_s=float(at_s))
        told.append(next((one.state, one.since_unix_s) for one in found if one.role == PREFILL))
    short = (State.SHORTAGE, 1.0)
    assert told == [(State.ENOUGH, 0.0), short, short, short, short, (State.ENOUGH, 5.0), (State.ENOUGH, 5.0)]


def test_computed_prompts_that_nobody_fetches_block_a_worker_and_a_long_one_under_way_does_not() -> None:
    full = ABLE.kv_tokens
    assert policy.is_blocked(ABLE, full, 2000.0)
    assert not policy.is_blocked(ABLE, 0.9 * full, 2000.0)
    assert not policy.is_blocked(ABLE, full, 0.8 * full)


def watch(savings: list[float], *, since_reverse_s: float = math.inf, doubted: bool = False) -> list[bool]:
    """Whether each of a row of observations would move workers."""
    known, found = Evidence(to_role=PREFILL), []
    for saving in savings:
        known = gather(known, workers=1, saving=saving, past_s=1.0, doubted=doubted, since_reverse_s=since_reverse_s)
        found.append(is_enough(known))
    return found


def test_a_plain_need_moves_at_the_second_observation_and_no_sooner() -> None:
    assert watch([50.0, 50.0]) == [False, True]
    assert watch([3.0, 3.0]) == [False, True]


def test_a_slight_advantage_must_last() -> None:
    moved = watch([0.5] * 120)
    assert not any(moved[:30])
    assert moved[-1]


@given(st.lists(st.floats(-3, 1.0), min_size=1, max_size=300))
def test_noise_that_mostly_costs_moves_nothing(savings: list[float]) -> None:
    mixed = [value for saving in savings for value in (min(saving, 1.0), -1.5)]
    assert not any(watch(mixed))


def test_the_way_back_takes_more() -> None:
    there = watch([1.0] * 60).index(True)
    back = watch([1.0] * 60, since_reverse_s=0.0).index(True)
    assert back > there
    assert watch([1.0] * 60, since_reverse_s=3600.0).index(True) == there


def test_what_sizing_doubts_must_last_but_a_plain_need_is_acted_on_all_the_same() -> None:
    sure, doubted = (watch([2.0] * 60, doubted=doubt).index(True) for doubt in (False, True))
    assert doubted >= 5 * sure
    assert watch([50.0] * 3, doubted=True) == [False, True, True]


@given(st.integers(0, 9), st.integers(0, 9))
def test_only_what_two_observations_agree_on_moves(one: int, two: int) -> None:
    known = gather(Evidence(to_role=PREFILL), workers=one, saving=9.0, past_s=1.0)
    known = gather(known, workers=two, saving=9.0, past_s=1.0)
    assert is_enough(known) is (one > 0 and two > 0)
    if is_enough(known):
        assert known.workers == min(one, two)
