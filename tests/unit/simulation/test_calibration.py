"""Workers that are slower than their profile says: the loops find out, by the same code as live."""

from random import Random

import pytest

from swingpool_control.engine.calibration import DEAD_BAND
from swingpool_control.simulation.cluster import Simulation
from swingpool_control.simulation.policies.interface import Given, Policy
from swingpool_control.simulation.policies.live import Features, Live
from swingpool_control.simulation.settings import Failures, Settings
from swingpool_control.simulation.traffic import Arrival
from tests.support.simulations import spec

MINUTES = 25
SLOWNESS = 1.3


def calibrated(failures: Failures) -> tuple[float, float]:
    """Return the factors of prefill and decode after a while of light load."""
    made: list[Live] = []

    def make(given: Given) -> Live:
        made.append(Live(given, Features(sizing=False, deflection=False)))
        return made[-1]

    random = Random(0)
    arrivals = (
        Arrival(2.0 * number, random.randint(200, 600), random.randint(50, 150)) for number in range(MINUTES * 30)
    )
    policy = Policy(name="watched", about="", make=make)
    settings = Settings(policy=policy, failures=failures, prefix_caching=False)
    Simulation(spec(), arrivals, settings, failures=Random(1)).run()
    calibration = made[0].speed.calibration
    return calibration.prefill, calibration.decode


def test_slower_workers_are_found() -> None:
    always = Failures(slow_per_worker_hour=3600.0, slowness=SLOWNESS, slow_s=86_400.0)
    prefill, decode = calibrated(always)
    assert prefill == pytest.approx(SLOWNESS, rel=2 * DEAD_BAND)
    assert decode == pytest.approx(SLOWNESS, rel=2 * DEAD_BAND)


def test_workers_as_fast_as_they_should_be_stay_so() -> None:
    prefill, decode = calibrated(Failures())
    assert prefill == pytest.approx(1.0, rel=DEAD_BAND)
    assert decode == pytest.approx(1.0, rel=DEAD_BAND)
