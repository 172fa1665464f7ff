"""Certificates, API keys and tenants' limits in the router's pod: mounted, and in no ConfigMap."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from swingpool_control import names
from swingpool_control.resources.envoy import bootstrap
from swingpool_control.resources.envoy_settings import EnvoySettings, TenantLimit
from tests.support.resource_specs import child, container_of, pod_of, render, spec_of


def test_secrets_are_mounted_where_they_are_read() -> None:
    pod = pod_of(render(spec_of("full")), "chat-router")
    secrets = {volume["name"]: volume["secret"]["secretName"] for volume in pod["volumes"] if "secret" in volume}
    assert secrets == {"tls": "chat-certificate", "api-keys": "chat-keys"}
    mounted = {
        container: {mount["name"] for mount in container_of(pod, container)["volumeMounts"]} & secrets.keys()
        for container in ("first-endpoints", "envoy", "picker")
    }
    assert mounted == {"first-endpoints": {"api-keys"}, "envoy": {"tls"}, "picker": {"api-keys"}}


def test_https_takes_the_place_of_http() -> None:
    found = render(spec_of("full"))
    [port] = child(found, "Service", "chat-router")["spec"]["ports"]
    assert (port["name"], port["port"]) == ("https", 443)
    envoy = container_of(pod_of(found, "chat-router"), "envoy")
    assert {envoy[probe]["httpGet"]["scheme"] for probe in ("readinessProbe", "livenessProbe")} == {"HTTPS"}
    [port] = child(render(spec_of("minimal")), "Service", "chat-router")["spec"]["ports"]
    assert (port["name"], port["port"]) == ("http", 80)


def test_the_limit_is_shared_among_the_routers_pods() -> None:
    config = json.loads(child(render(spec_of("full")), "ConfigMap", "chat-router")["data"]["envoy.json"])
    bucket = _limit(config)["descriptors"][0]["token_bucket"]
    assert _rate(bucket) == pytest.approx(6 / 3)
    assert bucket["max_tokens"] == 30 / 3


@given(rate=st.floats(0.001, 100_000), burst=st.integers(1, 1_000_000))
def test_envoy_fills_by_whole_requests_at_the_rate(rate: float, burst: int) -> None:
    config = bootstrap(EnvoySettings(tenant_limit=TenantLimit(requests_per_s=rate, burst=burst)))
    bucket = _limit(config)["token_bucket"]
    assert _rate(bucket) == pytest.approx(rate, rel=1e-4)
    assert float(bucket["fill_interval"].removesuffix("s")) >= 0.05
    assert bucket["max_tokens"] >= burst


def test_without_any_of_it_nothing_stands_between() -> None:
    config = bootstrap()
    filters = [one["name"] for one in _manager(config)["http_filters"]]
    asked = ["envoy.filters.http.header_to_metadata", "envoy.filters.http.ext_proc"]
    assert filters[:3] == ["envoy.filters.http.health_check", *asked]
    assert filters[-1] == "envoy.filters.http.router"
    assert not [name for name in filters if "api_key" in name or "ratelimit" in name]
    assert "transport_socket" not in config["static_resources"]["listeners"][0]["filter_chains"][0]


def _manager(config: Any) -> Any:
    return config["static_resources"]["listeners"][0]["filter_chains"][0]["filters"][0]["typed_config"]


def _limit(config: Any) -> Any:
    filters = _manager(config)["http_filters"]
    return next(one for one in filters if one["name"] == "envoy.filters.http.local_ratelimit")["typed_config"]


def _rate(bucket: Any) -> float:
    return float(bucket["tokens_per_fill"]) / float(bucket["fill_interval"].removesuffix("s"))


ASKED = {"builtIn": {"authorizer": {"endpoint": "http://authorizer.security:8080/v1/check/", "timeout": "250ms"}}}


def test_an_authorizer_stands_before_all_that_decides() -> None:
    config = json.loads(
        child(render(spec_of("minimal", router=ASKED)), "ConfigMap", "chat-router")["data"]["envoy.json"]
    )
    names_of = [one["name"] for one in _manager(config)["http_filters"]]
    first = ["envoy.filters.http.health_check", "envoy.filters.http.ext_authz", "swingpool.credentials"]
    assert names_of[:5] == [*first, "envoy.filters.http.header_to_metadata", "envoy.filters.http.ext_proc"]
    asked = _manager(config)["http_filters"][1]["typed_config"]
    assert asked["failure_mode_allow"] is False
    assert "with_request_body" not in asked
    assert asked["http_service"]["path_prefix"] == "/v1/check"
    assert asked["http_service"]["server_uri"]["timeout"] == "0.25s"
    [cluster] = [one for one in config["static_resources"]["clusters"] if one["name"] == "authorizer"]
    [endpoint] = cluster["load_assignment"]["endpoints"][0]["lb_endpoints"]
    place = endpoint["endpoint"]["address"]["socket_address"]
    assert place == {"address": "authorizer.security", "port_value": 8080}
    [strip] = _manager(config)["early_header_mutation_extensions"]
    assert {"remove": names.HEADER_TENANT} in strip["typed_config"]["mutations"]


def _authorizer_cluster(authorizer: dict[str, Any]) -> tuple[Any, Any]:
    """Return the authorizer's cluster, and what of the router's ConfigMap names its certificates."""
    found = render(spec_of("minimal", router={"builtIn": {"authorizer": authorizer}}))
    data = child(found, "ConfigMap", "chat-router")["data"]
    config = json.loads(data["envoy.json"])
    [cluster] = [one for one in config["static_resources"]["clusters"] if one["name"] == "authorizer"]
    return cluster, {key: text for key, text in data.items() if key.startswith("authorizer-")}


def test_an_authorizer_over_tls_is_a_public_ca_s_for_its_host_unless_more_is_said() -> None:
    cluster, files = _authorizer_cluster({"endpoint": "https://authorizer.example.com/check"})
    context = cluster["transport_socket"]["typed_config"]
    checked = context["common_tls_context"]["validation_context"]
    assert context["sni"] == "authorizer.example.com"
    assert checked["trusted_ca"]["filename"] == "/etc/ssl/certs/ca-certificates.crt"
    [name] = checked["match_typed_subject_alt_names"]
    assert (name["san_type"], name["matcher"]) == ("DNS", {"exact": "authorizer.example.com"})
    assert cluster["load_assignment"]["endpoints"][0]["lb_endpoints"][0]["endpoint"]["address"]["socket_address"] == {
        "address": "authorizer.example.com",
        "port_value": 443,
    }
    assert files == {}


def test_an_address_is_no_name_to_ask_for() -> None:
    cluster, _ = _authorizer_cluster({"endpoint": "grpcs://10.0.0.7:9191"})
    context = cluster["transport_socket"]["typed_config"]
    assert "sni" not in context
    [name] = context["common_tls_context"]["validation_context"]["match_typed_subject_alt_names"]
    assert (name["san_type"], name["matcher"]) == ("IP_ADDRESS", {"exact": "10.0.0.7"})
    assert context["common_tls_context"]["alpn_protocols"] == ["h2"]


def test_the_authorizers_ca_and_the_routers_certificate_are_mounted_where_envoy_reads_them() -> None:
    tls = {"caSecretName": "their-ca", "clientSecretName": "our-own", "serverName": "authorizer.security"}
    authorizer = {"endpoint": "grpcs://10.0.0.7:9191", "tls": tls}
    cluster, files = _authorizer_cluster(authorizer)
    pod = pod_of(render(spec_of("minimal", router={"builtIn": {"authorizer": authorizer}})), "chat-router")
    secrets = {volume["name"]: volume["secret"]["secretName"] for volume in pod["volumes"] if "secret" in volume}
    assert secrets == {"authorizer-ca": "their-ca", "authorizer-client": "our-own"}
    envoy = container_of(pod, "envoy")
    mounted = {mount["name"]: mount["mountPath"] for mount in envoy["volumeMounts"]}
    assert f"{mounted['authorizer-ca']}/ca.crt" in files["authorizer-ca.json"]
    assert f"{mounted['authorizer-client']}/tls.key" in files["authorizer-client.json"]
    context = cluster["transport_socket"]["typed_config"]
    assert context["sni"] == "authorizer.security"
    common = context["common_tls_context"]
    trusted = common["combined_validation_context"]["validation_context_sds_secret_config"]
    [shown] = common["tls_certificate_sds_secret_configs"]
    for source, key in ((trusted, "authorizer-ca.json"), (shown, "authorizer-client.json")):
        path = f"{mounted['config']}/{key}"
        assert source["sds_config"]["path_config_source"]["path"] == path
        assert source["name"] in files[key], "Envoy finds it there by name"
    picker = container_of(pod, "picker")
    assert "--authorizer" in picker["args"]
    assert not {"authorizer-ca", "authorizer-client"} & {mount["name"] for mount in picker["volumeMounts"]}
