"""Workers that tell what their KV caches hold, and a router that follows them: both or none."""

import json
from typing import Any

import pytest

from swingpool_control import names
from tests.support.resource_specs import child, container_of, pod_of, render, spec_of


def _router(**built_in: Any) -> dict[str, Any]:
    return {"builtIn": built_in}


def _flag(container: dict[str, Any], flag: str) -> str | None:
    arguments: list[str] = container["args"]
    return arguments[arguments.index(flag) + 1] if flag in arguments else None


def test_nothing_is_told_unless_asked_for() -> None:
    found = render(spec_of("minimal"))
    worker = container_of(pod_of(found, "chat-prefill"), "worker")
    picker = container_of(pod_of(found, "chat-router"), "picker")
    assert "--kv-events-config" not in worker["args"]
    assert "--kv-events" not in picker["args"]
    assert picker["resources"]["limits"] == {"memory": "1Gi"}


@pytest.mark.parametrize("kind", ["minimal", "simulated"])
def test_workers_publish_and_the_picker_follows(kind: str) -> None:
    found = render(spec_of(kind, router=_router(kvEvents={"tokenizeTimeout": "250ms"})))
    worker = container_of(pod_of(found, "chat-prefill"), "worker")
    config = _flag(worker, "--kv-events-config")
    assert config is not None
    assert json.loads(config) == {
        "enable_kv_cache_events": True,
        "publisher": "zmq",
        "endpoint": "tcp://*:5700",
        "replay_endpoint": "tcp://*:5701",
    }
    ports = {port["name"]: port["containerPort"] for port in worker["ports"]}
    assert (ports["kv-events"], ports["kv-replay"]) == (5700, 5701)
    template = child(found, "Deployment", "chat-prefill")["spec"]["template"]
    assert template["metadata"]["labels"][names.LABEL_KV_EVENTS] == "true"
    picker = container_of(pod_of(found, "chat-router"), "picker")
    assert "--kv-events" in picker["args"]
    assert _flag(picker, "--tokenize-timeout") == "0.25"
    assert picker["resources"]["limits"] == {"memory": "4Gi"}


def test_ranks_with_caches_of_their_own_do_not_publish() -> None:
    found = render(spec_of("full", router=_router(kvEvents={})))
    published = {
        pool: "--kv-events-config" in container_of(pod_of(found, f"chat-{pool}"), "worker")["args"]
        for pool in ("prefill", "decode", "swing")
    }
    assert published == {"prefill": False, "decode": True, "swing": True}, "the first has two data parallel ranks"


def test_without_prefix_caching_there_is_nothing_to_tell() -> None:
    found = render(spec_of("minimal", router=_router(kvEvents={}), engine={"prefixCaching": False}))
    assert "--kv-events-config" not in container_of(pod_of(found, "chat-prefill"), "worker")["args"]


def test_another_router_has_its_own_ways() -> None:
    router = {"type": "External", "external": {}, "builtIn": {"kvEvents": {}}}
    found = render(spec_of("minimal", router=router))
    assert "--kv-events-config" not in container_of(pod_of(found, "chat-prefill"), "worker")["args"]


def test_the_generation_stays_for_kv_cache_is_exchanged_as_before() -> None:
    def generation(**built_in: Any) -> str:
        template = child(render(spec_of("minimal", router=_router(**built_in))), "Deployment", "chat-prefill")["spec"]
        return str(template["template"]["metadata"]["labels"][names.LABEL_GENERATION])

    assert generation() == generation(kvEvents={})
