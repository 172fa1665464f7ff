"""`kubectl explain` teaches, and `kubectl get` answers at a glance."""

import re
from collections.abc import Iterator
from typing import Any

import yaml

from e2e.cluster.controlplane import ControlPlane
from swingpool_control import names
from tests.support.inference_clusters import COLLECTION, CRD_FILE, NAMESPACE, Refusal, changed, create, smallest, update
from tests.support.kubernetes import kubectl

SCHEMA = yaml.safe_load(CRD_FILE.read_text())["spec"]["versions"][0]["schema"]["openAPIV3Schema"]


def _objects(schema: dict[str, Any], path: str) -> Iterator[tuple[str, dict[str, Any]]]:
    if schema["type"] == "array":
        yield from _objects(schema["items"], path)
    elif "properties" in schema:
        yield path, schema["properties"]
        for name, child in schema["properties"].items():
            yield from _objects(child, f"{path}.{name}")


OBJECTS = dict(_objects(SCHEMA["properties"]["spec"], "spec"))
"""Every object of the spec that has fields: path to its fields."""


def test_explain_prints_a_description_for_every_field_of_the_spec(plane: ControlPlane) -> None:
    assert len(OBJECTS) > 20
    for path, fields in OBJECTS.items():
        told = kubectl(plane, "explain", f"{names.PLURAL}.{path}")
        described = dict(re.findall(r"^  (\w+)\t<[^\n]*\n(?:  enum: [^\n]*\n)?    (\S[^\n]*)$", told, re.MULTILINE))
        for name in fields:
            assert described.get(name, "<no description>") != "<no description>", f"{path}.{name}:\n{told}"


def _condition(kind: str, status: str, reason: str, message: str) -> dict[str, str]:
    transition = "2026-01-01T00:00:00Z"
    return {"type": kind, "status": status, "reason": reason, "message": message, "lastTransitionTime": transition}


def test_get_answers_at_a_glance(plane: ControlPlane) -> None:
    created = create(plane, changed(smallest(), metadata__name="glance"), dry_run=False)
    assert not isinstance(created, Refusal), created.message
    try:
        status = {
            "workers": "3/4",
            "roles": "2 prefill, 1 decode",
            "endpoint": "http://glance-router",
            "conditions": [
                _condition("Ready", "True", "Serving", "both roles serve"),
                _condition("ObjectivesMet", "False", "Missed", "TTFT is missed"),
            ],
        }
        assert not isinstance(
            update(plane, {**created, "status": status}, subresource="/status", dry_run=False), Refusal
        )
        head, row = kubectl(plane, "get", names.SHORT_NAME, "-n", NAMESPACE, "glance").splitlines()
        assert head.split() == ["NAME", "READY", "REASON", "OBJECTIVES", "WORKERS", "ROLES", "MODEL", "AGE"]
        assert re.split(r"\s{2,}", row)[:-1] == [
            "glance", "True", "Serving", "False", "3/4", "2 prefill, 1 decode", "Qwen/Qwen3-32B",
        ]  # fmt: skip
        assert "glance" in kubectl(plane, "get", "all", "-n", NAMESPACE, "-o", "name")
        assert "both roles serve" in kubectl(plane, "get", "swingpool", "-n", NAMESPACE, "-o", "wide")
    finally:
        plane.api.call("DELETE", f"{COLLECTION}/glance")


def test_status_is_a_subresource(plane: ControlPlane) -> None:
    """Who may write the spec does not thereby write the status, and a status changes no generation."""
    created = create(plane, {**changed(smallest(), metadata__name="apart"), "status": {"workers": "9/9"}})
    assert not isinstance(created, Refusal), created.message
    assert "status" not in created
