"""The chart without a cluster: what it renders, what it refuses, and that its rights are the ones the manager uses."""

import re
from typing import Any

import pytest

from e2e.cluster.interface import ClusterError
from swingpool.cli import manager
from swingpool.manager.permissions import FINALIZERS, LEASE_PERMISSIONS, PERMISSIONS, Permission
from swingpool_control.resources.settings import RenderSettings
from tests.support.helm import CHART, NAMESPACE, Helm

ONE, TWO = "chart-one", "chart-two"
VALUES: dict[str, tuple[str, ...]] = {
    "defaults": (),
    "one image": ("--set", "envoy.fromSwingpoolImage=true", "--set", "image.repository=localhost/swingpool"),
    "listed namespaces": ("--set", f"watchNamespaces={{{ONE},{TWO},{ONE}}}"),
    "nothing optional": (
        *("--set", "rbac.create=false", "--set", "serviceAccount.create=false"),
        *("--set", "crds.install=false", "--set", "metrics.service.create=false"),
    ),
    "everything set": (
        *("--set", "fullnameOverride=pools", "--set", "priorityClassName=high", "--set", "runAsUser=null"),
        *("--set", "image.digest=sha256:" + "0" * 64, "--set", "imagePullSecrets[0].name=registry"),
        *("--set", "nodeSelector.pool=system", "--set", "tolerations[0].operator=Exists"),
        *("--set", "podLabels.team=ml", "--set", "podAnnotations.note=x", "--set", "serviceAccount.annotations.a=b"),
        *("--set", "serviceAccount.name=robot", "--set", "logging.level=debug", "--set", "replicas=0"),
        *("--set", "prometheus.url=https://prometheus:9090", "--set", "prometheus.tokenSecret.name=reader"),
        *("--set", "prometheus.caConfigMap.name=ca"),
        *("--set", "metrics.service.annotations.a=b", "--set-json", 'affinity={"nodeAffinity":{}}'),
    ),
}


def _only(manifests: list[dict[str, Any]], kind: str) -> dict[str, Any]:
    (found,) = [manifest for manifest in manifests if manifest["kind"] == kind]
    return found


def _container(manifests: list[dict[str, Any]]) -> dict[str, Any]:
    (found,) = _only(manifests, "Deployment")["spec"]["template"]["spec"]["containers"]
    container: dict[str, Any] = found
    return container


def _grants(rules: list[dict[str, Any]]) -> set[tuple[str, str, str]]:
    return {
        (group, resource, verb)
        for rule in rules
        for group in rule["apiGroups"]
        for resource in rule["resources"]
        for verb in rule["verbs"]
    }


def _needs(permissions: tuple[Permission, ...]) -> set[tuple[str, str, str]]:
    return {(item.group, item.resource, verb) for item in permissions for verb in item.verbs}


@pytest.mark.parametrize("values", VALUES)
def test_helm_lints_the_chart_without_a_warning(helm: Helm, values: str) -> None:
    assert "WARNING" not in helm.run("lint", "--strict", str(CHART), *VALUES[values]).stdout


@pytest.mark.parametrize("values", VALUES)
def test_the_manager_understands_its_arguments(helm: Helm, values: str) -> None:
    container = _container(helm.render(*VALUES[values]))
    assert container["command"] == ["swingpool", "manager"]
    context = manager.command.make_context("manager", list(container["args"]))
    assert context.params["swingpool_image"] == container["image"]


@pytest.mark.parametrize(
    ("bad", "named"),
    [
        ("replicas=2", "replicas"),
        ("replicas=-1", "replicas"),
        ("replica=1", "replica"),
        ("image.pullPolicy=Sometimes", "pullPolicy"),
        ("image.tag=a b", "tag"),
        ("image.repository=", "repository"),
        ("image.digest=sha256:12", "digest"),
        ("envoy.image.tag=", "tag"),
        ("watchNamespaces={Chat}", "watchNamespaces"),
        ("watchNamespaces=chat", "watchNamespaces"),
        ("runAsUser=0", "runAsUser"),
        ("logging.level=loud", "level"),
        ("crds.keep=maybe", "keep"),
        ("fullnameOverride=Pools", "fullnameOverride"),
        ("imagePullSecrets={registry}", "imagePullSecrets"),
    ],
)
def test_wrong_values_are_refused_by_name(helm: Helm, bad: str, named: str) -> None:
    with pytest.raises(ClusterError, match=rf"(?s)don't meet the specifications.*{named}"):
        helm.render("--set", bad)


