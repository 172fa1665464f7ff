"""Growth of decode: nothing within chance under a load that stays, what is seen once the load has turned."""

import math
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from swingpool_control.sizing.capacity import Capacity
from swingpool_control.swing.evidence import Evidence, gather, is_enough
from swingpool_control.swing.growth import LEAST_S, LONGEST_S, Generating, growth_per_s
from swingpool_control.swing.guards import ROLES
from swingpool_control.swing.load import Asked, Seat
from swingpool_control.swing.roles import decide

PREFILL, DECODE = ROLES
HELD = st.floats(0, 1000)
RATES = st.floats(0, 500)
PAST_S = st.floats(LEAST_S, LONGEST_S)


def grows(before: float, now: float, *, past_s: float, requests_per_s: float, turned: bool) -> float:
    return growth_per_s(
        Generating(at_unix_s=0.0, sequences=before),
        Generating(at_unix_s=past_s, sequences=now),
        requests_per_s=requests_per_s,
        turned=turned,
    )


@given(HELD, HELD, PAST_S, RATES, st.booleans())
def test_growth_is_never_more_than_what_is_seen_nor_less_than_nothing(
    before: float, now: float, past_s: float, rate: float, turned: bool
) -> None:
    seen = (now - before) / past_s
    assert 0.0 <= grows(before, now, past_s=past_s, requests_per_s=rate, turned=turned) <= max(0.0, seen)


@given(HELD, HELD, PAST_S, RATES)
def test_once_the_load_has_turned_growth_is_what_is_seen(before: float, now: float, past_s: float, rate: float) -> None:
    grown = grows(before, now, past_s=past_s, requests_per_s=rate, turned=True)
    assert grown == pytest.approx(max(0.0, (now - before) / past_s))
    assert grown >= grows(before, now, past_s=past_s, requests_per_s=rate, turned=False)


@given(HELD, st.floats(0, 2), PAST_S, st.floats(1, 500))
def test_what_chance_explains_of_a_load_that_stays_is_no_growth(
    before: float, deviations: float, past_s: float, rate: float
) -> None:
    now = before + deviations * math.sqrt(2.0 * rate * past_s)
    assert grows(before, now, past_s=past_s, requests_per_s=rate, turned=False) == pytest.approx(0.0, abs=1e-6)


@given(HELD, st.tuples(HELD, HELD), PAST_S, RATES, st.booleans())
def test_more_sequences_are_never_less_growth(
    before: float, now: tuple[float, float], past_s: float, rate: float, turned: bool
) -> None:
    less, more = (grows(before, held, past_s=past_s, requests_per_s=rate, turned=turned) for held in sorted(now))
    assert more >= less - 1e-9


@pytest.mark.parametrize("past_s", [0.0, 0.4, 5.1, -1.0])
def test_observations_too_close_or_too_far_apart_tell_no_growth(past_s: float) -> None:
    assert grows(0.0, 100.0, past_s=past_s, requests_per_s=10.0, turned=True) == 0.0


def test_a_first_observation_tells_no_growth() -> None:
    now = Generating(at_unix_s=0.0, sequences=50.0)
    assert growth_per_s(None, now, requests_per_s=10.0, turned=True) == 0.0


SEEN = (
    # sequences of the two decode workers, capacities of any worker, tokens per second that arrive and are generated
    (0.0, (4, 4), (6135.0, 35.0, 674.0), (32258.0, 597.0)),
    (1.0, (14, 15), (6117.0, 35.0, 685.0), (2304.0, 1112.0)),
    (2.0, (26, 26), (6101.0, 36.0, 692.0), (1629.0, 1304.0)),
)
"""A simulated step from prompts to generation, whose second second brought by chance 22 requests instead of 31."""


def test_a_step_in_whose_beginning_few_requests_came_is_decided_at_its_second_observation() -> None:
    known, before, decided = Evidence(to_role=DECODE), None, []
    for at_s, held, (prompts, sequences, generates), (arriving, generated) in SEEN:
        able = Capacity(
            prefill_tokens_per_s=prompts,
            decode_sequences=sequences,
            decode_tokens_per_s=generates,
            kv_tokens=117_965.0,
            ttft_feasible=True,
            itl_feasible=True,
        )
        empty = Seat(
            uid="", role=PREFILL, movable=True, held=0, capacity=able,
            waiting_tokens=0.0, sequences=0.0, tokens_per_s=0.0, kv_tokens=0.0,
        )  # fmt: skip
        seats = [replace(empty, uid=f"prefill-{number}", movable=number > 0) for number in range(6)]
        seats += [
            replace(empty, uid=f"decode-{number}", role=DECODE, movable=number > 0, held=count, sequences=float(count))
            for number, count in enumerate(held)
        ]
        now = Generating(at_unix_s=at_s, sequences=float(sum(held)))
        turned = at_s > 0.0
        asked = Asked(
            prompt_tokens_per_s=arriving,
            queued_tokens=0.0,
            output_tokens_per_s=generated,
            sequences=now.sequences,
            kv_tokens=4_000.0,
            growth_per_s=growth_per_s(before, now, requests_per_s=27.5, turned=turned),
            ttft_s=0.75,
            turned=turned,
        )
        option = decide(seats, asked, dead_band=0.1)[DECODE]
        workers = len(option.uids) if option.worthwhile else 0
        known = gather(known, workers=workers, saving=option.saving, past_s=1.0, since_reverse_s=48.0 + at_s)
        decided.append(is_enough(known))
        before = now
    assert decided == [False, False, True]
    assert known.workers >= 3
