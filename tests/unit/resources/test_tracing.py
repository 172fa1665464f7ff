"""Traces: who is told to make them, where they go, and that nobody hears of them unless they are asked for."""

import json
from typing import Any

import pytest

from swingpool_control.api.v1alpha1 import InferenceClusterSpec
from tests.support.resource_specs import SPECS, child, container_of, pod_of, render, spec_of

ENDPOINT = "http://otel-collector.observability:4318"


def traced(name: str = "minimal", *, endpoint: str = ENDPOINT, **more: Any) -> InferenceClusterSpec:
    return spec_of(name, tracing={"endpoint": endpoint, **more})


@pytest.mark.parametrize("name", SPECS)
def test_nobody_traces_unless_it_is_asked_for(name: str) -> None:
    said = json.dumps(render(spec_of(name))).lower()
    assert not any(word in said for word in ("otlp", "otel_", "/v1/traces", "opentelemetry"))


def test_envoy_picker_and_workers_send_to_one_place_under_their_own_names() -> None:
    found = render(traced(samplingRatio="0.05"))
    config = json.loads(child(found, "ConfigMap", "chat-router")["data"]["envoy.json"])
    manager = config["static_resources"]["listeners"][0]["filter_chains"][0]["filters"][0]["typed_config"]
    tracer = manager["tracing"]["provider"]["typed_config"]
    assert tracer["service_name"] == "chat-router"
    assert tracer["http_service"]["http_uri"]["uri"] == f"{ENDPOINT}/v1/traces"
    sampler = tracer["sampler"]["typed_config"]["wrapped_sampler"]["typed_config"]
    assert sampler["sampling_percentage"] == {"numerator": 50_000, "denominator": "MILLION"}
    cluster = next(one for one in config["static_resources"]["clusters"] if one["name"] == "traces")
    host = cluster["load_assignment"]["endpoints"][0]["lb_endpoints"][0]["endpoint"]["address"]["socket_address"]
    assert host == {"address": "otel-collector.observability", "port_value": 4318}
    picker = container_of(pod_of(found, "chat-router"), "picker")["args"]
    assert picker[picker.index("--otlp-traces-endpoint") + 1] == ENDPOINT
    worker = container_of(pod_of(found, "chat-decode"), "worker")
    assert worker["args"][worker["args"].index("--otlp-traces-endpoint") + 1] == f"{ENDPOINT}/v1/traces"
    variables = {one["name"]: one.get("value") for one in worker["env"]}
    assert variables["OTEL_SERVICE_NAME"] == "chat-decode"
    assert variables["OTEL_EXPORTER_OTLP_TRACES_PROTOCOL"] == "http/protobuf"


def test_without_a_port_it_is_that_of_http() -> None:
    found = render(traced(endpoint="http://collector"))
    assert '"port_value": 80' in child(found, "ConfigMap", "chat-router")["data"]["envoy.json"]


def test_simulated_workers_are_not_told() -> None:
    found = render(traced("simulated"))
    assert "--otlp-traces-endpoint" not in container_of(pod_of(found, "chat-decode"), "worker")["args"]


def test_tracing_changes_nothing_about_who_can_exchange_kv_cache() -> None:
    def generations(spec: InferenceClusterSpec) -> set[str]:
        deployments = [item for item in render(spec) if item["kind"] == "Deployment"]
        labels = [one["spec"]["template"]["metadata"]["labels"] for one in deployments]
        return {one["swingpool.dev/kv-generation"] for one in labels if "swingpool.dev/kv-generation" in one}

    assert generations(traced()) == generations(spec_of("minimal"))
