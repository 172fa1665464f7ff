"""A whole simulated cluster: every request ends once, equal input gives equal output, the demo goes as it does live."""

from collections import Counter
from dataclasses import replace
from itertools import groupby, pairwise
from pathlib import Path
from random import Random

import pytest
import yaml

from e2e.demo import story
from e2e.load.plan import arrivals as demo_arrivals
from swingpool_control.api.v1alpha1 import InferenceClusterSpec
from swingpool_control.engine.model import prefill_s
from swingpool_control.engine.profile import built_in
from swingpool_control.simulation.cluster import Simulation, SimulationError
from swingpool_control.simulation.outcome import Outcome
from swingpool_control.simulation.policies.catalogue import POLICIES
from swingpool_control.simulation.settings import Failures, Latencies, Settings
from swingpool_control.simulation.traffic import Arrival
from tests.support.simulations import STATIC, load, simulate, spec

OURS = Settings(policy=POLICIES["ours"])
DEMO = Path(__file__).resolve().parents[3] / "e2e" / "demo" / "sample.yaml"
SCALED = [
    {"name": "prefill", "role": "Prefill", "replicas": {"min": 1, "max": 4}, "costPerHour": "2"},
    {"name": "decode", "role": "Decode", "replicas": {"min": 1, "max": 4}, "costPerHour": "3"},
]


@pytest.fixture(scope="module")
def demo_spec() -> InferenceClusterSpec:
    return InferenceClusterSpec.model_validate(yaml.safe_load(DEMO.read_text())["spec"])


@pytest.fixture(scope="module")
def demo_load() -> list[Arrival]:
    return [
        Arrival(one.at_s, one.prompt_tokens, one.output_tokens) for one in demo_arrivals(story.plan("http://router"))
    ]


def test_the_demo_flips_as_it_does_live(demo_spec: InferenceClusterSpec, demo_load: list[Arrival]) -> None:
    ours, _ = simulate(demo_spec, demo_load, OURS)
    static, _ = simulate(demo_spec, demo_load)
    # One or both swing workers take the other role at each of the four turns of the load.
    assert [role for role, _ in groupby(flip.to_role for flip in ours.flips)] == 2 * ["prefill", "decode"]
    assert all(flip.outcome == "Serving" for flip in ours.flips)
    assert ours.flips_to_prefill == ours.flips_to_decode
    assert ours.flips_to_prefill + ours.flips_to_decode == len(ours.flips)
    assert not static.flips
    assert ours.attainment is not None
    assert static.attainment is not None
    assert ours.attainment > 0.9 > static.attainment
    assert ours.ttft.p95_s is not None
    assert ours.ttft.p95_s < 1.0


@pytest.mark.parametrize("policy", ["ours", "no-swing", "static"])
@pytest.mark.parametrize("failures", [Failures(), Failures(crashes_per_worker_hour=120, transfer_share=0.1)])
@pytest.mark.parametrize("kv_load_failure", ["Recompute", "Fail"])
def test_every_request_ends_once(policy: str, failures: Failures, kv_load_failure: str) -> None:
    wanted = spec(engine={"type": "Simulated", "kvLoadFailurePolicy": kv_load_failure})
    arrivals = load(6, 90)
    settings = Settings(policy=POLICIES[policy], failures=failures)
    result, outcomes = simulate(wanted, arrivals, settings)
    assert Counter(outcome.number for outcome in outcomes) == Counter(range(len(arrivals)))
    assert result.finished
    assert result.completed + result.refused + result.failed == result.requests == len(arrivals)
    assert result.completed == sum(outcome.result == "completed" for outcome in outcomes)
    for outcome in outcomes:
        assert outcome.arrival == arrivals[outcome.number]
        assert outcome.end_s >= (outcome.first_s or outcome.arrival.at_s) >= outcome.arrival.at_s
    if failures == Failures():
        assert result.completed == len(arrivals)
        assert result.itl.count == sum(one.output_tokens - 1 for one in arrivals)
    else:
        assert result.crashes > 0
        assert result.transfers_failed > 0


