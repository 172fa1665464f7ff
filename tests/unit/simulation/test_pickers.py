"""Several pickers on the same workers: each request is served once, all see all workers, none shares its work."""

from collections import Counter
from random import Random

import pytest

from swingpool_control.simulation.cluster import Simulation
from swingpool_control.simulation.outcome import Outcome
from swingpool_control.simulation.policies.catalogue import POLICIES
from swingpool_control.simulation.settings import Failures, Settings
from tests.support.simulations import load, spec

FIXED = [
    {"name": name, "role": name.capitalize(), "replicas": {"mode": "Fixed", "count": 4}}
    for name in ("prefill", "decode")
]
ARRIVALS = load(6, 90)


def served(pickers: int, settings: Settings) -> tuple[Simulation, list[Outcome]]:
    ended: list[Outcome] = []
    router = {"builtIn": {"replicas": pickers}}
    simulation = Simulation(spec(FIXED, router=router), ARRIVALS, settings, failures=Random(0), ended=ended.append)
    simulation.run()
    return simulation, ended


@pytest.mark.parametrize("crashes", [0.0, 120.0])
@pytest.mark.parametrize("pickers", [2, 5])
def test_each_request_ends_once(pickers: int, crashes: float) -> None:
    settings = Settings(policy=POLICIES["ours"], failures=Failures(crashes_per_worker_hour=crashes))
    _, ended = served(pickers, settings)
    assert Counter(one.number for one in ended) == Counter(range(len(ARRIVALS)))
    if not crashes:
        assert {one.result for one in ended} == {"completed"}


def test_all_prefill_workers_get_alike_though_no_picker_sees_all() -> None:
    simulation, _ = served(4, Settings(policy=POLICIES["static"]))
    computed = [engine.counters.local_compute_tokens for engine in simulation.engines().values()]
    busiest = sorted(computed)[-4:]
    assert busiest[0] > 0.5 * busiest[-1]


def test_who_is_alone_decides_as_if_there_were_no_others() -> None:
    """A single picker needs no figures of its workers to know what they run: it goes by its own accounts."""
    alone = [one.first_s for one in sorted(served(1, Settings())[1], key=lambda one: one.number)]
    again = [one.first_s for one in sorted(served(1, Settings())[1], key=lambda one: one.number)]
    others = [one.first_s for one in sorted(served(2, Settings())[1], key=lambda one: one.number)]
    assert alone == again
    assert alone != others
