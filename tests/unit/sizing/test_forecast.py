"""The forecast on series whose future is known: what recurs, what steps, what stays, what is missing."""

import math
from collections.abc import Callable
from dataclasses import asdict

import pytest

from swingpool_control.figures import Unknown
from swingpool_control.sizing.forecast import Forecast, ForecastMemory, ahead, follow
from swingpool_control.sizing.history import History

START_S = 1_767_225_600.0
HOUR_S = 3600.0


def _seen(rate: Callable[[float], float], *, until_s: float, tick_s: float = 15.0) -> ForecastMemory:
    """Look at a rate for a while, and fit once at the end."""
    history = History()
    for number in range(int(until_s / tick_s)):
        history = history.with_tick(rate(number * tick_s), at_unix_s=START_S + number * tick_s)
    return follow(ForecastMemory(history=history), rate(until_s), now_unix_s=START_S + until_s)


def _ahead(memory: ForecastMemory, at_s: float, horizon_s: float = 60.0) -> Forecast:
    found = ahead(memory, now_unix_s=START_S + at_s, horizon_s=horizon_s)
    assert isinstance(found, Forecast)
    return found


def _wobble(at_s: float) -> float:
    """Noise that is the same each time."""
    return 0.3 * math.sin(at_s * 12.9898) + 0.2 * math.sin(at_s * 78.233)


def _burst(at_s: float) -> float:
    return (20.0 if 1800 <= at_s % HOUR_S < 2100 else 2.0) + _wobble(at_s)


def test_a_burst_each_hour_is_foreseen_from_the_fourth_on() -> None:
    fourth_s = 3 * HOUR_S + 1800
    memory = _seen(_burst, until_s=fourth_s - 600)
    quiet = _ahead(memory, fourth_s - 600)
    assert quiet.model == "recurs each 1 h"
    assert quiet.upper < 4
    for before_s in range(600, 0, -15):
        memory = follow(memory, _burst(fourth_s - before_s), now_unix_s=START_S + fourth_s - before_s)
        foreseen = _ahead(memory, fourth_s - before_s)
        if before_s <= 60:
            assert foreseen.upper > 18  # when a worker that starts now will serve, the burst is there
        if before_s >= 180:
            assert foreseen.upper < 6  # and not long before


def test_what_stays_is_foretold_closely() -> None:
    found = _ahead(_seen(lambda at_s: 10 + _wobble(at_s), until_s=HOUR_S), HOUR_S)
    assert 9.5 < found.expected < 10.5
    assert found.upper < 11


def test_a_step_is_followed_at_once_and_not_beyond() -> None:
    memory = _seen(lambda _: 10.0, until_s=HOUR_S)
    for number in range(1, 5):
        memory = follow(memory, 30.0, now_unix_s=START_S + HOUR_S + 15 * number)
        assert 30 <= _ahead(memory, HOUR_S + 15 * number).upper <= 31


def test_the_end_of_a_level_is_followed_at_once() -> None:
    memory = _seen(lambda at_s: 30.0 + _wobble(at_s), until_s=HOUR_S)
    for number in range(1, 5):
        memory = follow(memory, 10.0, now_unix_s=START_S + HOUR_S + 15 * number)
        assert 10 <= _ahead(memory, HOUR_S + 15 * number).upper < 12


def test_a_ramp_is_met_ahead_of_it() -> None:
    memory = _seen(lambda at_s: 5 + at_s / 200, until_s=HOUR_S)
    found = _ahead(memory, HOUR_S, horizon_s=300.0)
    assert found.upper > 5 + HOUR_S / 200 + 0.5
    assert found.upper < 5 + HOUR_S / 200 + 6


def test_a_day_recurs() -> None:
    day_s = 86_400.0

    def rate(at_s: float) -> float:
        return 10 - 8 * math.cos(2 * math.pi * at_s / day_s)

    for hour in (3, 6, 9):  # it rises fastest at six
        at_s = 3 * day_s + hour * HOUR_S
        found = _ahead(_seen(rate, until_s=at_s, tick_s=300.0), at_s, horizon_s=1200.0)
        assert found.upper >= 0.97 * rate(at_s + 1200.0)
        assert found.upper <= 1.3 * rate(at_s + 1200.0)


def test_a_gap_is_not_zero() -> None:
    memory = _seen(lambda _: 10.0, until_s=HOUR_S)
    memory = follow(memory, Unknown("the router is away"), now_unix_s=START_S + HOUR_S + 60)
    assert _ahead(memory, HOUR_S + 300).upper >= 10
    memory = follow(memory, 10.0, now_unix_s=START_S + HOUR_S + 500)
    assert memory.history.fine.values[-5:].count(None) > 0
    assert 10 <= _ahead(memory, HOUR_S + 500).upper < 11
    lost = ahead(memory, now_unix_s=START_S + 3 * HOUR_S, horizon_s=60)
    assert isinstance(lost, Unknown)


@pytest.mark.parametrize("value", [math.nan, math.inf, -1.0])
def test_what_is_no_rate_changes_nothing(value: float) -> None:
    memory = _seen(lambda _: 10.0, until_s=600)
    assert follow(memory, value, now_unix_s=START_S + 700) == memory


def test_late_doubled_and_missing_ticks_change_nothing() -> None:
    def run(skipped: set[int]) -> ForecastMemory:
        memory = ForecastMemory()
        for number in range(60):
            if number not in skipped:
                memory = follow(memory, float(5 + number // 2), now_unix_s=START_S + 15 * number)
        return memory

    whole, holey = run(set()), run({5, 20, 33})
    assert whole.history.fine.values == holey.history.fine.values
    late = follow(whole, 99.0, now_unix_s=START_S + 100)
    assert late == whole
    restarted = follow(whole, 7.0, now_unix_s=START_S - 7200)  # the clock was set back
    assert [value for _, value in restarted.history.ticks] == [7.0]


def test_the_memory_is_plain() -> None:
    def plain(value: object) -> bool:
        if isinstance(value, dict):
            return all(plain(one) for one in value.values())
        if isinstance(value, tuple | list):
            return all(plain(one) for one in value)
        return type(value) in (int, float, str, bool, type(None))

    assert plain(asdict(_seen(_burst, until_s=HOUR_S)))