def test_equal_seeds_give_equal_results() -> None:
    failing = replace(OURS, failures=Failures(crashes_per_worker_hour=60, transfer_share=0.05))
    first, once = simulate(spec(), load(6, 60), failing)
    second, again = simulate(spec(), load(6, 60), failing)
    assert first == second
    assert once == again
    other, _ = simulate(spec(), load(6, 60), failing, failures_seed=2)
    assert other != first


def test_counting_blocks_finds_the_same_as_naming_them_where_nothing_is_shared() -> None:
    # More than the decode worker's KV cache holds, so that it preempts: that is where blocks decide.
    wanted = spec(SCALED)
    arrivals = load(40, 3, prompt=200, output=2500)
    named, once = simulate(wanted, arrivals)
    counted, again = simulate(wanted, arrivals, replace(STATIC, prefix_caching=False))
    assert named.preemptions > 0
    assert named == counted
    assert once == again


def test_a_cached_prefix_shortens_the_prompt() -> None:
    shared = [Arrival(float(number), 1024, 2, (1, 2), 512) for number in range(10)]
    with_cache, _ = simulate(spec(), shared)
    without, _ = simulate(spec(), shared, replace(STATIC, prefix_caching=False))
    assert with_cache.ttft.p50_s is not None
    assert without.ttft.p50_s is not None
    assert with_cache.ttft.p50_s < 0.5 * without.ttft.p50_s


def test_the_order_of_pools_does_not_matter_under_one_role_each() -> None:
    names = spec(SCALED)
    turned = spec(list(reversed(SCALED)))
    first, once = simulate(names, load(4, 60), OURS)
    second, again = simulate(turned, load(4, 60), OURS)
    assert replace(first, flips=(), stays=()) == replace(second, flips=(), stays=())
    assert [outcome.end_s for outcome in once] == [outcome.end_s for outcome in again]


def test_replicas_follow_the_load_and_cost_what_they_cost() -> None:
    result, _ = simulate(spec(SCALED), load(14, 120, prompt=400), OURS)
    static, _ = simulate(spec(SCALED), load(14, 120, prompt=400))
    assert result.starts >= 1
    assert static.starts == 0
    assert static.accelerator_hours == pytest.approx(2 * static.simulated_s / 3600)
    assert static.cost == pytest.approx(5 * static.simulated_s / 3600)
    assert result.accelerator_hours > static.accelerator_hours * result.simulated_s / static.simulated_s
    assert result.ttft.mean_s is not None
    assert static.ttft.mean_s is not None
    assert result.ttft.mean_s < static.ttft.mean_s


def test_a_drained_worker_goes_and_loses_no_request() -> None:
    quiet = [{**pool, "replicas": {"min": 1, "max": 3}} for pool in SCALED]
    wanted = spec(quiet, scaling={"stabilization": {"scaleDownWindow": "30s"}})
    settings = replace(OURS, replicas={"prefill": 3, "decode": 3})
    result, outcomes = simulate(wanted, load(1, 300), settings)
    assert result.completed == len(outcomes)
    assert result.accelerator_hours < 5 * result.simulated_s / 3600


def test_requests_wait_for_a_worker_and_are_refused_after_the_queue_timeout() -> None:
    settings = replace(STATIC, replicas={"prefill": 0, "decode": 0, "swing": 0}, queue_timeout_s=5.0)
    result, outcomes = simulate(spec(), [Arrival(1.0, 10, 10)], settings)
    assert (result.refused, result.completed) == (1, 0)
    assert outcomes[0].end_s == pytest.approx(6.0)


def test_a_request_longer_than_the_kv_cache_is_refused() -> None:
    result, _ = simulate(spec(), [Arrival(0.0, 10**6, 10), Arrival(1.0, 10, 10)])
    assert (result.refused, result.completed) == (1, 1)


