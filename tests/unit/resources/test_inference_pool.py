"""The InferencePool: asked for, it names our picker and the workers; else there is no trace of it."""

import pytest

from swingpool_control import names
from tests.support.resource_specs import SPECS, child, container_of, pod_of, render, spec_of

ASKED = {"builtIn": {"inferencePool": {"certificate": {"secretName": "picker-certificate"}}}}


@pytest.mark.parametrize("name", SPECS)
def test_nobody_gets_one_who_does_not_ask(name: str) -> None:
    found = render(spec_of(name))
    assert not [item for item in found if item["kind"] == "InferencePool" or item["metadata"]["name"] == "chat-picker"]


def test_it_names_the_picker_and_the_workers() -> None:
    found = render(spec_of("minimal", router=ASKED))
    pool, service = child(found, "InferencePool", "chat"), child(found, "Service", "chat-picker")
    assert pool["apiVersion"] == "inference.networking.k8s.io/v1"
    assert pool["spec"]["targetPorts"] == [{"number": names.PORT_WORKER}]
    worker = child(found, "Deployment", "chat-decode")["spec"]["template"]["metadata"]["labels"]
    assert pool["spec"]["selector"]["matchLabels"].items() <= worker.items()
    router = child(found, "Deployment", "chat-router")["spec"]["template"]["metadata"]["labels"]
    assert not pool["spec"]["selector"]["matchLabels"].items() <= router.items()
    assert service["spec"]["selector"].items() <= router.items()
    asked = pool["spec"]["endpointPickerRef"]
    assert (asked["name"], asked["port"]["number"]) == ("chat-picker", service["spec"]["ports"][0]["port"])


def test_the_picker_may_read_priorities_where_there_is_a_pool() -> None:
    found = render(spec_of("minimal", router=ASKED))
    rules = child(found, "Role", "chat-router")["rules"]
    assert {one for rule in rules for one in rule["resources"]} == {"pods", "inferenceobjectives"}
    assert {verb for rule in rules for verb in rule["verbs"]} == {"get", "list", "watch"}
    arguments = container_of(pod_of(found, "chat-router"), "picker")["args"]
    assert arguments[arguments.index("--inference-pool") + 1] == "chat"


def test_the_picker_listens_with_the_mounted_certificate() -> None:
    pod = pod_of(render(spec_of("minimal", router=ASKED)), "chat-router")
    picker = container_of(pod, "picker")
    ports = {port["name"]: port["containerPort"] for port in picker["ports"]}
    assert picker["args"][picker["args"].index("--gateway-port") + 1] == str(ports["gateway"])
    directory = picker["args"][picker["args"].index("--gateway-certificate") + 1]
    [volume] = [mount["name"] for mount in picker["volumeMounts"] if mount["mountPath"] == directory]
    [secret] = [one["secret"]["secretName"] for one in pod["volumes"] if one["name"] == volume]
    assert secret == "picker-certificate"
