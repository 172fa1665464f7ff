"""An InferencePool on a real API server: without its CRD it is told, with it written, and gone when nobody asks."""

from collections.abc import Iterator
from typing import Any

import pytest

from e2e.cluster.controlplane import ControlPlane
from tests.support.kubernetes import CRDS, definition
from tests.support.manager_stand import ManagerProcess, Place
from tests.support.waiting import until

GROUP = "inference.networking.k8s.io"
NAME = f"inferencepools.{GROUP}"
NUMBER = {"type": "integer", "minimum": 1, "maximum": 65535}
PORT = {"type": "object", "required": ["number"], "properties": {"number": NUMBER}}
SPEC = {
    "type": "object",
    "required": ["endpointPickerRef", "selector", "targetPorts"],
    "properties": {
        "endpointPickerRef": {
            "type": "object",
            "required": ["name"],
            "properties": {
                "group": {"type": "string", "default": ""},
                "kind": {"type": "string", "default": "Service"},
                "name": {"type": "string"},
                "port": PORT,
                "failureMode": {"type": "string", "enum": ["FailOpen", "FailClose"], "default": "FailClose"},
            },
        },
        "selector": {
            "type": "object",
            "required": ["matchLabels"],
            "properties": {"matchLabels": {"type": "object", "additionalProperties": {"type": "string"}}},
        },
        "targetPorts": {"type": "array", "minItems": 1, "maxItems": 1, "items": PORT},
    },
}
"""What the spec of an InferencePool v1 may hold, as far as we write it."""


@pytest.fixture
def plane_without(control_plane: ControlPlane) -> Iterator[ControlPlane]:
    """The control plane, which has no InferencePools before and after."""
    yield control_plane
    if any(one["metadata"]["name"] == NAME for one in control_plane.api.call("GET", CRDS)["items"]):
        control_plane.api.call("DELETE", f"{CRDS}/{NAME}")


def test_it_comes_with_its_crd_and_goes_with_the_wish(
    here: Place, running: ManagerProcess, clusters: Any, plane_without: ControlPlane
) -> None:
    del running
    asked = {"builtIn": {"inferencePool": {"certificate": {"secretName": "picker-certificate"}}}}
    cluster = clusters("pooled", router=asked)
    told = until("it is told that there is no such API", lambda: _told(here, "Degraded", "inferencePool"))
    assert told["status"] == "True"
    assert "install the CRDs" in told["message"]
    assert here.get("Deployment", "pooled-router"), "the other children are there"

    plane_without.api.call(
        "POST", CRDS, definition(group=GROUP, version="v1", kind="InferencePool", plural="inferencepools", spec=SPEC)
    )
    here.merge("InferenceCluster", "pooled", {"spec": {"router": {"builtIn": {"replicas": 2}}}})
    pool = until("the pool is written", lambda: _pool(here))
    assert pool["spec"]["endpointPickerRef"]["name"] == "pooled-picker"
    assert pool["metadata"]["ownerReferences"][0]["uid"] == cluster["metadata"]["uid"]
    until("nothing is wrong any more", lambda: here.condition("pooled", "Degraded").get("status") == "False")

    here.merge("InferenceCluster", "pooled", {"spec": {"router": {"builtIn": {"inferencePool": None}}}})
    until("the pool is gone", lambda: _pool(here) is None)


def _told(here: Place, condition: str, word: str) -> dict[str, Any] | None:
    found = here.condition("pooled", condition)
    return found if word in found.get("message", "") else None


def _pool(here: Place) -> dict[str, Any] | None:
    try:
        return here.get("InferencePool", "pooled")
    except Exception as error:
        if "404" in str(error):
            return None
        raise
