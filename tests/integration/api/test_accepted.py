"""Good InferenceClusters against the real API server: accepted, with every default written, as the models say it."""

import json
import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from e2e.cluster.controlplane import ControlPlane
from swingpool_control.api.v1alpha1 import InferenceClusterSpec
from tests.support.inference_clusters import NAMESPACE, SMALLEST, Refusal, changed, create, smallest
from tests.support.kubernetes import kubectl
from tests.support.resource_specs import SPECS

ROOT = Path(__file__).resolve().parents[3]

FULL: dict[str, Any] = changed(
    smallest(),
    spec__model={
        "name": "Qwen/Qwen3-32B",
        "source": "/models/qwen3",
        "revision": "main",
        "maxLength": 32768,
        "servedNames": ["chat", "qwen"],
    },
    spec__objectives={"ttft": {"p50": "200ms", "p90": "0.4s", "p95": "500ms", "p99": "1s"}, "itl": {"p99": "1m"}},
    spec__pools__0={
        "name": "p23456789-123456789z",
        "role": "Prefill",
        "accelerator": {"product": "NVIDIA-H100-80GB-HBM3", "count": 8},
        "engine": {
            "tensorParallelSize": 2,
            "pipelineParallelSize": 2,
            "dataParallelSize": 2,
            "expertParallel": True,
            "quantization": "fp8",
            "kvCacheDtype": "fp8",
            "blockSize": 64,
            "maxBatchedTokens": 8192,
            "maxSequences": 256,
            "extraArguments": ["--model-impl=auto", "--seed", "-1", "-O3", "--max-logprobs=5", "--tokenizer", "x"],
        },
        "replicas": {"mode": "Fixed", "count": 2},
        "costPerHour": "20",
        "podTemplate": {
            "metadata": {"labels": {"team": "chat"}, "annotations": {"example.com/x": "y"}},
            "spec": {
                "priorityClassName": "high",
                "containers": [
                    {
                        "name": "worker",
                        "resources": {"requests": {"memory": "64Gi"}},
                        "env": [{"name": "A", "value": "b"}],
                    },
                    {"name": "side", "image": "x", "args": ["--y"], "ports": [{"containerPort": 9000}]},
                ],
            },
        },
    },
    spec__pools__1={
        "name": "swing",
        "role": "Swing",
        "accelerator": {"product": "NVIDIA-H200"},
        "engine": {"kvCacheDtype": "fp8", "blockSize": 64},
        "replicas": {"min": 0, "max": 4},
        "costPerHour": "5.90",
    },
    spec__engine={
        "type": "Simulated",
        "image": "registry.example.com/swingpool:1",
        "imagePullSecrets": ["pull"],
        "kvLoadFailurePolicy": "Fail",
        "modelCache": {"persistentVolumeClaim": "models"},
        "maxRequestDuration": "1h30m",
        "simulated": {"speedup": "2.5", "requestAccelerators": True},
    },
    spec__scaling={
        "mode": "Recommend",
        "budgets": {
            "accelerators": [{"product": "NVIDIA-H200", "max": 4}, {"product": "*", "max": 24}],
            "costPerHour": "80",
        },
        "stabilization": {"scaleDownWindow": "0s", "deadBandPercent": 0, "minRoleDuration": "30s"},
    },
    spec__router={"type": "External", "external": {"roleLabels": {"key": "role"}, "drainSettle": "10s"}},
    spec__profile={"configMap": {"name": "profiles", "key": "h100.json"}},
)


def _accepted(plane: ControlPlane, resource: dict[str, Any]) -> dict[str, Any]:
    answer = create(plane, resource)
    assert not isinstance(answer, Refusal), answer.message
    spec: dict[str, Any] = answer["spec"]
    return spec


def test_the_smallest_useful_resource_has_at_most_15_lines() -> None:
    assert len(SMALLEST.splitlines()) <= 15


@pytest.mark.parametrize("resource", [smallest(), FULL], ids=["smallest", "full"])
def test_the_api_server_writes_the_defaults_that_the_models_have(plane: ControlPlane, resource: dict[str, Any]) -> None:
    written = _accepted(plane, resource)
    model = InferenceClusterSpec.model_validate(resource["spec"])
    assert InferenceClusterSpec.model_validate(written) == model
    told = model.model_dump(mode="json", by_alias=True, exclude_none=True)
    # Settings of an engine or a router that is not the one in use are not written, nor are empty lists.
    if model.engine.type == "VLLM":
        del told["engine"]["simulated"]
    if model.router.type == "BuiltIn":
        del told["router"]["external"]
    elif model.router.external.metrics.source == "Workers":
        del told["router"]["external"]["metrics"]["prometheus"]
    assert written == _without_empty_lists(told)


@pytest.mark.parametrize("name", sorted(SPECS))
def test_specs_that_other_tests_render_are_accepted(plane: ControlPlane, name: str) -> None:
    _accepted(plane, {**smallest(), "spec": SPECS[name]})


