"""The `--kv-transfer-config` of all workers of a cluster, and the generation of workers that may exchange KV cache."""

import hashlib
import json
import math
from typing import Any

from swingpool_control.api.kv_transfer import HostCacheType, KVBuffer, KVConnector
from swingpool_control.api.quantities import quantity_bytes, seconds
from swingpool_control.api.v1alpha1 import InferenceClusterSpec
from swingpool_control.vllm.versions import NEWEST_VERSION, Feature, Version, has, kept_s, parse

GENERATION_LENGTH = 10

Config = dict[str, Any]


def version_of(spec: InferenceClusterSpec) -> Version:
    """Return the version of vLLM that a spec asks for."""
    return parse(spec.engine.version) or NEWEST_VERSION


def lease_s(spec: InferenceClusterSpec) -> int:
    """Return for how long a worker keeps KV cache that nobody fetches, whole seconds."""
    return math.ceil(seconds(spec.engine.kv_transfer.lease_duration))


def kv_transfer_config(spec: InferenceClusterSpec) -> str:
    """Return the JSON that lets every worker send and receive KV cache: roles are the router's choice, per request."""
    exchange = _exchange(spec)
    cache = spec.engine.kv_transfer.host_cache
    if cache is None:
        config = exchange
    else:
        tier: Config = {"kv_connector": "LMCacheConnectorV1", "kv_role": "kv_both"}
        if cache.type is HostCacheType.OFFLOADING:
            extra = {"cpu_bytes_to_use": quantity_bytes(cache.size)}
            tier = {"kv_connector": "OffloadingConnector", "kv_role": "kv_both", "kv_connector_extra_config": extra}
        config = {
            "kv_connector": "MultiConnector",
            "kv_role": "kv_both",
            # In this order they are asked for a prompt: another worker's answer is the newest.
            "kv_connector_extra_config": {"connectors": [exchange, tier]},
        }
    if has(version_of(spec), Feature.LOAD_FAILURE_POLICY):
        # It counts at the top; what stands within a MultiConnector's parts is not looked at.
        config = config | {"kv_load_failure_policy": spec.engine.kv_load_failure_policy.lower()}
    return json.dumps(config, separators=(",", ":"))


def environment(spec: InferenceClusterSpec) -> dict[str, str]:
    """Return the variables that belong to the configuration."""
    found = {}
    kept = lease_s(spec)
    version = version_of(spec)
    if has(version, Feature.ABORT_TIMEOUT) and kept != kept_s(version):
        found["VLLM_NIXL_ABORT_REQUEST_TIMEOUT"] = str(kept)
    cache = spec.engine.kv_transfer.host_cache
    if cache is not None and cache.type is HostCacheType.LMCACHE:
        found["LMCACHE_LOCAL_CPU"] = "True"
        found["LMCACHE_MAX_LOCAL_CPU_SIZE"] = f"{quantity_bytes(cache.size) / 2**30:g}"
    return found


def generation(spec: InferenceClusterSpec) -> str:
    """Return what tells workers apart that cannot exchange KV cache: a hash of all that vLLM's handshake compares.

    A new image counts, though the version may be the same: the handshake compares the build.
    """
    layout = spec.pools[0].engine
    model = spec.model
    parts = (
        *(spec.engine.type, spec.engine.image, spec.engine.version, model.source or model.name, model.revision),
        *([images] if (images := [pool.engine.image for pool in spec.pools if pool.engine.image]) else []),
        *(layout.kv_cache_dtype, layout.block_size, kv_transfer_config(spec), sorted(environment(spec).items())),
    )
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()[:GENERATION_LENGTH]


def _exchange(spec: InferenceClusterSpec) -> Config:
    transfer = spec.engine.kv_transfer
    if transfer.connector is KVConnector.MOONCAKE_STORE:
        return {"kv_connector": "MooncakeStoreConnector", "kv_role": "kv_both"}
    config: Config = {"kv_connector": "NixlConnector", "kv_role": "kv_both"}
    if transfer.buffer is KVBuffer.HOST:
        config["kv_buffer_device"] = "cpu"
    version = version_of(spec)
    if has(version, Feature.KV_LEASE) and lease_s(spec) != kept_s(version):
        config["kv_connector_extra_config"] = {"kv_lease_duration": lease_s(spec)}
    return config
