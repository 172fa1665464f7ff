"""The chart in a real API server: accepted to the last field, rights that suffice, a CRD that is upgraded and kept."""

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from e2e.cluster.controlplane import ControlPlane
from e2e.cluster.interface import ClusterError
from tests.integration.test_chart import ONE, TWO, VALUES
from tests.support.helm import CHART, NAMESPACE, RELEASE, Helm
from tests.support.inference_clusters import changed, smallest
from tests.support.kubernetes import delete_namespace, kubectl, make_namespace
from tests.support.resource_specs import render, spec_of
from tests.support.waiting import until

OTHER = "chart-other"
NAMESPACES = (NAMESPACE, ONE, TWO, OTHER)
DEFINITION = "inferenceclusters.swingpool.dev"
MANAGER = f"system:serviceaccount:{NAMESPACE}:swingpool"
CLUSTER = changed(smallest(), metadata__name="kept", metadata__namespace=ONE)


@pytest.fixture(scope="module")
def plane(control_plane: ControlPlane) -> Iterator[ControlPlane]:
    """The control plane with namespaces that refuse pods which are not restricted."""
    for name in NAMESPACES:
        make_namespace(control_plane, name, restricted=True)
    yield control_plane
    for name in NAMESPACES:
        delete_namespace(control_plane, name)


@pytest.fixture(scope="module")
def bound(plane: ControlPlane) -> Iterator[Helm]:
    """Helm on the control plane. Each test upgrades the one release to what it needs; the definition stays."""
    found = Helm(plane.kubeconfig)
    yield found
    found.run("uninstall", RELEASE, "--namespace", NAMESPACE, "--ignore-not-found")


def _install(helm: Helm, *values: str, chart: Path = CHART) -> str:
    # Other tests applied the definition to the same control plane; the release takes it over.
    taking = ("--take-ownership", "--force-conflicts")
    return helm.run("upgrade", "--install", RELEASE, str(chart), "--namespace", NAMESPACE, *taking, *values).stdout


def _apply_as_manager(plane: ControlPlane, namespace: str) -> None:
    """Apply a cluster's children with the manager's rights, for good: a binding needs its role to exist."""
    manifests = render(spec_of("minimal"), namespace=namespace)
    for manifest in manifests:
        del manifest["metadata"]["ownerReferences"]  # the owner does not exist, and garbage collection is quick
    text = yaml.safe_dump_all(manifests)
    kubectl(plane, "apply", f"--as={MANAGER}", "--server-side", "--force-conflicts", "-f", "-", stdin=text)


@pytest.mark.parametrize("values", ["defaults", "listed namespaces", "everything set"])
def test_every_manifest_is_accepted(plane: ControlPlane, helm: Helm, values: str) -> None:
    text = yaml.safe_dump_all(helm.render(*VALUES[values]))
    check = ("apply", "--server-side", "--validate=strict", "--dry-run=server", "--force-conflicts", "-f", "-")
    kubectl(plane, *check, stdin=text)


@pytest.mark.parametrize("values", ["defaults", "everything set"])
def test_the_managers_pod_passes_the_restricted_standard(plane: ControlPlane, helm: Helm, values: str) -> None:
    (deployment,) = [m for m in helm.render(*VALUES[values]) if m["kind"] == "Deployment"]
    template: dict[str, Any] = deployment["spec"]["template"]
    template["spec"] |= {"serviceAccountName": "default", "priorityClassName": ""}
    pod = {"apiVersion": "v1", "kind": "Pod", **template}
    pod["metadata"]["name"] = "probe"
    kubectl(plane, "-n", NAMESPACE, "create", "--dry-run=server", "-f", "-", stdin=yaml.safe_dump(pod))


def test_the_manager_can_apply_every_child_in_any_namespace(plane: ControlPlane, bound: Helm) -> None:
    _install(bound)
    _wait_for_right(plane, MANAGER, "patch", "apps", "deployments", namespace=OTHER)
    _apply_as_manager(plane, OTHER)


