"""The real API server's word on everything that is rendered: valid to the last field, and fit for `restricted`."""

from collections.abc import Iterator
from typing import Any

import pytest

from e2e.cluster.controlplane import ControlPlane
from e2e.cluster.interface import ClusterError
from tests.support.kubernetes import delete_namespace, make_namespace, path
from tests.support.resource_specs import SPECS, child, render, spec_of

NAMESPACE = "rendered-resources"
CHECK_ONLY = "dryRun=All&fieldValidation=Strict"


@pytest.fixture(scope="module")
def plane(control_plane: ControlPlane) -> Iterator[ControlPlane]:
    """The control plane with a namespace that refuses pods that are not restricted."""
    make_namespace(control_plane, NAMESPACE, restricted=True)
    for name in ("chat-router", "chat-worker"):
        account = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": name}}
        control_plane.api.call("POST", path("ServiceAccount", NAMESPACE), account)
    yield control_plane
    delete_namespace(control_plane, NAMESPACE)


def _apply(plane: ControlPlane, manifest: dict[str, Any]) -> Any:
    here = path(manifest["kind"], NAMESPACE, manifest["metadata"]["name"])
    query = f"?fieldManager=swingpool&force=true&{CHECK_ONLY}"
    return plane.api.call("PATCH", here + query, manifest, content_type="application/apply-patch+yaml")


def _create_pod(plane: ControlPlane, template: dict[str, Any]) -> None:
    pod = {"apiVersion": "v1", "kind": "Pod", **template}
    pod["metadata"] = {"generateName": "probe-", **template["metadata"]}
    plane.api.call("POST", f"{path('Pod', NAMESPACE)}?{CHECK_ONLY}", pod)


def _lost(asked: Any, stored: Any, path: str = "") -> Iterator[str]:
    """Yield where `stored` does not hold what was asked for, word for word."""
    if isinstance(asked, dict) and isinstance(stored, dict):
        for key, value in asked.items():
            yield from _lost(value, stored.get(key), f"{path}.{key}")
    elif isinstance(asked, list) and isinstance(stored, list) and len(asked) == len(stored):
        for index, value in enumerate(asked):
            yield from _lost(value, stored[index], f"{path}[{index}]")
    elif asked != stored:
        yield f"{path}: {asked!r} became {stored!r}"


@pytest.mark.parametrize("name", SPECS)
def test_every_child_is_accepted_and_stored_as_it_was_written(plane: ControlPlane, name: str) -> None:
    for manifest in render(spec_of(name), namespace=NAMESPACE):
        stored = _apply(plane, manifest)
        if manifest["metadata"]["name"] == "chat-swing" and name == "full":
            continue  # holds a user's own quantities, which the server writes anew
        assert list(_lost(manifest, stored)) == [], manifest["metadata"]["name"]


@pytest.mark.parametrize("name", SPECS)
def test_pods_of_every_deployment_pass_the_restricted_standard(plane: ControlPlane, name: str) -> None:
    for manifest in render(spec_of(name), namespace=NAMESPACE):
        if manifest["kind"] == "Deployment":
            _create_pod(plane, manifest["spec"]["template"])


def test_the_server_would_tell_an_unknown_field(plane: ControlPlane) -> None:
    deployment = child(render(spec_of("minimal"), namespace=NAMESPACE), "Deployment", "chat-decode")
    deployment["spec"]["template"]["spec"]["containers"][0]["readynessProbe"] = {}
    with pytest.raises(ClusterError, match="readynessProbe"):
        _apply(plane, deployment)


def test_the_server_would_refuse_a_pod_that_is_not_restricted(plane: ControlPlane) -> None:
    spec = spec_of("minimal", engine={"modelCache": {"hostPath": "/mnt/weights"}})
    deployment = child(render(spec, namespace=NAMESPACE), "Deployment", "chat-decode")
    _apply(plane, deployment)
    with pytest.raises(ClusterError, match=r"violates PodSecurity.*hostPath"):
        _create_pod(plane, deployment["spec"]["template"])
