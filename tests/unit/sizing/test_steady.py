"""How long what came of late has been the same: for minutes under a load that stays, a half minute after a turn."""

import math
from random import Random

from hypothesis import given
from hypothesis import strategies as st

from swingpool_control.sizing import steady
from swingpool_control.sizing.history import FINE_STEP_S, Series
from swingpool_control.sizing.steady import Steady

SCV = 0.1
"""Of prompts' lengths."""


def series(values: list[float | None], newest: float) -> Series:
    return Series(
        step_s=FINE_STEP_S, kept=960, values=tuple(values), open_index=len(values), open_sum=newest, open_count=1
    )


def found(requests: list[float | None], newest: float, *, prompt_tokens: float = 1000.0) -> Steady | None:
    tokens = [None if value is None else value * prompt_tokens for value in requests]
    return steady.steady(
        series(requests, newest), series(tokens, newest * prompt_tokens), arrival_scv=1.0, prompt_scv=SCV
    )


def certain(requests: list[float | None], newest: float) -> Steady:
    it = found(requests, newest)
    assert it is not None
    return it


def poisson(random: Random, mean: float) -> float:
    """Draw the rate that a step of so many requests per second shows."""
    return max(0.0, random.gauss(mean, math.sqrt(mean / FINE_STEP_S)))


def test_a_load_that_stays_is_looked_at_for_minutes() -> None:
    random = Random(1)
    looks = [certain([poisson(random, 10.0) for _ in range(40)], poisson(random, 10.0)) for _ in range(200)]
    over_s = sorted(one.over_s for one in looks)
    assert over_s[100] >= 300.0
    # Looked at for so long, a rate is known far better than by half a minute, whose chance is 6 %.
    off = math.sqrt(sum((one.requests_per_s - 10.0) ** 2 for one in looks) / len(looks)) / 10.0
    assert off < 0.04


def test_a_step_is_taken_at_its_worth_from_the_first_half_minute_on() -> None:
    it = certain([*[10.0] * 40, 20.0], 20.0)
    assert it == Steady(requests_per_s=20.0, prompt_tokens_per_s=20_000.0, over_s=30.0)


def test_a_mix_that_turns_while_requests_stay_is_a_turn() -> None:
    requests = series([10.0] * 40, 10.0)
    tokens = series([*[10_000.0] * 38, 20_000.0, 20_000.0], 20_000.0)
    it = steady.steady(requests, tokens, arrival_scv=1.0, prompt_scv=SCV)
    assert it is not None
    assert (it.prompt_tokens_per_s, it.over_s) == (20_000.0, 60.0)


def test_a_gap_is_no_load_and_ends_the_look() -> None:
    assert certain([*[10.0] * 20, None, 10.0, 10.0], 10.0).over_s == 60.0
    assert found([10.0, None], 10.0) is None
    assert found([], 10.0) is None


rates = st.floats(0.0, 1e4, allow_nan=False)


@given(st.lists(rates, min_size=1, max_size=40), rates)
def test_means_are_those_of_the_last_steps(values: list[float], newest: float) -> None:
    it = certain(list(values), newest)
    held = round(it.over_s / FINE_STEP_S)
    last = [*values[-held:-1], (values[-1] + newest) / 2]
    assert math.isclose(it.requests_per_s, sum(last) / held, abs_tol=1e-9)
    assert 1 <= held <= steady.MOST_STEPS


@given(st.lists(rates, min_size=1, max_size=30), st.lists(rates, max_size=30), rates)
def test_more_of_the_past_only_lengthens_the_look(values: list[float], older: list[float], newest: float) -> None:
    assert certain([*older, *values], newest).over_s >= certain(list(values), newest).over_s


@given(st.floats(1.0, 1e3), st.floats(2.0, 10.0), st.integers(1, 19))
def test_a_step_up_or_down_ends_the_look_where_it_was(rate: float, factor: float, ago: int) -> None:
    enough = rate * factor * FINE_STEP_S >= 100.0  # fewer may differ so by chance
    for before, now in ((rate, rate * factor), (rate * factor, rate)):
        it = certain([*[before] * 40, *[now] * ago], now)
        assert not enough or it.over_s == ago * FINE_STEP_S