def test_the_manager_may_do_what_it_does_and_no_more_in_all_namespaces(helm: Helm) -> None:
    manifests = helm.render()
    (role,) = [m for m in manifests if m["kind"] == "ClusterRole" and m["metadata"]["name"] == "swingpool"]
    assert _grants(role["rules"]) == _needs((*PERMISSIONS, FINALIZERS))
    assert _only(manifests, "ClusterRoleBinding")["roleRef"]["name"] == "swingpool"
    lease = _only(manifests, "Role")
    assert lease["metadata"]["namespace"] == NAMESPACE
    assert _grants(lease["rules"]) == _needs(LEASE_PERMISSIONS)


def test_with_listed_namespaces_the_manager_may_do_nothing_elsewhere(helm: Helm) -> None:
    manifests = helm.render(*VALUES["listed namespaces"])
    kinds = [manifest["kind"] for manifest in manifests]
    assert "ClusterRoleBinding" not in kinds
    roles = {m["metadata"]["namespace"]: m for m in manifests if m["kind"] == "Role"}
    assert set(roles) == {ONE, TWO, NAMESPACE}
    for namespace in (ONE, TWO):
        assert _grants(roles[namespace]["rules"]) == _needs((*PERMISSIONS, FINALIZERS))
    assert _grants(roles[NAMESPACE]["rules"]) == _needs(LEASE_PERMISSIONS)
    for binding in [m for m in manifests if m["kind"] == "RoleBinding"]:
        assert binding["roleRef"]["name"] == roles[binding["metadata"]["namespace"]]["metadata"]["name"]
        assert binding["subjects"] == [{"kind": "ServiceAccount", "name": "swingpool", "namespace": NAMESPACE}]


def test_the_lease_is_the_only_one_that_it_may_change(helm: Helm) -> None:
    manifests = helm.render()
    (named,) = [rule for rule in _only(manifests, "Role")["rules"] if "create" not in rule["verbs"]]
    (lease,) = named["resourceNames"]
    assert f"--lease-name={lease}" in _container(manifests)["args"]


def test_no_grant_is_a_wildcard(helm: Helm) -> None:
    for manifest in helm.render():
        for rule in manifest.get("rules", []):
            assert "*" not in [*rule["apiGroups"], *rule["resources"], *rule["verbs"]]


def test_default_images_and_user_are_the_programs_own(helm: Helm) -> None:
    settings = RenderSettings(swingpool_image="x")
    assert {
        f"--envoy-image={settings.envoy_image}",
        f"--vllm-image={settings.vllm_image}",
        f"--run-as-user={settings.run_as_user}",
        f"--image-pull-policy={settings.image_pull_policy}",
    } <= set(_container(helm.render())["args"])


def test_one_image_serves_for_all_that_is_ours(helm: Helm) -> None:
    container = _container(helm.render(*VALUES["one image"], "--set", "image.tag=dev"))
    assert container["image"] == "localhost/swingpool:dev"
    assert {"--swingpool-image=localhost/swingpool:dev", "--envoy-image=localhost/swingpool:dev"} <= set(
        container["args"]
    )


def test_a_digest_takes_the_tags_place(helm: Helm) -> None:
    container = _container(helm.render(*VALUES["everything set"], "--set", "image.tag=dev"))
    assert container["image"] == "swingpool/swingpool@sha256:" + "0" * 64


def test_no_more_than_one_manager_at_a_time(helm: Helm) -> None:
    deployment = _only(helm.render(), "Deployment")["spec"]
    assert deployment["replicas"] == 1
    assert deployment["strategy"] == {"type": "Recreate"}


def test_the_definition_is_kept_unless_told_otherwise(helm: Helm) -> None:
    def policy(*values: str) -> str | None:
        definition = _only(helm.render(*values), "CustomResourceDefinition")
        found: str | None = definition["metadata"].get("annotations", {}).get("helm.sh/resource-policy")
        return found

    assert policy() == "keep"
    assert policy("--set", "crds.keep=false") is None
    assert not [m for m in helm.render(*VALUES["nothing optional"]) if m["kind"] == "CustomResourceDefinition"]


def test_every_value_is_described_and_checked() -> None:
    values = (CHART / "values.yaml").read_text()
    top_level = re.findall(r"^([A-Za-z]+):", values, re.MULTILINE)
    schema = (CHART / "values.schema.json").read_text()
    assert top_level
    for name in top_level:
        assert f'"{name}": {{' in schema
