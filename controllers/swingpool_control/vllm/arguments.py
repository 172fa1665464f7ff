"""The command line of a worker, from the spec and the version of vLLM.

Simulated workers take vLLM's own arguments, and a few more.
"""

import math

from swingpool_control import names
from swingpool_control.api.pools import CPU
from swingpool_control.api.quantities import seconds
from swingpool_control.api.v1alpha1 import EngineType, InferenceClusterSpec, Pool, SchedulingPolicy
from swingpool_control.vllm import kv_events, sleep, tls, traces
from swingpool_control.vllm.connector import kv_transfer_config, version_of
from swingpool_control.vllm.versions import Feature, has

PROFILE_DIRECTORY = "/etc/swingpool/profile"
"""Where a simulated worker finds the profile that a ConfigMap holds."""


def worker_arguments(spec: InferenceClusterSpec, pool: Pool) -> list[str]:
    """Return the arguments of a pool's workers; the user's extra arguments come last."""
    arguments = [*_serving(spec), *_layout(pool), "--kv-transfer-config", kv_transfer_config(spec)]
    arguments += [*kv_events.arguments(spec, pool), *traces.arguments(spec)]
    if spec.engine.type is EngineType.SIMULATED:
        arguments += _simulation(spec, pool)
    return [*arguments, *pool.engine.extra_arguments]


def _serving(spec: InferenceClusterSpec) -> list[str]:
    model = spec.model
    arguments = ["--model", model.source or model.name]
    arguments += ["--served-model-name", model.name, *model.served_names]
    arguments += ["--host", "0.0.0.0", "--port", str(names.PORT_WORKER)]  # noqa: S104 - a pod's address is not known yet
    arguments += tls.arguments(spec)
    if has(version_of(spec), Feature.SHUTDOWN_TIMEOUT):
        arguments += ["--shutdown-timeout", str(math.ceil(seconds(spec.engine.max_request_duration)))]
    if spec.engine.scheduling is SchedulingPolicy.PRIORITY:
        arguments += ["--scheduling-policy", "priority"]
    if not spec.engine.prefix_caching:
        arguments.append("--no-enable-prefix-caching")
    arguments += _optional("--revision", model.revision)
    return arguments + _optional("--max-model-len", model.max_length)


def _layout(pool: Pool) -> list[str]:
    layout = pool.engine
    arguments = ["--tensor-parallel-size", str(pool.tensor_parallel_size)]
    if layout.pipeline_parallel_size > 1:
        arguments += ["--pipeline-parallel-size", str(layout.pipeline_parallel_size)]
    if layout.data_parallel_size > 1:
        arguments += ["--data-parallel-size", str(layout.data_parallel_size)]
    if layout.expert_parallel:
        arguments.append("--enable-expert-parallel")
    arguments += _optional("--quantization", layout.quantization)
    arguments += ["--kv-cache-dtype", layout.kv_cache_dtype, "--block-size", str(layout.block_size)]
    arguments += _optional("--max-num-batched-tokens", layout.max_batched_tokens)
    arguments += _optional("--max-num-seqs", layout.max_sequences)
    # Builds for CPUs refuse the flag, and take the calls without it.
    return [*arguments, sleep.ENABLE] if pool.replicas.reserve and pool.accelerator.resource != CPU else arguments


def _simulation(spec: InferenceClusterSpec, pool: Pool) -> list[str]:
    arguments = ["--speedup", spec.engine.simulated.speedup, *_optional("--accelerator", pool.accelerator.product)]
    profile = spec.profile
    if profile is not None and profile.built_in is not None:
        arguments += ["--profile", profile.built_in]
    if profile is not None and profile.config_map is not None:
        arguments += ["--profile", f"{PROFILE_DIRECTORY}/{profile.config_map.key}"]
    return arguments


def _optional(flag: str, value: str | int | None) -> list[str]:
    return [] if value is None else [flag, str(value)]
