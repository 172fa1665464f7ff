"""The worker's command line: vLLM's arguments as the manager renders them, and what is told of broken ones."""

import json
from pathlib import Path

import pytest

from swingpool.worker import options
from swingpool.worker.options import KVTransfer, OptionError
from swingpool_control.engine import profile
from swingpool_control.engine.profile import ProfileError

NIXL = '{"kv_connector":"NixlConnector","kv_role":"kv_both"}'


def test_a_rendered_command_line() -> None:
    parsed = options.parse(
        [
            *("--model", "/models/x", "--served-model-name", "Qwen/Qwen3-32B", "chat", "--host", "0.0.0.0"),
            *("--port", "8000", "--shutdown-timeout", "600", "--max-model-len", "4096", "--tensor-parallel-size", "2"),
            *("--kv-cache-dtype", "fp8", "--block-size", "32", "--max-num-batched-tokens", "512"),
            *("--max-num-seqs", "9", "--kv-transfer-config", NIXL, "--speedup", "2", "--profile", "demo"),
        ],
        {"VLLM_NIXL_SIDE_CHANNEL_HOST": "10.0.0.7", "VLLM_NIXL_SIDE_CHANNEL_PORT": "5601"},
    )
    assert parsed.served_names == ("Qwen/Qwen3-32B", "chat")
    assert (parsed.model_source, parsed.port, parsed.max_model_len) == ("/models/x", 8000, 4096)
    assert (parsed.block_size, parsed.kv_cache_dtype, parsed.tensor_parallel_size) == (32, "fp8", 2)
    assert (parsed.model.max_batched_tokens, parsed.model.max_sequences) == (512, 9)
    assert parsed.shutdown_timeout_s == 600
    assert parsed.kv_transfer == KVTransfer(
        recompute_on_failure=False, lease_s=30.0, side_channel_host="10.0.0.7", side_channel_port=5601
    )
    assert parsed.unknown == ()
    assert parsed.model.step.base_s == profile.built_in("demo").step.base_s / 2


def test_what_vllm_defaults_to() -> None:
    parsed = options.parse([], {})
    assert parsed.served_names == (options.DEFAULT_MODEL,)
    assert (parsed.port, parsed.block_size, parsed.shutdown_timeout_s, parsed.keep_alive_s) == (8000, 16, 0, 5)
    assert parsed.kv_transfer is None
    assert parsed.prefix_caching
    assert parsed.profile_name == "demo"


def test_unknown_arguments_are_told_not_refused() -> None:
    parsed = options.parse(["--enable-something", "--level", "3", "--port", "81"], {})
    assert parsed.unknown == ("--enable-something", "--level", "3")
    assert parsed.port == 81


def test_underscores_are_dashes() -> None:
    parsed = options.parse(["--max_model_len=2k", "--kv_transfer_config", NIXL.replace("kv_both", "kv_consumer")], {})
    assert parsed.max_model_len == 2000
    assert parsed.kv_transfer is not None


def test_transfer_settings() -> None:
    config = json.loads(NIXL) | {
        "kv_load_failure_policy": "recompute",
        "kv_connector_extra_config": {"kv_lease_duration": 7},
    }
    parsed = options.parse(["--kv-transfer-config", json.dumps(config)], {})
    assert parsed.kv_transfer == KVTransfer(
        recompute_on_failure=True, lease_s=7.0, side_channel_host="localhost", side_channel_port=5600
    )


@pytest.mark.parametrize(
    ("arguments", "name"),
    [
        (["--model", "nvidia/Llama-3.1-8B-Instruct-FP8"], "llama-3.1-8b-fp8-h200"),
        (["--model", "nvidia/Llama-3.1-8B-Instruct-FP8", "--accelerator", "NVIDIA-L4"], "demo"),
        (["--model", "nvidia/Llama-3.1-8B-Instruct-FP8", "--served-model-name", "chat"], "llama-3.1-8b-fp8-h200"),
        (["--model", "other"], "demo"),
        (["--model", "other", "--profile", "llama-3.1-8b-fp8-h200"], "llama-3.1-8b-fp8-h200"),
    ],
)
def test_the_profile_that_is_used(arguments: list[str], name: str) -> None:
    assert options.parse(arguments, {}).profile_name == name


def test_a_profile_from_a_file(tmp_path: Path) -> None:
    file = tmp_path / "mine.json"
    file.write_text(profile.built_in("demo").model_copy(update={"name": "mine"}).model_dump_json())
    assert options.parse(["--profile", str(file)], {}).profile_name == "mine"
    file.write_text("{}")
    with pytest.raises(ProfileError, match=r"mine\.json: format"):
        options.parse(["--profile", str(file)], {})
    with pytest.raises(OptionError, match=r"--profile .*gone\.json: No such file"):
        options.parse(["--profile", str(tmp_path / "gone.json")], {})


@pytest.mark.parametrize(
    ("arguments", "environment", "message"),
    [
        (["--speedup", "0"], {}, "--speedup must be a finite number above zero"),
        (["--speedup", "nan"], {}, "--speedup must be a finite number above zero"),
        (["--shutdown-timeout", "-1"], {}, "--shutdown-timeout must be a finite number of seconds"),
        (["--max-model-len", "long"], {}, "--max-model-len must be a number of tokens"),
        (["--max-model-len", "9M"], {}, "does not fit into the profile's KV cache of 131072 tokens; set it to"),
        (["--block-size", "1000000"], {}, "--block-size 1000000 exceeds the KV cache"),
        (["--kv-transfer-config", "{"], {}, "--kv-transfer-config is not JSON"),
        (["--kv-transfer-config", "{}"], {}, 'needs "kv_connector": "NixlConnector"'),
        (
            ["--kv-transfer-config", '{"kv_connector":"NixlConnector","kv_load_failure_policy":"retry"}'],
            {},
            "kv_load_failure_policy must be fail or recompute",
        ),
        (
            [
                "--kv-transfer-config",
                '{"kv_connector":"NixlConnector","kv_connector_extra_config":{"kv_lease_duration":0}}',
            ],
            {},
            "kv_lease_duration must be seconds above zero",
        ),
        (["--kv-transfer-config", NIXL], {"VLLM_NIXL_SIDE_CHANNEL_PORT": "x"}, "VLLM_NIXL_SIDE_CHANNEL_PORT must be"),
        ([], {"VLLM_HTTP_TIMEOUT_KEEP_ALIVE": "soon"}, "VLLM_HTTP_TIMEOUT_KEEP_ALIVE must be a number"),
    ],
)
def test_what_cannot_be_is_told_by_name(arguments: list[str], environment: dict[str, str], message: str) -> None:
    with pytest.raises(OptionError, match=message):
        options.parse(arguments, environment)


@pytest.mark.parametrize(("given", "by_priority"), [([], False), (["--scheduling-policy", "priority"], True)])
def test_requests_are_scheduled_as_vllm_is_told_to(given: list[str], by_priority: bool) -> None:
    assert options.parse(given, {}).by_priority is by_priority
