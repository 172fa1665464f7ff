"""Router pods of a real API server: each picker finds its part of the workers by them, anew as they change."""

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest

from e2e.cluster.controlplane import ControlPlane
from swingpool.kube import Kube
from swingpool.picker.peers import Peers, part_of
from swingpool_control import names
from swingpool_control.placement.parts import Part
from tests.support.kubernetes import path, pods_namespace, ready_status
from tests.support.waiting import until_async

NAMESPACE = "router-peers"
PODS = path("Pod", NAMESPACE)


@pytest.fixture
def plane(control_plane: ControlPlane) -> Iterator[ControlPlane]:
    """A control plane with a namespace of this test's own."""
    with pods_namespace(control_plane, NAMESPACE):
        yield control_plane


def pod(name: str, component: str) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": name,
            "namespace": NAMESPACE,
            "labels": {names.LABEL_CLUSTER: "chat", names.LABEL_COMPONENT: component},
        },
        "spec": {"containers": [{"name": "envoy", "image": "none"}], "nodeName": "nowhere"},
    }


def status(name: str, *, ready: bool) -> dict[str, Any]:
    head = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "namespace": NAMESPACE}}
    return head | {"status": ready_status("10.1.0.1", ready=ready)}


async def test_parts_follow_the_router_pods(plane: ControlPlane) -> None:
    found: list[Part] = []

    async def minds(number: int, of: int) -> None:
        async def holds() -> bool:
            return bool(found) and found[-1] == Part(number=number, of=of)

        await until_async(f"part {number} of {of}; it is {found[-1:]}", holds)

    async def apply(name: str, component: str = names.COMPONENT_ROUTER, *, ready: bool = True) -> None:
        await asyncio.to_thread(plane.api.apply, f"{PODS}/{name}", pod(name, component))
        await asyncio.to_thread(plane.api.apply, f"{PODS}/{name}/status", status(name, ready=ready))

    await apply("chat-router-a")
    await apply("chat-router-b")
    await apply("chat-a-worker", names.COMPONENT_WORKER)
    async with Kube.load(plane.kubeconfig) as kube:
        peers = Peers(kube, namespace=NAMESPACE, cluster="chat", own="chat-router-b")
        following = asyncio.create_task(peers.follow(found.append))
        await minds(1, 2)
        await apply("chat-router-c")
        await minds(1, 3)
        await apply("chat-router-a", ready=False)
        await minds(0, 2)
        await asyncio.to_thread(plane.api.call, "DELETE", f"{PODS}/chat-router-c?gracePeriodSeconds=0")
        await minds(0, 1)
        following.cancel()
        await asyncio.gather(following, return_exceptions=True)


def test_who_is_not_ready_yet_counts_itself() -> None:
    raw = {"metadata": {"name": "a"}, "status": {"conditions": [{"type": "Ready", "status": "True"}]}}
    going = {"metadata": {"name": "b", "deletionTimestamp": "2026-01-01T00:00:00Z"}, "status": raw["status"]}
    assert part_of([raw, going], own="c") == Part(number=1, of=2)
    assert part_of([], own="c") == Part()
