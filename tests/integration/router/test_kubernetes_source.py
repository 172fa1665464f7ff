"""Workers from the real API server: labels, readiness, addresses and deletions as they come, and through an outage."""

import asyncio
from collections.abc import Iterator, Sequence
from typing import Any

import pytest

from e2e.cluster.controlplane import ControlPlane
from swingpool.kube import Kube
from swingpool.picker.members import Member
from swingpool.picker.source_kubernetes import KubernetesSource, member_of
from swingpool_control import names
from tests.support.kubernetes import path, pods_namespace, ready_status
from tests.support.waiting import until_async

NAMESPACE = "router-source"
PODS = path("Pod", NAMESPACE)


@pytest.fixture
def plane(control_plane: ControlPlane) -> Iterator[ControlPlane]:
    """A control plane with a namespace of this test's own."""
    with pods_namespace(control_plane, NAMESPACE):
        yield control_plane


def pod(name: str, *, role: str, cluster: str = "chat") -> dict[str, Any]:
    labels = {names.LABEL_CLUSTER: cluster, names.LABEL_COMPONENT: names.COMPONENT_WORKER, names.LABEL_ROLE: role}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": NAMESPACE, "labels": labels},
        "spec": {"containers": [{"name": "engine", "image": "none"}], "nodeName": "nowhere"},
    }


def status(name: str, *, address: str, ready: bool) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": NAMESPACE},
        "status": ready_status(address, ready=ready),
    }


async def test_pods_are_followed(plane: ControlPlane) -> None:
    known: list[Sequence[Member]] = []
    api = plane.api

    async def told(*expected: tuple[str, str, bool, bool]) -> None:
        async def holds() -> bool:
            return bool(known) and {(m.address, m.role, m.ready, m.deleting) for m in known[-1]} == set(expected)

        await until_async(f"the members are {expected}; they are {known[-1:]}", holds)

    await asyncio.to_thread(api.apply, f"{PODS}/other", pod("other", role="decode", cluster="another"))
    async with Kube.load(plane.kubeconfig) as kube:
        source = KubernetesSource(kube, namespace=NAMESPACE, cluster="chat")
        following = asyncio.create_task(source.follow(known.append))
        await told()
        await asyncio.to_thread(api.apply, f"{PODS}/a", pod("a", role="decode"))
        await told()
        await asyncio.to_thread(api.apply, f"{PODS}/a/status", status("a", address="10.1.0.1", ready=False))
        await told(("10.1.0.1:8000", "decode", False, False))
        await asyncio.to_thread(api.apply, f"{PODS}/a/status", status("a", address="10.1.0.1", ready=True))
        await told(("10.1.0.1:8000", "decode", True, False))
        await asyncio.to_thread(api.apply, f"{PODS}/a", pod("a", role="prefill"))
        await told(("10.1.0.1:8000", "prefill", True, False))
        before = len(known)
        plane.restart_api_server()  # by this thread, with which the server would end
        assert all(members == known[before - 1] for members in known[before:]), "an outage changes nothing"
        await asyncio.to_thread(api.apply, f"{PODS}/a", pod("a", role="decode"))
        await told(("10.1.0.1:8000", "decode", True, False))
        await asyncio.to_thread(api.call, "DELETE", f"{PODS}/a")
        await told(("10.1.0.1:8000", "decode", True, True))
        await asyncio.to_thread(api.call, "DELETE", f"{PODS}/a?gracePeriodSeconds=0")
        await told()
        following.cancel()
        await asyncio.gather(following, return_exceptions=True)


@pytest.mark.parametrize(
    ("raw", "expected"),
    [
        ({}, None),
        ({"status": {"podIP": "10.0.0.1", "phase": "Failed"}}, None),
        ({"status": {"podIP": "10.0.0.1"}}, ("10.0.0.1:8000", "", False)),
        (
            {"status": {"podIP": "fd00::1", "conditions": [{"type": "Ready", "status": "True"}]}},
            ("[fd00::1]:8000", "", True),
        ),
    ],
)
def test_pods_in_every_state(raw: dict[str, Any], expected: tuple[str, str, bool] | None) -> None:
    member = member_of(raw)
    assert (member and (member.address, member.role, member.ready)) == expected
