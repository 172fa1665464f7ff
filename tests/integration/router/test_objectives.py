"""InferenceObjectives of a real API server: priorities as they are written, changed, deleted; without the kind too."""

import asyncio
from collections.abc import Iterator, Mapping
from typing import Any

import pytest

from e2e.cluster.controlplane import ControlPlane
from swingpool.kube import Kube
from swingpool.picker.objectives import Objectives
from swingpool_control.resources.inference_objective import GROUP, KIND, PLURAL, VERSION
from tests.support.kubernetes import CRDS, definition, delete_namespace, make_namespace
from tests.support.waiting import until_async

NAMESPACE = "router-objectives"
OBJECTIVES = f"/apis/{GROUP}/{VERSION}/namespaces/{NAMESPACE}/{PLURAL}"
REFERENCE = {
    "type": "object",
    "required": ["name"],
    "properties": {
        "group": {"type": "string", "default": "inference.networking.k8s.io"},
        "kind": {"type": "string", "default": "InferencePool"},
        "name": {"type": "string"},
    },
}
SPEC = {
    "type": "object",
    "required": ["poolRef"],
    "properties": {"priority": {"type": "integer"}, "poolRef": REFERENCE},
}
"""What an InferenceObjective v1alpha2 says, as far as it is read."""


@pytest.fixture
def plane(control_plane: ControlPlane) -> Iterator[ControlPlane]:
    """A control plane with a namespace of this test's own, and without the kind before and after."""
    make_namespace(control_plane, NAMESPACE)
    yield control_plane
    delete_namespace(control_plane, NAMESPACE)
    name = f"{PLURAL}.{GROUP}"
    if any(one["metadata"]["name"] == name for one in control_plane.api.call("GET", CRDS)["items"]):
        control_plane.api.call("DELETE", f"{CRDS}/{name}")


def objective(name: str, *, pool: str = "chat", priority: int | None = None) -> dict[str, Any]:
    spec: dict[str, Any] = {"poolRef": {"name": pool}}
    if priority is not None:
        spec["priority"] = priority
    return {
        "apiVersion": f"{GROUP}/{VERSION}",
        "kind": KIND,
        "metadata": {"name": name, "namespace": NAMESPACE},
        "spec": spec,
    }


async def test_priorities_are_followed(plane: ControlPlane) -> None:
    known: list[Mapping[str, int]] = [{}]
    api = plane.api

    async def told(**expected: int) -> None:
        async def holds() -> bool:
            return known[-1] == expected

        await until_async(f"the priorities are {expected}; they are {known[-1]}", holds)

    async def apply(name: str, **more: Any) -> None:
        await asyncio.to_thread(api.apply, f"{OBJECTIVES}/{name}", objective(name, **more))

    async def served() -> bool:
        try:
            await asyncio.to_thread(api.call, "GET", OBJECTIVES)
        except Exception as error:
            if ": 404 " in str(error) or ": 429 " in str(error):  # not yet, or just about to be
                return False
            raise
        return True

    async with Kube.load(plane.kubeconfig) as kube:
        following = asyncio.create_task(Objectives(kube, namespace=NAMESPACE, pool="chat").follow(known.append))
        await asyncio.to_thread(
            api.call, "POST", CRDS, definition(group=GROUP, version=VERSION, kind=KIND, plural=PLURAL, spec=SPEC)
        )
        await until_async("the kind is served", served)
        await apply("paid", priority=10)
        await apply("elsewhere", pool="other", priority=99)
        await told(paid=10)
        await apply("plain")
        await told(paid=10, plain=0)
        await apply("paid", priority=-4)
        await told(paid=-4, plain=0)
        await asyncio.to_thread(api.call, "DELETE", f"{OBJECTIVES}/paid")
        await told(plain=0)
        assert not following.done()
        following.cancel()
        await asyncio.gather(following, return_exceptions=True)
