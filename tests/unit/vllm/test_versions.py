"""What is said about vLLM's versions: spans without gaps, and command lines that each version takes."""

import itertools
import json

import pytest

from swingpool_control.vllm import connector
from swingpool_control.vllm.arguments import worker_arguments
from swingpool_control.vllm.versions import (
    DEFAULT_KEPT_S,
    DEFAULT_LOAD_FAILURE_POLICY,
    FEATURES,
    NEWEST_VERSION,
    Feature,
    Version,
    has,
    kept_s,
    parse,
)
from tests.support.resource_specs import spec_of

MINORS = range(11, 33)


@pytest.mark.parametrize(
    ("text", "version"), [("0.32.0", Version(0, 32)), ("v0.11", Version(0, 11)), ("latest", None), ("", None)]
)
def test_a_version_is_what_a_text_begins_with(text: str, version: Version | None) -> None:
    assert parse(text) == version


def test_every_feature_is_had_by_some_version() -> None:
    assert set(FEATURES) == set(Feature)
    for feature in Feature:
        assert any(has(Version(0, minor), feature) for minor in MINORS)


@pytest.mark.parametrize("minor", MINORS)
def test_defaults_are_known_for_every_version(minor: int) -> None:
    version = Version(0, minor)
    assert sum(version in span for span, _ in DEFAULT_KEPT_S) == 1
    assert sum(version in span for span, _ in DEFAULT_LOAD_FAILURE_POLICY) == has(version, Feature.LOAD_FAILURE_POLICY)


def test_a_version_newer_than_all_known_is_like_the_newest() -> None:
    newer = Version(0, 60)
    assert all(has(newer, feature) == has(NEWEST_VERSION, feature) for feature in Feature)
    assert kept_s(newer) == kept_s(NEWEST_VERSION)


@pytest.mark.parametrize(
    ("version", "shutdown", "policy"),
    [("0.11", False, False), ("0.13", False, True), ("0.17.1", False, True), ("0.18", True, True)],
)
def test_no_version_is_given_an_argument_that_it_does_not_know(version: str, shutdown: bool, policy: bool) -> None:
    spec = spec_of("minimal", engine={"version": version})
    arguments = worker_arguments(spec, spec.pools[0])
    assert ("--shutdown-timeout" in arguments) is shutdown
    assert ("kv_load_failure_policy" in json.loads(connector.kv_transfer_config(spec))) is policy


@pytest.mark.parametrize(("version", "where"), [("0.21", "environment"), ("0.22", "extra")])
def test_the_time_that_kv_cache_is_kept_is_said_in_the_versions_own_way(version: str, where: str) -> None:
    spec = spec_of("minimal", engine={"version": version, "kvTransfer": {"leaseDuration": "44500ms"}})
    extra = json.loads(connector.kv_transfer_config(spec)).get("kv_connector_extra_config")
    assert extra == ({"kv_lease_duration": 45} if where == "extra" else None)
    variables = connector.environment(spec)
    assert variables == ({} if where == "extra" else {"VLLM_NIXL_ABORT_REQUEST_TIMEOUT": "45"})


def test_a_host_cache_stands_beside_the_exchange() -> None:
    spec = spec_of("minimal", engine={"kvTransfer": {"hostCache": {"size": "64Gi"}}})
    config = json.loads(connector.kv_transfer_config(spec))
    assert (config["kv_connector"], config["kv_load_failure_policy"]) == ("MultiConnector", "recompute")
    exchange, tier = config["kv_connector_extra_config"]["connectors"]
    assert exchange["kv_connector"] == "NixlConnector"
    assert tier["kv_connector_extra_config"] == {"cpu_bytes_to_use": 64 * 2**30}


def test_a_build_for_cpus_moves_kv_cache_in_host_memory() -> None:
    spec = spec_of("minimal", engine={"kvTransfer": {"buffer": "Host"}})
    assert json.loads(connector.kv_transfer_config(spec))["kv_buffer_device"] == "cpu"


def test_lmcache_is_told_its_size_by_its_own_variables() -> None:
    spec = spec_of("minimal", engine={"kvTransfer": {"hostCache": {"type": "LMCache", "size": "1536Mi"}}})
    assert connector.environment(spec)["LMCACHE_MAX_LOCAL_CPU_SIZE"] == "1.5"


@pytest.mark.parametrize(
    "engine",
    [
        {"version": "0.31"},
        {"image": "registry.example/vllm:other"},
        {"kvTransfer": {"leaseDuration": "60s"}},
        {"kvTransfer": {"hostCache": {"size": "1Gi"}}},
        {"kvTransfer": {"hostCache": {"type": "LMCache", "size": "1Gi"}}},
        {"kvLoadFailurePolicy": "Fail"},
    ],
)
def test_whatever_the_handshake_may_refuse_makes_a_new_generation(engine: dict[str, object]) -> None:
    assert connector.generation(spec_of("minimal")) != connector.generation(spec_of("minimal", engine=engine))


def test_what_concerns_no_kv_cache_makes_no_new_generation() -> None:
    plain = spec_of("minimal")
    longer = spec_of("minimal", engine={"maxRequestDuration": "20m", "scheduling": "Priority"})
    assert connector.generation(plain) == connector.generation(longer)
    assert "priority" in worker_arguments(longer, longer.pools[0])


@pytest.mark.parametrize(("version", "traces"), [("0.16.2", False), ("0.17", True), ("0.32", True)])
def test_traces_are_asked_of_versions_that_can_surely_make_them(version: str, traces: bool) -> None:
    spec = spec_of("minimal", engine={"version": version}, tracing={"endpoint": "http://otel.example:4318"})
    arguments = worker_arguments(spec, spec.pools[0])
    found = [after for flag, after in itertools.pairwise(arguments) if flag == "--otlp-traces-endpoint"]
    assert found == (["http://otel.example:4318/v1/traces"] if traces else [])
