"""Classes of requests in the simulation: workers that schedule by priority are told it, as the live router tells it."""

from statistics import fmean

import pytest

from swingpool_control.api.v1alpha1 import InferenceClusterSpec
from swingpool_control.simulation.policies.catalogue import POLICIES
from swingpool_control.simulation.settings import Settings
from swingpool_control.simulation.traffic import Arrival
from tests.support.simulations import STATIC, load, simulate, spec

CLASSES = {"type": "BuiltIn", "builtIn": {"classes": [{"name": "urgent", "priority": 10}, {"name": "standard"}]}}
POOLS = [
    {"name": "prefill", "role": "Prefill", "replicas": {"mode": "Fixed", "count": 1}},
    {"name": "decode", "role": "Decode", "replicas": {"mode": "Fixed", "count": 1}},
]


def mixed(requests_per_s: float) -> list[Arrival]:
    """Every third request is urgent."""
    arrivals = load(requests_per_s, 40, prompt=600, output=10)
    return [one._replace(kind="" if number % 3 else "urgent") for number, one in enumerate(arrivals)]


def ttft_s(wanted: InferenceClusterSpec, arrivals: list[Arrival], settings: Settings) -> tuple[float, float]:
    """Return the mean TTFT of urgent requests and of the others."""
    _, outcomes = simulate(wanted, arrivals, settings)
    assert len(outcomes) == len(arrivals)
    found: dict[str, list[float]] = {"": [], "urgent": []}
    for outcome in outcomes:
        assert outcome.result == "completed"
        found[outcome.arrival.kind].append(outcome.ttft_s or 0.0)
    return fmean(found["urgent"]), fmean(found[""])


@pytest.mark.parametrize("settings", [STATIC, Settings(policy=POLICIES["ours"])])
def test_urgent_requests_go_first_where_the_engine_goes_by_priority(settings: Settings) -> None:
    wanted = spec(POOLS, router=CLASSES, engine={"type": "Simulated", "scheduling": "Priority"})
    arrivals = mixed(20)
    urgent_s, others_s = ttft_s(wanted, arrivals, settings)
    assert urgent_s < others_s / 3


def test_where_workers_go_by_arrival_alone_classes_change_nothing_at_them() -> None:
    wanted = spec(POOLS, router=CLASSES)
    arrivals = mixed(20)
    urgent_s, others_s = ttft_s(wanted, arrivals, STATIC)
    assert urgent_s > others_s / 2


@pytest.mark.parametrize("overload", [True, False])
def test_what_would_wait_for_too_long_is_refused_where_that_is_asked_for(overload: bool) -> None:
    router = {"type": "BuiltIn", "builtIn": {"overload": {"maxWait": "2s"}}}
    settings = Settings(policy=POLICIES["no-deflection"], overload=overload)
    result, outcomes = simulate(spec(POOLS, router=router), load(20, 30, prompt=600, output=10), settings)
    assert result.finished
    assert result.completed + result.refused == len(outcomes)
    assert (result.refused > 0) == overload
    worst_s = max(outcome.ttft_s or 0.0 for outcome in outcomes)
    assert (worst_s < 4) == overload