def test_a_lone_request_takes_what_the_model_says() -> None:
    model = built_in("demo").model()
    instant = replace(STATIC, latencies=Latencies(hop_s=0.0))
    result, outcomes = simulate(spec(), [Arrival(2.0, 500, 1)], instant)
    decode = model.step_s(prefill_tokens=0, prefill_context_tokens=0, decode_sequences=1, decode_context_tokens=500)
    expected = prefill_s(model, prompt_tokens=500) + model.transfer_s(tokens=500) + decode
    assert outcomes[0].ttft_s == pytest.approx(expected, rel=1e-9)
    assert result.attainment == 1.0


def test_what_cannot_be_simulated_says_what_to_change() -> None:
    with pytest.raises(SimulationError, match=r"no pool 'x'.*prefill, decode, swing"):
        simulate(spec(), [], replace(STATIC, replicas={"x": 1}))
    with pytest.raises(SimulationError, match=r"pool prefill: no built-in profile fits.*set spec.profile"):
        simulate(spec(engine={"type": "VLLM"}), [])
    with pytest.raises(SimulationError, match="External"):
        simulate(spec(router={"type": "External", "external": {}}), [])
    with pytest.raises(SimulationError, match=r"request 1 arrives at 1\.0 s, before the one before it"):
        simulate(spec(), [Arrival(2.0, 1, 1), Arrival(1.0, 1, 1)])


def test_a_broken_off_simulation_tells_what_it_has() -> None:
    simulation = Simulation(spec(), load(6, 60), OURS, failures=Random(1))
    simulation.advance(events=2000)
    result = simulation.result()
    assert not result.finished
    assert 0 < result.completed < len(load(6, 60))


def test_a_load_may_answer_to_what_has_ended() -> None:
    outcomes: list[Outcome] = []

    def ended(outcome: Outcome) -> None:
        outcomes.append(outcome)
        if len(outcomes) < 10:
            simulation.send(outcome.arrival._replace(at_s=simulation.now_s))

    simulation = Simulation(spec(), [Arrival(1.0, 200, 5)], STATIC, failures=Random(0), ended=ended)
    result = simulation.run()
    assert result.finished
    assert result.requests == result.completed == 10
    assert [one.number for one in outcomes] == list(range(10))
    assert all(after.arrival.at_s == before.end_s for before, after in pairwise(outcomes))


def test_pods_beyond_the_accelerators_wait_until_others_end() -> None:
    pools = [
        {"name": "prefill", "role": "Prefill", "replicas": {"min": 1, "max": 8}},
        {"name": "decode", "role": "Decode", "replicas": {"min": 1, "max": 8}},
    ]
    overload = load(20, 60, prompt=600, output=5)
    settings = Settings(policy=POLICIES["hpa"], startup_s=5.0, prefix_caching=False)
    free, _ = simulate(spec(pools), overload, settings)
    bounded, _ = simulate(spec(pools), overload, replace(settings, accelerators=4))
    assert max(window.accelerators for window in free.windows) > 4
    assert max(window.accelerators for window in bounded.windows) <= 4
    assert bounded.accelerator_hours <= 4 * bounded.simulated_s / 3600
    assert bounded.completed == free.completed == len(overload)


def test_workers_that_wait_for_one_another_for_ever_end_the_simulation() -> None:
    # Machines that do both roles, each full of what the other is to fetch: nothing but leases goes on.
    model = built_in("demo").model()
    outcomes: list[Outcome] = []
    simulation = Simulation(
        spec([{"name": "prefill", "role": "Prefill"}, {"name": "decode", "role": "Decode"}]),
        load(8, 30, prompt=400, output=200),
        Settings(policy=POLICIES["splitwise"], queue_timeout_s=1e6),
        failures=Random(1),
        known=dict.fromkeys(("prefill", "decode"), replace(model, kv_capacity_tokens=4000)),
        ended=outcomes.append,
    )
    result = simulation.run()
    assert result.finished
    assert 0 < result.completed < result.requests == result.completed + result.failed == len(outcomes)
