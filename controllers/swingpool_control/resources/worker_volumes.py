"""Where a worker may write, and the variables that tell the engine so."""

from swingpool_control import names
from swingpool_control.api.v1alpha1 import EngineType, InferenceClusterSpec, Pool
from swingpool_control.resources import worker_tls
from swingpool_control.resources.metadata import Manifest
from swingpool_control.vllm import connector, sleep, traces
from swingpool_control.vllm.arguments import PROFILE_DIRECTORY

ENVIRONMENT_SIDE_CHANNEL_HOST = "VLLM_NIXL_SIDE_CHANNEL_HOST"
ENVIRONMENT_SIDE_CHANNEL_PORT = "VLLM_NIXL_SIDE_CHANNEL_PORT"

HOME = "/home/worker"
MODEL_CACHE = "/models"

KEEP_ALIVE_S = 120
"""vLLM drops idle connections after 5 s, and a router that sends on one at that moment sees a reset."""


def environment(spec: InferenceClusterSpec, pool: Pool, *, service: str) -> list[Manifest]:
    """Return the variables of the container of a pool's workers.

    Args:
        spec: what the user wrote.
        pool: one of its pools.
        service: what the pool is called in traces.
    """
    pod_ip = {"fieldRef": {"apiVersion": "v1", "fieldPath": "status.podIP"}}
    variables: list[Manifest] = [
        {"name": ENVIRONMENT_SIDE_CHANNEL_HOST, "valueFrom": pod_ip},
        {"name": ENVIRONMENT_SIDE_CHANNEL_PORT, "value": str(names.PORT_SIDE_CHANNEL)},
        {"name": "VLLM_HTTP_TIMEOUT_KEEP_ALIVE", "value": str(KEEP_ALIVE_S)},
    ]
    own = connector.environment(spec) | traces.environment(spec, service=service)
    variables += [{"name": name, "value": value} for name, value in own.items()]
    if pool.replicas.reserve:
        variables += [{"name": name, "value": value} for name, value in sleep.DEVELOPMENT.items()]
    if spec.engine.type is EngineType.SIMULATED:
        return variables
    return [
        *variables,
        {"name": "HOME", "value": HOME},
        # Images have no account for our user id, and getpass.getuser() fails without a name.
        {"name": "USER", "value": "worker"},
        {"name": "HF_HOME", "value": MODEL_CACHE},
    ]


def volumes(spec: InferenceClusterSpec) -> list[Manifest]:
    """Return the volumes of a worker's pod."""
    found: list[Manifest] = [{"name": "tmp", "emptyDir": {}}, *worker_tls.worker_volumes(spec)]
    if spec.engine.type is EngineType.VLLM:
        found += [
            {"name": "home", "emptyDir": {}},
            {"name": "shm", "emptyDir": {"medium": "Memory"}},
            {"name": "model-cache", **_model_cache(spec)},
        ]
    elif spec.profile is not None and spec.profile.config_map is not None:
        found.append({"name": "profile", "configMap": {"name": spec.profile.config_map.name, "defaultMode": 0o644}})
    return found


def mounts(spec: InferenceClusterSpec) -> list[Manifest]:
    """Return the volume mounts of a worker's container."""
    found: list[Manifest] = [
        {"name": "tmp", "mountPath": "/tmp"},  # noqa: S108 - a volume of the pod's own
        *worker_tls.worker_mounts(spec),
    ]
    if spec.engine.type is EngineType.VLLM:
        found += [
            {"name": "home", "mountPath": HOME},
            {"name": "shm", "mountPath": "/dev/shm"},  # noqa: S108 - a volume of the pod's own
            {"name": "model-cache", "mountPath": MODEL_CACHE},
        ]
    elif spec.profile is not None and spec.profile.config_map is not None:
        found.append({"name": "profile", "mountPath": PROFILE_DIRECTORY, "readOnly": True})
    return found


def _model_cache(spec: InferenceClusterSpec) -> Manifest:
    cache = spec.engine.model_cache
    if cache is not None and cache.persistent_volume_claim is not None:
        return {"persistentVolumeClaim": {"claimName": cache.persistent_volume_claim}}
    if cache is not None and cache.host_path is not None:
        return {"hostPath": {"path": cache.host_path, "type": "DirectoryOrCreate"}}
    return {"emptyDir": {} if cache is None or cache.size_limit is None else {"sizeLimit": cache.size_limit}}
