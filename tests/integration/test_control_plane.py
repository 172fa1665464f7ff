"""The control plane that the other integration tests stand on: it runs, it checks, it tells who wrote what."""

import json

import pytest

from e2e.cluster.binaries import kubernetes_version
from e2e.cluster.controlplane import ControlPlane
from e2e.cluster.interface import ClusterError
from tests.support.kubernetes import delete_namespace, kubectl, make_namespace


def test_answers_kubectl_with_the_pinned_version(control_plane: ControlPlane) -> None:
    version = json.loads(kubectl(control_plane, "version", "-o", "json"))
    assert version["serverVersion"]["gitVersion"] == kubernetes_version()


def test_refuses_a_wrong_token(control_plane: ControlPlane) -> None:
    server = (f"--server={control_plane.server}", f"--certificate-authority={control_plane.ca_file}")
    with pytest.raises(ClusterError, match="must be logged in"):
        kubectl(control_plane, "get", "pods", "--token=wrong", "--kubeconfig=/dev/null", *server)


def test_controllers_run(control_plane: ControlPlane) -> None:
    make_namespace(control_plane, "controllers-run")
    try:
        kubectl(control_plane, "-n", "controllers-run", "create", "deployment", "x", "--image=x", "--replicas=2")
        kubectl(control_plane, "-n", "controllers-run", "wait", "--for=create", "replicaset", "-l", "app=x")
    finally:
        delete_namespace(control_plane, "controllers-run")


def test_an_outage_is_told_loses_nothing_and_writes_are_audited_with_their_field_manager(
    control_plane: ControlPlane,
) -> None:
    path = "/api/v1/namespaces/default/configmaps/audited"
    manifest = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "audited"}, "data": {"a": "b"}}
    control_plane.api.apply(path, manifest)
    control_plane.stop_api_server()
    try:
        assert not control_plane.running
        with pytest.raises(ClusterError, match="refused"):
            control_plane.api.call("GET", "/version")
    finally:
        control_plane.start_api_server()
    assert control_plane.running
    assert control_plane.api.call("GET", path)["data"] == {"a": "b"}
    control_plane.api.call("DELETE", path)
    events = [event for event in control_plane.audit_events() if event.name == "audited"]
    assert [(event.verb, event.field_manager, event.user) for event in events] == [
        ("patch", "cluster-provider", "admin"),
        ("delete", None, "admin"),
    ]
