"""The mix holds in every stretch, and what differs between them swings."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

import pytest

from swingpool_control.api.v1alpha1 import InferenceClusterSpec, PoolRole
from swingpool_control.engine import profile
from swingpool_control.planning import cluster, variations
from swingpool_control.planning.check import best, checked
from swingpool_control.planning.mix import Asked, Mix, PlanError, mix
from swingpool_control.planning.stretches import Stretch
from swingpool_control.simulation.result import Attained, Latency, Result
from swingpool_control.sizing.traffic import Traffic, one_length

PROMPTS = (4000, 20)
ANSWERS = (100, 400)
NONE = Latency(mean_s=None, p50_s=None, p90_s=None, p95_s=None, p99_s=None, largest_s=None, count=0)


def asked(*kinds: tuple[int, int], rate: float = 6.0, pools: Sequence[Mapping[str, object]] = ()) -> Asked:
    offered = pools or ({"name": "gpu", "role": "Swing", "costPerHour": "2", "replicas": {"max": 64}},)
    spec = InferenceClusterSpec.model_validate(
        {
            "model": {"name": "demo/chat"},
            "objectives": {"ttft": {"p95": "2s"}, "itl": {"p95": "60ms"}},
            "pools": list(offered),
        }
    )
    model = profile.built_in("demo").model(max_batched_tokens=2048, max_sequences=256)
    stretches = tuple(
        Stretch(
            from_s=number * 60.0,
            until_s=number * 60.0 + 60.0,
            traffic=Traffic(requests_per_s=rate, lengths=one_length(prompt_tokens=prompt, output_tokens=output)),
        )
        for number, (prompt, output) in enumerate(kinds)
    )
    return Asked(spec=spec, models={pool.name: model for pool in spec.pools}, stretches=stretches)


def test_steady_traffic_needs_no_swing_worker() -> None:
    found = mix(asked(PROMPTS, PROMPTS))
    (one,) = found.workers
    assert not found.violated
    assert one.prefill > one.decode >= 1
    assert one.swing == 0


def test_what_the_mix_asks_for_in_turns_swings() -> None:
    prompts, answers = mix(asked(PROMPTS)).workers[0], mix(asked(ANSWERS)).workers[0]
    (both,) = mix(asked(PROMPTS, ANSWERS)).workers
    assert both.swing > 0
    assert both.total >= max(prompts.total, answers.total)
    assert both.total < prompts.prefill + answers.decode, "fewer than a fixed split for both"
    assert both.prefill + both.swing >= prompts.prefill
    assert both.decode + both.swing >= answers.decode


def test_the_order_of_stretches_does_not_matter() -> None:
    assert mix(asked(PROMPTS, ANSWERS)).workers == mix(asked(ANSWERS, PROMPTS)).workers


def test_more_requests_never_cost_less() -> None:
    costs = [one.mix.cost_per_hour for one in variations.at_rates(asked(PROMPTS, ANSWERS))]
    assert costs == sorted(costs)


def test_the_median_is_never_dearer() -> None:
    question = asked(PROMPTS, ANSWERS)
    assert variations.at_median(question).mix.cost_per_hour <= mix(question).cost_per_hour


def test_what_cannot_be_is_named() -> None:
    pools = ({"name": "gpu", "role": "Swing", "costPerHour": "2", "replicas": {"max": 2}},)
    found = mix(asked(PROMPTS, pools=pools))
    assert found.violated
    assert found.total <= 2


def test_the_cheaper_pool_is_taken_and_its_lack_costs() -> None:
    pools = (
        {"name": "dear", "role": "Swing", "costPerHour": "4", "replicas": {"max": 64}},
        {"name": "cheap", "role": "Swing", "costPerHour": "2", "replicas": {"max": 64}},
    )
    question = asked(PROMPTS, pools=pools)
    found = mix(question)
    assert [one.total > 0 for one in found.workers] == [False, True]
    by_change = {one.change: one.mix for one in variations.without_each(question)}
    assert by_change["without dear"].cost_per_hour == found.cost_per_hour
    assert by_change["without cheap"].cost_per_hour == pytest.approx(2 * found.cost_per_hour)
    turned = {one.change: one.mix for one in variations.at_prices(question)}["dear at 0.5 times its price"]
    assert turned.cost_per_hour <= found.cost_per_hour


def test_prices_of_some_pools_only_are_refused() -> None:
    pools = (
        {"name": "one", "role": "Swing", "costPerHour": "4", "replicas": {"max": 4}},
        {"name": "two", "role": "Swing", "replicas": {"max": 4}},
    )
    with pytest.raises(PlanError, match="pool two: costPerHour is missing"):
        mix(asked(PROMPTS, pools=pools))


def test_no_traffic_is_refused() -> None:
    with pytest.raises(PlanError, match="no request arrives"):
        mix(asked())


def test_the_cluster_has_the_mix_in_pools_of_one_role() -> None:
    question = asked(PROMPTS, ANSWERS)
    found = mix(question)
    spec = cluster.spec(question.spec, found, fixed=True)
    InferenceClusterSpec.model_validate(spec.model_dump(mode="json", by_alias=True, exclude_none=True))
    (one,) = found.workers
    by_role = {pool.role: pool.replicas.max for pool in spec.pools}
    assert by_role.get(PoolRole.PREFILL, 0) == one.prefill
    assert by_role.get(PoolRole.DECODE, 0) == one.decode
    assert by_role.get(PoolRole.SWING, 0) == one.swing
    assert set(cluster.models(question.spec, found, question.models)) == {pool.name for pool in spec.pools}
    elastic = cluster.spec(question.spec, found, fixed=False)
    for pool in elastic.pools:
        assert pool.replicas.min <= pool.replicas.max


def _result(*, ttft: bool, itl: bool) -> Result:
    objectives = (
        Attained(metric="ttft", percentile="p95", limit_s=2.0, share=1.0, holds=ttft),
        Attained(metric="itl", percentile="p95", limit_s=0.06, share=1.0, holds=itl),
    )
    return Result(
        policy="ours",
        finished=True,
        simulated_s=60.0,
        requests=10,
        completed=10,
        refused=0,
        failed=0,
        attainment=1.0,
        goodput_per_s=1.0,
        objectives=objectives,
        ttft=NONE,
        itl=NONE,
        e2e=NONE,
        accelerator_hours=1.0,
        cost=None,
        flips_to_prefill=0,
        flips_to_decode=0,
        flips=(),
        starts=0,
        preemptions=0,
        transfers=0,
        transfers_failed=0,
        crashes=0,
    )


@pytest.mark.parametrize("needed", [(1, 1), (3, 2), (7, 4)])
def test_checks_find_what_the_simulation_needs(needed: tuple[int, int]) -> None:
    question = asked(PROMPTS, rate=2.0)
    proposed = mix(question)
    start = replace(
        proposed,
        workers=(replace(proposed.workers[0], prefill=3, decode=2, swing=0, least_swing=0),),
        cost_per_hour=10.0,
    )

    def simulate(tried: Mix) -> Result:
        (one,) = tried.workers
        return _result(ttft=one.prefill >= needed[0], itl=one.decode >= needed[1])

    found = best(checked(question.spec, start, simulate))
    assert found is not None
    (one,) = found.mix.workers
    assert one.prefill >= needed[0]
    assert one.decode >= needed[1]
    if needed != (7, 4):
        assert (one.prefill, one.decode) == needed
    assert found.mix.cost_per_hour == 2 * one.total


def test_checks_end_where_every_pool_is_full() -> None:
    pools = ({"name": "gpu", "role": "Swing", "costPerHour": "2", "replicas": {"max": 3}},)
    question = asked(PROMPTS, pools=pools)
    tried = checked(question.spec, mix(question), lambda _: _result(ttft=False, itl=True))
    assert best(tried) is None
    assert tried[-1].mix.total == 3
