"""The HorizontalPodAutoscaler's algorithm, against the worked cases of its documentation and its known traits."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from swingpool_control.simulation.policies.hpa import Behavior, Rules, Stabilizer, by_pods, by_ratio
from swingpool_control.simulation.policies.keda import RECIPE


@pytest.mark.parametrize(
    ("current", "ratio", "wanted"), [(4, 2.0, 8), (4, 0.5, 2), (4, 1.1, 4), (4, 0.9, 4), (4, 1.11, 5), (10, 1.05, 10)]
)
def test_replicas_follow_the_ratio_beyond_the_tolerance(current: int, ratio: float, wanted: int) -> None:
    assert by_ratio(current, ratio) == wanted


def test_a_full_worker_never_asks_for_more_than_its_share() -> None:
    # A share of time cannot exceed 1, so one busy worker of target 0.8 asks for one more, whatever queues before it.
    assert by_pods({"a": 1.0}, 0.8, current=1, missing=0) == 2
    assert by_pods({"a": 1.0, "b": 1.0, "c": 1.0, "d": 1.0}, 0.8, current=4, missing=0) == 5


def test_pods_that_start_dampen_a_scale_up_and_never_turn_it() -> None:
    # Two at 100 percent and two that start: the average over four is below the target, so nothing happens.
    assert by_pods({"a": 1.0, "b": 1.0}, 0.8, current=4, missing=2) == 4
    # On the way down those that start count as right on target.
    assert by_pods({"a": 0.2, "b": 0.2}, 0.8, current=4, missing=2) == 3
    assert by_pods({}, 0.8, current=4, missing=4) is None


@given(
    values=st.lists(st.floats(0, 1), min_size=1, max_size=8),
    missing=st.integers(0, 8),
    target=st.floats(0.1, 1),
)
def test_unknown_pods_never_reverse_the_direction(values: list[float], missing: int, target: float) -> None:
    current = len(values) + missing
    wanted = by_pods({str(i): value for i, value in enumerate(values)}, target, current=current, missing=missing)
    assert wanted is not None
    ratio = sum(values) / len(values) / target
    if missing and ratio > 1:
        assert wanted >= current
    if missing and ratio < 1:
        assert wanted <= current


def test_up_at_once_by_a_hundred_percent_or_four_pods_in_fifteen_seconds() -> None:
    stabilizer = Stabilizer(Behavior())
    assert stabilizer.decide(1, 20, fewest=1, most=100, now_s=0.0) == 5
    assert stabilizer.decide(5, 20, fewest=1, most=100, now_s=10.0) == 5
    assert stabilizer.decide(5, 20, fewest=1, most=100, now_s=16.0) == 10
    assert stabilizer.decide(10, 20, fewest=1, most=15, now_s=32.0) == 15


def test_down_to_the_most_of_five_minutes() -> None:
    stabilizer = Stabilizer(Behavior())
    assert stabilizer.decide(10, 8, fewest=1, most=100, now_s=0.0) == 8
    stabilizer = Stabilizer(Behavior())
    assert stabilizer.decide(10, 10, fewest=1, most=100, now_s=0.0) == 10
    assert stabilizer.decide(10, 1, fewest=1, most=100, now_s=150.0) == 10
    assert stabilizer.decide(10, 2, fewest=1, most=100, now_s=301.0) == 2


def test_the_recipes_go_down_by_one_in_two_minutes_and_up_only_after_half_a_minute() -> None:
    stabilizer = Stabilizer(RECIPE)
    assert stabilizer.decide(4, 4, fewest=1, most=100, now_s=0.0) == 4
    assert stabilizer.decide(4, 8, fewest=1, most=100, now_s=15.0) == 4
    assert stabilizer.decide(4, 8, fewest=1, most=100, now_s=31.0) == 8
    assert stabilizer.decide(8, 1, fewest=1, most=100, now_s=400.0) == 7
    assert stabilizer.decide(7, 1, fewest=1, most=100, now_s=460.0) == 7
    assert stabilizer.decide(7, 1, fewest=1, most=100, now_s=521.0) == 6


@given(
    wanted=st.lists(st.integers(0, 50), min_size=1, max_size=30),
    fewest=st.integers(1, 5),
    room=st.integers(0, 20),
    window_s=st.floats(0, 120),
)
def test_bounds_always_hold(wanted: list[int], fewest: int, room: int, window_s: float) -> None:
    up = Rules(window_s=window_s, period_s=15.0, percent=100.0, pods=4)
    stabilizer = Stabilizer(Behavior(up=up))
    current = fewest
    for step, count in enumerate(wanted):
        following = stabilizer.decide(current, count, fewest=fewest, most=fewest + room, now_s=15.0 * step)
        assert fewest <= following <= fewest + room
        assert following <= max(2 * current, current + 4)
        current = following
