"""What may change in an InferenceCluster that exists, and what may not, by the real API server."""

from collections.abc import Iterator
from typing import Any

import pytest

from e2e.cluster.controlplane import ControlPlane
from tests.support.inference_clusters import COLLECTION, Refusal, changed, create, smallest, update


@pytest.fixture(scope="module")
def existing(plane: ControlPlane) -> Iterator[dict[str, Any]]:
    """A resource that exists."""
    resource = changed(smallest(), metadata__name="existing", spec__pools__0__accelerator={"count": 2, "product": "A"})
    created = create(plane, resource, dry_run=False)
    assert not isinstance(created, Refusal), created.message
    yield created
    plane.api.call("DELETE", f"{COLLECTION}/existing")


@pytest.mark.parametrize(
    ("changes", "field", "remedy"),
    [
        ({"spec__model__name": "other"}, "spec.model.name", "second InferenceCluster"),
        ({"spec__model__source": "other"}, "spec.model.source", "second InferenceCluster"),
        ({"spec__model__revision": "v2"}, "spec.model.revision", "second InferenceCluster"),
        ({"spec__engine__type": "Simulated"}, "spec.engine.type", "second InferenceCluster"),
        ({"spec__router": {"type": "External", "external": {}}}, "spec.router.type", "second InferenceCluster"),
        ({"spec__pools__0__role": "Swing"}, "spec.pools[0].role", "add a pool with another name"),
        ({"spec__pools__0__accelerator__count": 4}, "spec.pools[0].accelerator.count", "add a pool"),
        ({"spec__pools__0__accelerator__product": "B"}, "spec.pools[0].accelerator.product", "add a pool"),
        ({"spec__pools__0__accelerator__product": None}, "spec.pools[0].accelerator.product", "add a pool"),
        ({"spec__pools__0__accelerator__resource": "amd.com/gpu"}, "spec.pools[0].accelerator.resource", "add a pool"),
        ({"spec__pools__0__accelerator__productLabel": "x"}, "spec.pools[0].accelerator.productLabel", "add a pool"),
    ],
    ids=lambda value: value if isinstance(value, str) and value.startswith("spec.") else "",
)
def test_immutable(
    plane: ControlPlane, existing: dict[str, Any], changes: dict[str, Any], field: str, remedy: str
) -> None:
    refusal = update(plane, changed(existing, **changes))
    assert isinstance(refusal, Refusal), "accepted"
    assert refusal.says(field, "cannot be changed"), refusal.causes
    assert refusal.says(field, remedy), refusal.causes


@pytest.mark.parametrize(
    "changes",
    [
        {"spec__model__maxLength": 8192},
        {"spec__model__servedNames": ["chat"]},
        {"spec__objectives__ttft__p95": "1s"},
        {"spec__engine__image": "x:2"},
        {"spec__pools__0__engine__tensorParallelSize": 1, "spec__pools__0__engine__dataParallelSize": 2},
        {"spec__pools__0__replicas": {"min": 2, "max": 4}},
        {"spec__pools__0__replicas": {"mode": "Fixed", "count": 3}},
        {"spec__pools__0__name": "prefill2"},
        {"spec__scaling__mode": "Recommend"},
        {"spec__router__builtIn__replicas": 2},
    ],
    ids=lambda value: next(iter(value)),
)
def test_mutable(plane: ControlPlane, existing: dict[str, Any], changes: dict[str, Any]) -> None:
    answer = update(plane, changed(existing, **changes))
    assert not isinstance(answer, Refusal), answer.message


def test_pools_may_be_reordered_and_keep_what_is_immutable(plane: ControlPlane, existing: dict[str, Any]) -> None:
    answer = update(plane, changed(existing, spec__pools=existing["spec"]["pools"][::-1]))
    assert not isinstance(answer, Refusal), answer.message
