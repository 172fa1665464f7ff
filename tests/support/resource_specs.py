"""InferenceClusters that between them reach every branch of the renderer, for unit and integration tests."""

import json
from typing import Any

from swingpool_control.api.v1alpha1 import InferenceClusterSpec
from swingpool_control.resources.render import children
from swingpool_control.resources.settings import RenderSettings

SETTINGS = RenderSettings(swingpool_image="registry.example/swingpool:1.2.3")

_OBJECTIVES = {"ttft": {"p95": "500ms"}, "itl": {"p95": "40ms"}}
_MINIMAL = {
    "model": {"name": "meta-llama/Llama-3.1-8B"},
    "objectives": _OBJECTIVES,
    "pools": [{"name": "prefill", "role": "Prefill"}, {"name": "decode", "role": "Decode"}],
}
_FULL = {
    "model": {
        "name": "Qwen/Qwen3-32B",
        "source": "/models/qwen3-32b",
        "revision": "v1.0",
        "maxLength": 32768,
        "servedNames": ["qwen3", "chat"],
    },
    "objectives": _OBJECTIVES,
    "engine": {
        "image": "registry.example/vllm:nightly",
        "imagePullSecrets": ["pull-engine"],
        "kvLoadFailurePolicy": "Fail",
        "modelCache": {"persistentVolumeClaim": "weights"},
        "maxRequestDuration": "90500ms",
    },
    "router": {
        "builtIn": {
            "replicas": 3,
            "serviceType": "LoadBalancer",
            "tls": {"secretName": "chat-certificate"},
            "apiKeys": {"secretName": "chat-keys"},
            "rateLimit": {"requestsPerSecond": "6", "burst": 30},
        }
    },
    "pools": [
        {
            "name": "prefill",
            "role": "Prefill",
            "accelerator": {"product": "NVIDIA-H100-80GB-HBM3", "count": 8},
            "engine": {
                "pipelineParallelSize": 2,
                "dataParallelSize": 2,
                "expertParallel": True,
                "quantization": "fp8",
                "kvCacheDtype": "fp8_e4m3",
                "blockSize": 64,
                "maxBatchedTokens": 16384,
                "maxSequences": 128,
                "extraArguments": ["--enforce-eager", "--gpu-memory-utilization=0.9"],
            },
        },
        {
            "name": "decode",
            "role": "Decode",
            "accelerator": {"productLabel": "amd.com/gpu.product-name", "product": "MI300X", "resource": "amd.com/gpu"},
            "engine": {"kvCacheDtype": "fp8_e4m3", "blockSize": 64},
        },
        {
            "name": "swing",
            "role": "Swing",
            "engine": {"kvCacheDtype": "fp8_e4m3", "blockSize": 64, "tensorParallelSize": 1},
            "podTemplate": {
                "metadata": {"labels": {"team": "chat"}, "annotations": {"example.com/note": "swing"}},
                "spec": {
                    "priorityClassName": "system-cluster-critical",
                    "tolerations": [{"key": "spot", "operator": "Exists"}],
                    "volumes": [{"name": "model-cache", "csi": {"driver": "cache.example.com", "readOnly": True}}],
                    "containers": [
                        {
                            "name": "worker",
                            "resources": {"requests": {"cpu": 4, "memory": "1024Mi"}, "limits": {"memory": "64Gi"}},
                            "env": [
                                {"name": "HF_TOKEN", "valueFrom": {"secretKeyRef": {"name": "hf", "key": "token"}}}
                            ],
                        }
                    ],
                },
            },
        },
    ],
}
_SIMULATED = _MINIMAL | {
    "engine": {"type": "Simulated", "simulated": {"speedup": "4", "requestAccelerators": True}},
    "profile": {"builtIn": "demo"},
    "pools": [
        {"name": "prefill", "role": "Prefill", "accelerator": {"product": "NVIDIA-H200", "count": 2}},
        {"name": "decode", "role": "Decode", "accelerator": {"product": "NVIDIA-H200", "count": 2}},
        {"name": "swing", "role": "Swing", "accelerator": {"product": "NVIDIA-H200", "count": 2}},
    ],
}
_DRY_RUN = _MINIMAL | {
    "engine": {"type": "Simulated"},
    "profile": {"configMap": {"name": "profiles", "key": "llama.json"}},
    "pools": [
        {"name": "prefill", "role": "Prefill", "accelerator": {"product": "NVIDIA-H100-80GB-HBM3", "count": 2}},
        {"name": "decode", "role": "Decode"},
    ],
}
_EXTERNAL = _MINIMAL | {
    "engine": {"modelCache": {"sizeLimit": "200Gi"}},
    "router": {"type": "External", "external": {"roleLabels": {"prefill": "p", "decode": "d", "draining": "x"}}},
}

SPECS: dict[str, dict[str, Any]] = {
    "minimal": _MINIMAL,
    "full": _FULL,
    "simulated": _SIMULATED,
    "dry-run": _DRY_RUN,
    "external": _EXTERNAL,
}
"""Name to spec, as a user writes it. All of them pass the `restricted` Pod Security Standard."""


def spec_of(name: str, **changes: Any) -> InferenceClusterSpec:
    """Return one of the specs, its top-level fields replaced by `changes`."""
    return InferenceClusterSpec.model_validate(json.loads(json.dumps(SPECS[name] | changes)))


def render(
    spec: InferenceClusterSpec,
    *,
    namespace: str = "models",
    name: str = "chat",
    uid: str = "5f0f2d0e-0000-4000-8000-000000000000",
    settings: RenderSettings = SETTINGS,
) -> tuple[dict[str, Any], ...]:
    """Return the children of a cluster called `chat`."""
    return children(namespace=namespace, name=name, uid=uid, spec=spec, settings=settings)


def child(found: tuple[dict[str, Any], ...], kind: str, name: str) -> dict[str, Any]:
    """Return one child by kind and name."""
    (match,) = [item for item in found if (item["kind"], item["metadata"]["name"]) == (kind, name)]
    return match


def pod_of(found: tuple[dict[str, Any], ...], deployment: str) -> dict[str, Any]:
    """Return the pod spec of a Deployment among the children."""
    pod: dict[str, Any] = child(found, "Deployment", deployment)["spec"]["template"]["spec"]
    return pod


def container_of(pod: dict[str, Any], name: str) -> dict[str, Any]:
    """Return a container, or an init container, of a pod by name."""
    (match,) = [item for item in [*pod["containers"], *pod.get("initContainers", [])] if item["name"] == name]
    found: dict[str, Any] = match
    return found
