"""The checks on real vLLM: what they ask and in which roles, without vLLM."""

import json
from pathlib import Path

from benchmarks import vllm_prediction
from e2e.vllm import kubernetes
from e2e.vllm.asking import WORDS, drawn
from e2e.vllm.checks.exact import roles
from e2e.vllm.environment import VLLMEnvironment
from swingpool_control.api.v1alpha1 import InferenceClusterSpec
from swingpool_control.engine.profile import built_in, parse
from swingpool_control.names import ROLE_DECODE, ROLE_PREFILL
from swingpool_control.simulation.traffic import Arrival

WORKERS = ("a", "b", "c")


def test_each_step_flips_one_worker_and_leaves_both_roles() -> None:
    before, had = roles(0, WORKERS), set()
    for step in range(1, 30):
        now = roles(step, WORKERS)
        assert sum(now[name] != before[name] for name in WORKERS) == 1
        assert set(now.values()) == {ROLE_PREFILL, ROLE_DECODE}
        had |= set(now.items())
        before = now
    assert had == {(name, role) for name in WORKERS for role in (ROLE_PREFILL, ROLE_DECODE)}


def test_no_prompt_helps_another_by_its_beginning() -> None:
    requests = drawn(500, seed=7)
    assert len({one.prompt[:3] for one in requests}) == len(requests)
    assert all(0 <= word < WORDS for one in requests for word in one.prompt)
    assert requests == drawn(500, seed=7)
    assert {one.stream for one in requests} == {one.chat for one in requests} == {True, False}


def test_the_cluster_of_real_pods_is_valid() -> None:
    environment = VLLMEnvironment(directory=Path("/cache/env"), model=Path("/cache/model"))
    config, cluster = json.loads(kubernetes.manifest(environment))["items"]
    InferenceClusterSpec.model_validate(cluster["spec"])
    parse(config["data"]["profile.json"].encode(), origin="manifest")
    numbers = [one.number for stretch in kubernetes.requests_of(kubernetes.STRETCHES) for one in stretch]
    assert numbers == list(range(len(numbers)))
    assert len(numbers) >= 500


def test_the_simulator_exchanges_roles_when_the_servers_did() -> None:
    profile = built_in("demo").model_dump_json(exclude_none=True)
    arrivals = [Arrival(number * 0.5, 100, 10) for number in range(40)]
    alone = vllm_prediction.simulate(profile, arrivals, workers=1, flips_at_s=())
    assert (alone.completed, alone.transfers) == (40, 0)
    pair = vllm_prediction.simulate(profile, arrivals, workers=2, flips_at_s=(5.0, 10.0))
    assert pair.completed == 40
    assert pair.transfers >= 38
    assert pair.ttft.p50_s is not None
    assert alone.ttft.p50_s is not None
    assert pair.ttft.p50_s > alone.ttft.p50_s
