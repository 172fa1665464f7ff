"""Workers that hang, become slow or tell nothing; links that are shared."""

import math

import pytest

from swingpool_control.simulation.cluster import Simulation
from swingpool_control.simulation.fabric import Fabric, Outlet
from swingpool_control.simulation.policies.catalogue import POLICIES
from swingpool_control.simulation.settings import Failures, Settings
from swingpool_control.simulation.traffic import Arrival
from tests.support.simulations import load, simulate, spec

STATIC = POLICIES["static"]
ONE_OF_EACH = spec([{"name": "prefill", "role": "Prefill"}, {"name": "decode", "role": "Decode"}])


def test_a_link_passes_one_transfer_after_the_other() -> None:
    fabric, one, two = Fabric(math.inf), Outlet(), Outlet()
    assert fabric.passed_s(one, 2.0, now_s=10.0) == 2.0
    assert fabric.passed_s(one, 1.0, now_s=11.0) == 2.0, "the first one needs the link for another second"
    assert fabric.passed_s(two, 1.0, now_s=11.0) == 1.0, "another worker has a link of its own"
    assert fabric.passed_s(one, 1.0, now_s=20.0) == 1.0


def test_a_narrow_fabric_is_shared_by_all() -> None:
    fabric = Fabric(0.5)
    assert fabric.passed_s(Outlet(), 1.0, now_s=0.0) == 2.0
    assert fabric.passed_s(Outlet(), 1.0, now_s=0.0) == 4.0


def test_a_narrow_fabric_delays_first_tokens() -> None:
    traffic = load(4.0, 20.0, prompt=2000)
    wide, _ = simulate(ONE_OF_EACH, traffic, Settings(policy=STATIC))
    narrow, _ = simulate(ONE_OF_EACH, traffic, Settings(policy=STATIC, fabric_links=0.05))
    assert narrow.completed == wide.completed == len(traffic)
    assert (narrow.ttft.mean_s or 0.0) > (wide.ttft.mean_s or 0.0)


@pytest.mark.parametrize(
    "failures",
    [
        Failures(hangs_per_worker_hour=120, hang_s=3.0),
        Failures(slow_per_worker_hour=120, slowness=3.0, slow_s=10.0),
    ],
    ids=["hangs", "slow"],
)
def test_trouble_costs_time_but_no_request(failures: Failures) -> None:
    traffic = load(3.0, 60.0)
    well, _ = simulate(ONE_OF_EACH, traffic, Settings(policy=STATIC))
    ill, outcomes = simulate(ONE_OF_EACH, traffic, Settings(policy=STATIC, failures=failures))
    assert [outcome.result for outcome in outcomes] == ["completed"] * len(traffic)
    assert (ill.e2e.mean_s or 0.0) > (well.e2e.mean_s or 0.0)
    assert ill.crashes == 0


class Soon:
    """Lets the first worker hang after a second, and the other one never."""

    def __init__(self) -> None:
        self.draws = [1.0 - math.exp(-1.0 / 3600)]

    def random(self) -> float:
        return self.draws.pop() if self.draws else 0.999


def test_a_worker_that_hangs_gives_no_token_until_it_goes_on() -> None:
    settings = Settings(policy=STATIC, failures=Failures(hangs_per_worker_hour=1.0, hang_s=5.0))
    firsts = []
    simulation = Simulation(
        ONE_OF_EACH,
        [Arrival(1.5, 100, 2)],
        settings,
        failures=Soon(),
        ended=lambda outcome: firsts.append(outcome.first_s),
    )
    simulation.run()
    assert firsts[0] is not None
    assert firsts[0] > 6.0


def test_who_tells_nothing_works_on() -> None:
    traffic = load(3.0, 60.0)
    silences = Failures(silences_per_worker_hour=600, silence_s=30.0)
    well, _ = simulate(ONE_OF_EACH, traffic, Settings(policy=STATIC))
    silent, _ = simulate(ONE_OF_EACH, traffic, Settings(policy=STATIC, failures=silences))
    assert silent.e2e.mean_s == pytest.approx(well.e2e.mean_s)
    assert silent.e2e.p95_s == well.e2e.p95_s


def test_the_same_seed_gives_the_same_trouble() -> None:
    traffic = load(3.0, 60.0)
    failures = Failures(crashes_per_worker_hour=30, hangs_per_worker_hour=60, slow_per_worker_hour=60)
    settings = Settings(policy=STATIC, failures=failures)
    found = [simulate(spec(), traffic, settings, failures_seed=seed)[0] for seed in (1, 1, 2)]
    assert found[0] == found[1]
    assert found[0] != found[2]
