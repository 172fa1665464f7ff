"""What happened over time: windows add up to the whole, and widen instead of growing in number."""

import pytest

from swingpool_control.simulation.histogram import Histogram
from swingpool_control.simulation.outcome import Outcome
from swingpool_control.simulation.policies.catalogue import POLICIES
from swingpool_control.simulation.series import MOST_WINDOWS, STATES, Series
from swingpool_control.simulation.settings import Settings
from swingpool_control.simulation.traffic import Arrival
from tests.support.simulations import load, simulate, spec

POOLS = [
    {"name": "prefill", "role": "Prefill", "replicas": {"min": 1, "max": 4}, "costPerHour": "2"},
    {"name": "decode", "role": "Decode", "replicas": {"min": 1, "max": 4}, "costPerHour": "3"},
]


def test_windows_add_up_to_the_result() -> None:
    settings = Settings(policy=POLICIES["hpa"], startup_s=10.0, prefix_caching=False)
    result, outcomes = simulate(spec(POOLS), load(8, 60, prompt=600), settings)
    windows = result.windows
    assert sum(window.arrivals for window in windows) == sum(window.ended for window in windows) == result.requests
    assert result.attainment == pytest.approx(sum(window.good for window in windows) / result.requests)
    assert sum(window.prompt_tokens for window in windows) == sum(one.arrival.prompt_tokens for one in outcomes)
    assert max(window.ttft_largest_s or 0.0 for window in windows) == result.ttft.largest_s
    hours = sum(window.accelerators * (window.until_s - window.from_s) / 3600 for window in windows)
    assert hours == pytest.approx(result.accelerator_hours, rel=0.05)
    assert result.cost is not None
    cost = sum((window.cost_per_hour or 0.0) * (window.until_s - window.from_s) / 3600 for window in windows)
    assert cost == pytest.approx(result.cost, rel=0.05)


def test_every_worker_is_something_at_every_moment_of_its_life() -> None:
    settings = Settings(policy=POLICIES["hpa"], startup_s=10.0, prefix_caching=False)
    result, _ = simulate(spec(POOLS), load(8, 60, prompt=600), settings)
    workers = {stay.worker for stay in result.stays}
    assert len(workers) == 2 + result.starts
    for worker in workers:
        mine = [stay for stay in result.stays if stay.worker == worker]
        assert all(stay.state in STATES for stay in mine)
        assert [stay.until_s for stay in mine[:-1]] == [stay.from_s for stay in mine[1:]]
    lived_s = sum(stay.until_s - stay.from_s for stay in result.stays)
    assert lived_s / 3600 == pytest.approx(result.accelerator_hours, rel=1e-6)


def test_a_long_time_has_no_more_windows_than_a_short_one() -> None:
    series = Series({"pool": None})
    for hour in range(400):
        at_s = 3600.0 * hour
        series.arrived(Arrival(at_s, 10, 5))
        outcome = Outcome(
            number=hour, arrival=Arrival(at_s, 10, 5), first_s=at_s + 1, end_s=at_s + 2, result="completed"
        )
        series.ended(outcome, good=hour % 2 == 0)
        series.gaps(Histogram(), now_s=at_s)
    windows = series.windows(now_s=3600.0 * 400)
    assert len(windows) <= MOST_WINDOWS
    assert sum(window.arrivals for window in windows) == 400
    assert sum(window.good for window in windows) == 200
    assert series.ttft().count == 400
    widths = {window.until_s - window.from_s for window in windows[:-1]}
    assert len(widths) == 1
