"""TLS between router and workers: mounted on both sides, told to both, and nowhere a trace of it if nobody asks."""

import json
from typing import Any

import pytest

from swingpool_control import names
from tests.support.resource_specs import SPECS, child, container_of, pod_of, render, spec_of

TLS = {"secretName": "workers", "clientSecretName": "router", "serverName": "worker.of-chat"}
ASKED = {"builtIn": {"workerTls": TLS}}


def secrets(pod: Any) -> dict[str, str]:
    return {volume["name"]: volume["secret"]["secretName"] for volume in pod["volumes"] if "secret" in volume}


def mounted(container: Any) -> dict[str, str]:
    return {mount["name"]: mount["mountPath"] for mount in container["volumeMounts"]}


@pytest.mark.parametrize("name", SPECS)
def test_nobody_speaks_tls_who_does_not_ask(name: str) -> None:
    found = json.dumps(render(spec_of(name)))
    assert "--ssl" not in found
    assert names.LABEL_TLS not in found
    assert "transport_socket_matches" not in found
    assert "worker-client" not in found


@pytest.mark.parametrize("name", ["minimal", "simulated"])
def test_workers_show_their_certificate_and_want_one(name: str) -> None:
    found = render(spec_of(name, router=ASKED))
    pod = pod_of(found, "chat-decode")
    assert secrets(pod) == {"worker-tls": "workers"}
    worker = container_of(pod, "worker")
    directory = mounted(worker)["worker-tls"]
    arguments = worker["args"]
    assert arguments[arguments.index("--ssl-certfile") + 1] == f"{directory}/tls.crt"
    assert arguments[arguments.index("--ssl-ca-certs") + 1] == f"{directory}/ca.crt"
    assert arguments[arguments.index("--ssl-cert-reqs") + 1] == "2"
    template = child(found, "Deployment", "chat-decode")["spec"]["template"]
    assert names.LABEL_TLS in template["metadata"]["labels"]


@pytest.mark.parametrize("name", ["minimal", "simulated"])
def test_probes_need_no_certificate_or_have_one(name: str) -> None:
    worker = container_of(pod_of(render(spec_of(name, router=ASKED)), "chat-decode"), "worker")
    for probe in ("startupProbe", "readinessProbe", "livenessProbe"):
        assert "httpGet" not in worker[probe]
        if "exec" in worker[probe]:
            url, own = worker[probe]["exec"]["command"][4:6]
            assert url.startswith("https://")
            assert own == mounted(worker)["worker-tls"]
    assert "tcpSocket" in worker["readinessProbe"]


def test_envoy_and_picker_have_the_routers_certificate() -> None:
    found = render(spec_of("minimal", router=ASKED))
    pod = pod_of(found, "chat-router")
    assert secrets(pod) == {"worker-client": "router"}
    envoy, picker = container_of(pod, "envoy"), container_of(pod, "picker")
    directory = mounted(envoy)["worker-client"]
    assert mounted(picker)["worker-client"] == directory
    assert picker["args"][picker["args"].index("--worker-tls") + 1] == directory
    assert picker["args"][picker["args"].index("--worker-tls-name") + 1] == "worker.of-chat"
    data = child(found, "ConfigMap", "chat-router")["data"]
    [cluster] = [
        one for one in json.loads(data["envoy.json"])["static_resources"]["clusters"] if one["name"] == "workers"
    ]
    [match] = cluster["transport_socket_matches"]
    context = match["transport_socket"]["typed_config"]
    assert context["sni"] == "worker.of-chat"
    assert f"{directory}/tls.key" in data["worker-client.json"]
    assert f"{directory}/ca.crt" in data["worker-ca.json"]
    assert "BEGIN" not in json.dumps(data), "no certificate and no key stands in a ConfigMap"


def test_an_external_router_has_its_own_ways() -> None:
    router = {"type": "External", "external": {}, "builtIn": {"workerTls": TLS}}
    assert "--ssl" not in json.dumps(render(spec_of("minimal", router=router)))
