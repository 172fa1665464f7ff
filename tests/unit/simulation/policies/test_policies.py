"""Every policy on a small cluster: requests end once, bounds hold, each one's known trait shows in its decisions."""

from dataclasses import replace

import pytest

from swingpool_control.engine.profile import built_in
from swingpool_control.simulation.cluster import SimulationError
from swingpool_control.simulation.policies.catalogue import POLICIES
from swingpool_control.simulation.policies.clairvoyant import Load, need
from swingpool_control.simulation.settings import Settings
from swingpool_control.simulation.traffic import Arrival
from tests.support.simulations import load, simulate, spec

POOLS = [
    {"name": "prefill", "role": "Prefill", "replicas": {"min": 1, "max": 6}, "costPerHour": "2"},
    {"name": "decode", "role": "Decode", "replicas": {"min": 1, "max": 6}, "costPerHour": "2"},
]
BURST = [
    *load(2, 40, prompt=200, output=20),
    *(one._replace(at_s=one.at_s + 40) for one in load(12, 50, prompt=600, output=20, seed=2)),
    *(one._replace(at_s=one.at_s + 90) for one in load(2, 60, prompt=200, output=20, seed=3)),
]


@pytest.mark.parametrize("name", list(POLICIES))
def test_every_request_ends_once_and_bounds_hold(name: str) -> None:
    settings = Settings(policy=POLICIES[name], future=lambda: BURST, startup_s=20.0, prefix_caching=False)
    result, outcomes = simulate(spec(POOLS), BURST, settings)
    assert result.completed == len(BURST) == len({one.number for one in outcomes})
    assert result.policy == name
    assert result.starts <= 40


def test_a_clairvoyant_schedule_needs_the_future() -> None:
    with pytest.raises(SimulationError, match="told the future"):
        simulate(spec(POOLS), BURST, Settings(policy=POLICIES["clairvoyant"]))


def test_whoever_knows_the_future_meets_it_and_pays_less_than_for_the_peak() -> None:
    settings = Settings(
        policy=POLICIES["clairvoyant"],
        future=lambda: BURST,
        startup_s=20.0,
        prefix_caching=False,
        replicas={"prefill": 1, "decode": 1},
    )
    known, _ = simulate(spec(POOLS), BURST, settings)
    peak, _ = simulate(spec(POOLS), BURST, replace(settings, policy=POLICIES["static"], replicas={"prefill": 6}))
    assert known.attainment is not None
    assert known.attainment > 0.97
    assert known.accelerator_hours < 0.7 * peak.accelerator_hours


def test_need_is_what_arrives() -> None:
    model = built_in("demo").model()
    steady = [Arrival(0.1 * number, 600, 20) for number in range(600)]
    found = need(steady, prefill=model, decode=model, objectives_s=(1.0, 0.06))
    assert max(found.prefill[:3]) - min(found.prefill[:3]) <= 1
    careful = Load(wait=0.1, decode=0.45)
    fuller = need(steady, prefill=model, decode=model, objectives_s=(1.0, 0.06), load=careful)
    assert all(less <= more for less, more in zip(found.prefill, fuller.prefill, strict=True))
    assert all(less <= more for less, more in zip(found.decode, fuller.decode, strict=True))
    assert found.over(0.0, 10.0) <= found.over(0.0, 60.0)


def test_the_planner_adds_one_worker_per_start_up() -> None:
    # Blocked while anything starts, it goes one by one, however long the queue.
    settings = Settings(policy=POLICIES["dynamo"], startup_s=30.0, prefix_caching=False)
    result, _ = simulate(spec(POOLS), load(20, 100, prompt=600, output=5), settings)
    assert 2 <= result.starts <= 1 + result.simulated_s / 30


def test_an_idle_cluster_keeps_its_workers_under_the_classic_formula() -> None:
    # No figure in an interval means no decision: workers of a busy time stay for ever.
    busy_then_idle = [*load(14, 350, prompt=600, output=4), Arrival(1500.0, 100, 5)]
    settings = Settings(policy=POLICIES["dynamo-classic"], startup_s=20.0, prefix_caching=False)
    result, _ = simulate(spec(POOLS), busy_then_idle, settings)
    static, _ = simulate(spec(POOLS), busy_then_idle, replace(settings, policy=POLICIES["static"]))
    assert result.starts > 0
    assert result.accelerator_hours > static.accelerator_hours + 0.9 * result.starts * 1000 / 3600
