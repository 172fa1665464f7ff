"""What lies under manifests/: samples that the API server takes and the renderer renders, and the plain install."""

from pathlib import Path
from typing import Any

import pytest
import yaml

from e2e.cluster.controlplane import ControlPlane
from swingpool_control.api.v1alpha1 import InferenceClusterSpec
from tests.support import inference_clusters
from tests.support.helm import Helm
from tests.support.kubernetes import delete_namespace, kubectl, make_namespace
from tests.support.resource_specs import child, render
from tools import manifests

SAMPLES = sorted((manifests.ROOT / "manifests" / "samples").glob("*.yaml"))


def _load(path: Path) -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load(path.read_text())
    return found


@pytest.mark.parametrize("path", SAMPLES, ids=lambda path: path.stem)
def test_a_sample_is_accepted_under_strict_validation_and_rendered(plane: ControlPlane, path: Path) -> None:
    sample = _load(path)
    answer = inference_clusters.create(plane, sample)
    assert isinstance(answer, dict), answer
    spec = InferenceClusterSpec.model_validate(answer["spec"])
    assert spec == InferenceClusterSpec.model_validate(sample["spec"])
    for pool in spec.pools:
        child(render(spec, name=sample["metadata"]["name"]), "Deployment", f"{sample['metadata']['name']}-{pool.name}")


def test_the_minimal_sample_is_small() -> None:
    (path,) = [path for path in SAMPLES if path.stem == "minimal"]
    assert len(path.read_text().splitlines()) <= 15


def test_the_full_sample_shows_every_field() -> None:
    (path,) = [path for path in SAMPLES if path.stem == "full"]
    text = path.read_text()
    fields = set(_fields(_load(next((manifests.ROOT / "crds").glob("*.yaml")))))
    assert len(fields) > 60
    assert sorted(field for field in fields if f"{field}:" not in text) == []


def _fields(definition: dict[str, Any]) -> list[str]:
    (version,) = definition["spec"]["versions"]
    return list(_names(version["schema"]["openAPIV3Schema"]["properties"]["spec"]))


def _names(schema: dict[str, Any]) -> list[str]:
    found = []
    for name, inner in schema.get("properties", {}).items():
        found.append(name)
        if name != "podTemplate":  # a pod's own fields are not ours to list
            found += _names(inner) + _names(inner.get("items", {}))
    return found


def test_the_plain_install_is_what_the_chart_says(helm: Helm) -> None:
    del helm  # built before the first test
    assert manifests.TARGET.read_text() == manifests.install(), "run `python -m tools.manifests` and commit it"


def test_the_plain_install_is_accepted(plane: ControlPlane) -> None:
    make_namespace(plane, manifests.NAMESPACE)
    try:
        kubectl(
            plane, "apply", "--server-side", "--validate=strict", "--dry-run=server", "-f", str(manifests.TARGET),
        )  # fmt: skip
    finally:
        delete_namespace(plane, manifests.NAMESPACE)