def test_the_manager_cannot_grant_what_it_does_not_have(plane: ControlPlane, bound: Helm) -> None:
    _install(bound)
    _wait_for_right(plane, MANAGER, "create", "rbac.authorization.k8s.io", "roles", namespace=OTHER)
    role = {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "Role",
        "metadata": {"name": "greedy", "namespace": OTHER},
        "rules": [{"apiGroups": [""], "resources": ["secrets"], "verbs": ["get"]}],
    }
    with pytest.raises(ClusterError, match="attempting to grant RBAC permissions not currently held"):
        kubectl(plane, "create", f"--as={MANAGER}", "--dry-run=server", "-f", "-", stdin=yaml.safe_dump(role))


def test_users_of_a_namespace_may_use_inference_clusters_as_far_as_they_may_use_it(
    plane: ControlPlane, bound: Helm
) -> None:
    _install(bound)
    roles = f"/apis/rbac.authorization.k8s.io/v1/namespaces/{ONE}/rolebindings"
    for role in ("view", "edit"):
        binding = {
            "metadata": {"name": f"test-{role}"},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": role},
            "subjects": [{"kind": "User", "apiGroup": "rbac.authorization.k8s.io", "name": f"{role}er"}],
        }
        plane.api.call("POST", roles, binding)
    for user, verb in (("viewer", "get"), ("editer", "create")):
        _wait_for_right(plane, user, verb, "swingpool.dev", "inferenceclusters", namespace=ONE)
    assert not _may(plane, "viewer", "create", "swingpool.dev", "inferenceclusters", namespace=ONE)


def test_the_manager_can_apply_every_child_in_listed_namespaces_and_nothing_elsewhere(
    plane: ControlPlane, bound: Helm
) -> None:
    _install(bound, "--set", f"watchNamespaces={{{ONE},{TWO}}}")
    for namespace in (ONE, TWO):
        _wait_for_right(plane, MANAGER, "patch", "apps", "deployments", namespace=namespace)
    _wait_for_right(plane, MANAGER, "list", "", "pods", namespace=OTHER, allowed=False)
    _apply_as_manager(plane, ONE)
    assert not _may(plane, MANAGER, "patch", "apps", "deployments", namespace=OTHER)


def test_an_upgrade_brings_the_new_definition_and_an_uninstall_keeps_it_with_its_objects(
    plane: ControlPlane, bound: Helm, tmp_path: Path
) -> None:
    old = tmp_path / "swingpool"
    shutil.copytree(CHART, old)
    template = old / "templates" / "crd.yaml"
    lines = template.read_text().replace("- swp\n", "- oldname\n")
    assert "oldname" in lines
    template.write_text(lines)

    def short_names() -> list[str]:
        path = f"/apis/apiextensions.k8s.io/v1/customresourcedefinitions/{DEFINITION}"
        found: list[str] = plane.api.call("GET", path)["spec"]["names"]["shortNames"]
        return found

    _install(bound, chart=old)
    assert short_names() == ["oldname"]
    kubectl(plane, "wait", "--for=condition=Established", f"crd/{DEFINITION}", "--timeout=30s")
    kubectl(plane, "apply", "--server-side", "-f", "-", stdin=yaml.safe_dump(CLUSTER))
    _install(bound)
    assert short_names() == ["swp"]
    bound.run("uninstall", RELEASE, "--namespace", NAMESPACE, "--wait")
    assert "kept" in kubectl(plane, "-n", ONE, "get", "inferenceclusters", "-o", "name")
    assert "is installed" in _install(bound)
    assert "kept" in kubectl(plane, "-n", ONE, "get", "inferenceclusters", "-o", "name")


def _wait_for_right(
    plane: ControlPlane, user: str, verb: str, group: str, resource: str, *, namespace: str, allowed: bool = True
) -> None:
    """Wait until the authorizer has seen the newest roles."""
    what = f"{user} {'may' if allowed else 'may not'} {verb} {resource} in {namespace}"
    until(what, lambda: _may(plane, user, verb, group, resource, namespace=namespace) is allowed)


def _may(plane: ControlPlane, user: str, verb: str, group: str, resource: str, *, namespace: str) -> bool:
    attributes = {"namespace": namespace, "verb": verb, "group": group, "resource": resource}
    review = {"spec": {"user": user, "resourceAttributes": attributes}}
    answer = plane.api.call("POST", "/apis/authorization.k8s.io/v1/subjectaccessreviews", review)
    return bool(answer["status"]["allowed"])
