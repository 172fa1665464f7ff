"""Workers' command lines: what the spec says stands there, once, and the user's own arguments come last."""

import json

import pytest

from swingpool.worker import options
from swingpool_control.api.v1alpha1 import InferenceClusterSpec
from swingpool_control.vllm.arguments import worker_arguments
from tests.support.resource_specs import SPECS, spec_of


def _arguments(spec: InferenceClusterSpec, pool: str) -> list[str]:
    (found,) = [item for item in spec.pools if item.name == pool]
    return worker_arguments(spec, found)


def test_every_field_of_the_spec_reaches_the_command_line() -> None:
    assert _arguments(spec_of("full"), "prefill") == [
        "--model",
        "/models/qwen3-32b",
        "--served-model-name",
        "Qwen/Qwen3-32B",
        "qwen3",
        "chat",
        "--host",
        "0.0.0.0",
        "--port",
        "8000",
        "--shutdown-timeout",
        "91",
        "--revision",
        "v1.0",
        "--max-model-len",
        "32768",
        "--tensor-parallel-size",
        "2",
        "--pipeline-parallel-size",
        "2",
        "--data-parallel-size",
        "2",
        "--enable-expert-parallel",
        "--quantization",
        "fp8",
        "--kv-cache-dtype",
        "fp8_e4m3",
        "--block-size",
        "64",
        "--max-num-batched-tokens",
        "16384",
        "--max-num-seqs",
        "128",
        "--kv-transfer-config",
        '{"kv_connector":"NixlConnector","kv_role":"kv_both","kv_load_failure_policy":"fail"}',
        "--enforce-eager",
        "--gpu-memory-utilization=0.9",
    ]


def test_a_small_spec_leaves_the_engine_its_defaults() -> None:
    arguments = _arguments(spec_of("minimal"), "decode")
    for absent in ("--max-model-len", "--revision", "--quantization", "--max-num-seqs", "--speedup", "--profile"):
        assert absent not in arguments
    assert arguments[:4] == ["--model", "meta-llama/Llama-3.1-8B", "--served-model-name", "meta-llama/Llama-3.1-8B"]


@pytest.mark.parametrize("policy", ["Recompute", "Fail"])
def test_every_worker_may_send_and_receive_kv_cache(policy: str) -> None:
    arguments = _arguments(spec_of("minimal", engine={"kvLoadFailurePolicy": policy}), "prefill")
    config = json.loads(arguments[arguments.index("--kv-transfer-config") + 1])
    assert config == {
        "kv_connector": "NixlConnector",
        "kv_role": "kv_both",
        "kv_load_failure_policy": policy.lower(),
    }


def test_simulated_workers_are_told_speed_accelerator_and_profile() -> None:
    ends = ["--speedup", "4", "--accelerator", "NVIDIA-H200", "--profile", "demo"]
    assert _arguments(spec_of("simulated"), "swing")[-6:] == ends
    ends = ["--speedup", "1", "--profile", "/etc/swingpool/profile/llama.json"]
    assert _arguments(spec_of("dry-run"), "decode")[-4:] == ends


@pytest.mark.parametrize("name", SPECS)
def test_every_argument_stands_once_and_the_users_come_last(name: str) -> None:
    spec = spec_of(name)
    for pool in spec.pools:
        arguments = worker_arguments(spec, pool)
        theirs = len(pool.engine.extra_arguments)
        assert arguments[len(arguments) - theirs :] == list(pool.engine.extra_arguments)
        flags = [argument for argument in arguments if argument.startswith("--")]
        assert len(flags) == len(set(flags))


def test_the_simulated_worker_understands_all_of_it() -> None:
    spec = spec_of("simulated")
    for pool in spec.pools:
        understood = options.parse(worker_arguments(spec, pool), {})
        assert understood.unknown == ()
        assert understood.served_names == ("meta-llama/Llama-3.1-8B",)
        assert (understood.tensor_parallel_size, understood.speedup, understood.profile_name) == (2, 4.0, "demo")
        assert understood.kv_transfer is not None
