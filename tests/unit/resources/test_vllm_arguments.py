"""Workers' command lines: what the spec says stands there, once, and the user's own arguments come last."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from swingpool_control.api.v1alpha1 import InferenceClusterSpec
from swingpool_control.resources.vllm_arguments import OWNED_ARGUMENTS, tensor_parallel_size, worker_arguments
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


def test_simulated_workers_are_told_speed_and_profile() -> None:
    assert _arguments(spec_of("simulated"), "swing")[-4:] == ["--speedup", "4", "--profile", "default"]
    profile = _arguments(spec_of("dry-run"), "decode")[-2:]
    assert profile == ["--profile", "/etc/swingpool/profile/llama.json"]


@pytest.mark.parametrize("name", SPECS)
def test_rendered_arguments_are_owned_and_stand_once(name: str) -> None:
    spec = spec_of(name)
    for pool in spec.pools:
        ours = worker_arguments(spec, pool)[: -len(pool.engine.extra_arguments) or None]
        flags = [argument for argument in ours if argument.startswith("--")]
        assert set(flags) <= set(OWNED_ARGUMENTS)
        assert len(flags) == len(set(flags))


def test_every_owned_argument_is_rendered_for_some_spec() -> None:
    seen = {
        argument for name in SPECS for pool in spec_of(name).pools for argument in worker_arguments(spec_of(name), pool)
    }
    assert set(OWNED_ARGUMENTS) <= seen


@given(
    count=st.integers(1, 64),
    pipeline=st.integers(1, 64),
    data=st.integers(1, 64),
    given_size=st.none() | st.integers(1, 64),
)
def test_tensor_parallel_size_is_what_the_other_sizes_leave(
    count: int, pipeline: int, data: int, given_size: int | None
) -> None:
    engine: dict[str, Any] = {"pipelineParallelSize": pipeline, "dataParallelSize": data}
    if given_size is not None:
        engine["tensorParallelSize"] = given_size
    pool = (
        spec_of("minimal")
        .pools[0]
        .model_copy(
            update={
                "accelerator": spec_of("minimal").pools[0].accelerator.model_copy(update={"count": count}),
                "engine": type(spec_of("minimal").pools[0].engine).model_validate(engine),
            }
        )
    )
    size = tensor_parallel_size(pool)
    assert size >= 1
    if given_size is not None:
        assert size == given_size
    elif count % (pipeline * data) == 0:
        assert size * pipeline * data == count