def _shipped() -> dict[str, dict[str, Any]]:
    """Return every InferenceCluster that users are shown, by where it stands: samples, and YAML blocks of the docs."""
    found: dict[str, dict[str, Any]] = {}
    places = ("manifests/samples/*.yaml", "e2e/**/*.yaml", "*.md", "docs/**/*.md")
    for path in (path for place in places for path in ROOT.glob(place)):
        text = path.read_text()
        blocks = re.findall(r"^```yaml\n(.*?)^```", text, re.MULTILINE | re.DOTALL) if path.suffix == ".md" else [text]
        for index, block in enumerate(block for block in blocks if "kind: InferenceCluster" in block):
            for document in yaml.safe_load_all(block):
                if document["kind"] == "InferenceCluster":
                    found[f"{path.relative_to(ROOT)}-{index}-{document['metadata']['name']}"] = document
    return found


SHIPPED = _shipped()


@pytest.mark.parametrize("place", sorted(SHIPPED))
def test_what_users_are_shown_is_accepted(plane: ControlPlane, place: str) -> None:
    resource = SHIPPED[place]
    resource["metadata"].pop("namespace", None)
    _accepted(plane, resource)


@pytest.mark.parametrize(
    "changes",
    [
        {"spec__pools": [{"name": "swing", "role": "Swing", "replicas": {"min": 2, "max": 2}}]},
        {"spec__pools__0__replicas": {"mode": "External"}},
        {"spec__pools__0__replicas": {"mode": "Fixed", "count": 1}, "spec__pools__1__replicas": {"min": 0}},
        {"spec__router": {"type": "External", "external": {}}},
        {
            "spec__pools__0__accelerator": {
                "resource": "amd.com/gpu",
                "productLabel": "amd.com/gpu.product-name",
                "count": 4,
            }
        },
        {"spec__engine__modelCache": {"sizeLimit": "200Gi"}},
        {"spec__router__builtIn": {"authorizer": {"endpoint": "grpc://authorizer.security:9191"}}},
        {
            "spec__router__builtIn": {
                "authorizer": {
                    "endpoint": "http://authorizer.security/v1/check",
                    "timeout": "250ms",
                    "failureMode": "Allow",
                    "credentials": ["authorization", "x-api-key"],
                }
            }
        },
        {"spec__router__builtIn": {"authorizer": {"endpoint": "https://authorizer.example.com/check"}}},
        {
            "spec__router__builtIn": {
                "authorizer": {
                    "endpoint": "grpcs://10.0.0.7:9191",
                    "tls": {"caSecretName": "ca", "serverName": "authorizer.security", "clientSecretName": "router"},
                }
            }
        },
        {"spec__router__builtIn": {"workerTls": {"secretName": "certificates", "clientSecretName": "certificates"}}},
        {"spec__router__builtIn": {"kvEvents": {}}},
        {"metadata__name": "c" * 40, "spec__pools__0__name": "p" * 20},
    ],
    ids=[
        "one-swing-pool",
        "external-replicas",
        "fixed",
        "external-router",
        "amd",
        "cache",
        "by-grpc",
        "by-http",
        "by-https",
        "by-grpcs",
        "worker-tls",
        "kv-events",
        "longest-names",
    ],
)
def test_accepted(plane: ControlPlane, changes: dict[str, Any]) -> None:
    _accepted(plane, changed(smallest(), **changes))


def test_external_router_shows_the_labels_that_it_goes_by(plane: ControlPlane) -> None:
    written = _accepted(plane, changed(smallest(), spec__router={"type": "External", "external": {}}))
    assert written["router"]["external"] == {
        "drainSettle": "6s",
        "metrics": {"source": "Workers"},
        "roleLabels": {"key": "llm-d.ai/role", "prefill": "prefill", "decode": "decode", "draining": "draining"},
    }


def test_pools_of_two_writers_merge_by_name(plane: ControlPlane) -> None:
    """Each of two field managers owns its pool; applying one leaves the other."""
    first = changed(smallest(), metadata__name="merged", metadata__namespace=NAMESPACE)
    second = {
        **first,
        "spec": {"pools": [{"name": "swing", "role": "Swing", "replicas": {"min": 0, "max": 2}}]},
    }
    kubectl(plane, "apply", "--server-side", "--field-manager=one", "-f", "-", stdin=yaml.safe_dump(first))
    try:
        kubectl(plane, "apply", "--server-side", "--field-manager=two", "-f", "-", stdin=yaml.safe_dump(second))
        kubectl(plane, "apply", "--server-side", "--field-manager=one", "-f", "-", stdin=yaml.safe_dump(first))
        merged = json.loads(kubectl(plane, "get", "swp", "merged", "-o", "json", "-n", NAMESPACE))
        assert [pool["name"] for pool in merged["spec"]["pools"]] == ["prefill", "decode", "swing"]
    finally:
        kubectl(plane, "delete", "swp", "merged", "-n", NAMESPACE)


def _without_empty_lists(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _without_empty_lists(each) for key, each in value.items() if each != []}
    if isinstance(value, list):
        return [_without_empty_lists(each) for each in value]
    return value
