"""The API server of a control plane, as tests handle it: namespaces, paths, kubectl."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from e2e.cluster.controlplane import ControlPlane
from e2e.cluster.tools import Kubectl
from swingpool.kube import kinds

_KINDS = {kind.kind: kind for kind in kinds.ALL}


def path(kind: str, namespace: str, name: str = "") -> str:
    """Return the path of a collection, or of an object in it."""
    found = _KINDS[kind]
    root = "/apis" if found.group else "/api"
    collection = f"{root}/{found.api_version}/namespaces/{namespace}/{found.plural}"
    return f"{collection}/{name}" if name else collection


def make_namespace(plane: ControlPlane, name: str, *, restricted: bool = False) -> None:
    """Make a namespace, which refuses pods that are not restricted if asked."""
    labels = {"pod-security.kubernetes.io/enforce": "restricted"} if restricted else {}
    namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": labels}}
    plane.api.apply(f"/api/v1/namespaces/{name}", namespace)


@contextmanager
def pods_namespace(plane: ControlPlane, name: str) -> Iterator[None]:
    """Make a namespace in which pods can be made while no controller runs, and delete it at the end."""
    make_namespace(plane, name)
    account = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "default", "namespace": name}}
    plane.api.apply(path("ServiceAccount", name, "default"), account)
    try:
        yield
    finally:
        delete_namespace(plane, name)


def delete_namespace(plane: ControlPlane, name: str) -> None:
    """Delete a namespace; what is in it goes in the background."""
    plane.api.call("DELETE", f"/api/v1/namespaces/{name}")


def kubectl(plane: ControlPlane, *arguments: str, stdin: str | None = None) -> str:
    """Run kubectl as administrator and return what it printed. Raises ClusterError with its words if it fails."""
    return Kubectl(plane.kubeconfig).run(*arguments, stdin=stdin).stdout


def ready_status(address: str, *, ready: bool = True) -> dict[str, Any]:
    """Return the status that a kubelet would give a pod that runs."""
    conditions = [{"type": "PodScheduled", "status": "True"}, {"type": "Ready", "status": "True" if ready else "False"}]
    return {"phase": "Running", "podIP": address, "podIPs": [{"ip": address}], "conditions": conditions}


CRDS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"


def definition(*, group: str, version: str, kind: str, plural: str, spec: dict[str, Any]) -> dict[str, Any]:
    """Return a CRD that stands for one of another project's, with as much of its schema as is read or written here.

    Args:
        group: its API group.
        version: the one version.
        kind: what its objects are called.
        plural: and in paths.
        spec: schema of their specs.
    """
    schema = {"type": "object", "required": ["spec"], "properties": {"spec": spec}}
    served = {"name": version, "served": True, "storage": True, "schema": {"openAPIV3Schema": schema}}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {
            "name": f"{plural}.{group}",
            "annotations": {"api-approved.kubernetes.io": "unapproved, a test's own"},
        },
        "spec": {
            "group": group,
            "scope": "Namespaced",
            "names": {"kind": kind, "plural": plural, "singular": kind.lower()},
            "versions": [served],
        },
    }
