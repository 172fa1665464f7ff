"""Which image a pool's workers of vLLM have: by accelerator, by version, and never beside what a user says."""

from typing import Any

import pytest

from swingpool_control.api.v1alpha1 import InferenceClusterSpec
from swingpool_control.vllm.images import image
from tests.support.resource_specs import child, render, spec_of

INSTALLED = "vllm/vllm-openai:v0.32.0"


def spec(resource: str = "nvidia.com/gpu", *, own: str | None = None, **engine: Any) -> InferenceClusterSpec:
    pool: dict[str, Any] = {"accelerator": {"resource": resource}, "engine": {"image": own} if own else {}}
    pools = [{"name": role.lower(), "role": role, **pool} for role in ("Prefill", "Decode")]
    return spec_of("minimal", pools=pools, engine={"kvTransfer": {"buffer": "Host"}, **engine})


@pytest.mark.parametrize(
    ("resource", "version", "installed", "found"),
    [
        ("nvidia.com/gpu", "0.32", INSTALLED, "vllm/vllm-openai:v0.32.0"),
        ("nvidia.com/gpu", "0.20", INSTALLED, "vllm/vllm-openai:v0.20.0"),
        ("nvidia.com/gpu", "0.20.2", INSTALLED, "vllm/vllm-openai:v0.20.2"),
        ("nvidia.com/gpu", "0.32", "vllm/vllm-openai:v0.32.1", "vllm/vllm-openai:v0.32.1"),
        ("amd.com/gpu", "0.32", INSTALLED, "vllm/vllm-openai-rocm:v0.32.0"),
        ("cpu", "0.30.1", INSTALLED, "vllm/vllm-openai-cpu:v0.30.1"),
        (
            "cpu",
            "0.32",
            "mirror.example:5000/vllm/vllm-openai:v0.32.0",
            "mirror.example:5000/vllm/vllm-openai-cpu:v0.32.0",
        ),
        ("amd.com/gpu", "0.20", "registry.example/own-vllm:v0.32.0", "registry.example/own-vllm:v0.32.0"),
        ("amd.com/gpu", "0.20", "vllm/vllm-openai@sha256:abc", "vllm/vllm-openai@sha256:abc"),
    ],
)
def test_the_image_follows_accelerator_and_version(resource: str, version: str, installed: str, found: str) -> None:
    wanted = spec(resource, version=version)
    assert image(wanted, wanted.pools[0], installed=installed) == found


def test_what_a_user_says_comes_first_and_the_pools_own_word_before_the_clusters() -> None:
    clusters = spec("amd.com/gpu", image="registry.example/a:1")
    assert image(clusters, clusters.pools[0], installed=INSTALLED) == "registry.example/a:1"
    own = spec("amd.com/gpu", image="registry.example/a:1", own="registry.example/b:1")
    assert image(own, own.pools[0], installed=INSTALLED) == "registry.example/b:1"


def test_workers_on_processor_cores_ask_for_cores_and_count_no_ranks_from_them() -> None:
    pools = [
        {"name": role.lower(), "role": role, "accelerator": {"resource": "cpu", "count": 8}}
        for role in ("Prefill", "Decode")
    ]
    children = render(spec_of("minimal", pools=pools, engine={"kvTransfer": {"buffer": "Host"}}))
    pod = child(children, "Deployment", "chat-decode")["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    assert container["resources"] == {"requests": {"cpu": "8"}, "limits": {"cpu": "8"}}
    assert container["args"][container["args"].index("--tensor-parallel-size") + 1] == "1"
    assert container["image"].split(":")[0] == "vllm/vllm-openai-cpu"
    assert "tolerations" not in pod


def test_a_pool_with_a_reserve_can_be_put_to_sleep_and_no_other() -> None:
    pools = [
        {"name": "prefill", "role": "Prefill"},
        {"name": "decode", "role": "Decode", "replicas": {"max": 3, "reserve": 1}},
    ]
    children = render(spec_of("minimal", pools=pools, engine={"kvTransfer": {"buffer": "Host"}}))
    for name, sleeps in (("chat-prefill", False), ("chat-decode", True)):
        (container,) = child(children, "Deployment", name)["spec"]["template"]["spec"]["containers"]
        assert ("--enable-sleep-mode" in container["args"]) is sleeps
        assert ({"name": "VLLM_SERVER_DEV_MODE", "value": "1"} in container["env"]) is sleeps
