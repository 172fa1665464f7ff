"""The CustomResourceDefinition, made from the pydantic models.

Kubernetes takes a subset of JSON schema, called structural: no references, one type per value, no null, no branches
that carry types. Pydantic speaks more than that, so its schema is translated here, and what has no translation is
refused with its path.
"""

from collections.abc import Mapping
from typing import Any

from pydantic import BaseModel

from swingpool_control import names
from swingpool_control.api.rules import NO_WRITTEN_DEFAULT, VALIDATIONS, Rule
from swingpool_control.api.status import InferenceClusterStatus
from swingpool_control.api.v1alpha1 import InferenceClusterSpec

Schema = dict[str, Any]
"""A JSON schema, or a part of one."""

_KEPT = (
    "type",
    "description",
    "format",
    "enum",
    "pattern",
    "minLength",
    "maxLength",
    "minimum",
    "maximum",
    "minItems",
    "maxItems",
    "maxProperties",
    "required",
)
"""Keywords that mean the same on both sides."""

_HANDLED = ("title", "$defs", "default", NO_WRITTEN_DEFAULT)
"""Keywords that are left out, or looked at apart."""

CLUSTER_NAME_PATTERN = r"^[a-z]([-a-z0-9]*[a-z0-9])?$"


class SchemaError(ValueError):
    """A model that no structural schema can express; the message names the path and the keyword."""


def definition(*, annotations: Mapping[str, str] | None = None) -> dict[str, Any]:
    """Return the CustomResourceDefinition of InferenceCluster as plain data.

    Args:
        annotations: annotations of the definition itself.

    Raises:
        SchemaError: a model uses what a structural schema cannot express.
    """
    metadata: dict[str, Any] = {"name": f"{names.PLURAL}.{names.GROUP}"}
    if annotations:
        metadata["annotations"] = dict(annotations)
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": metadata,
        "spec": {
            "group": names.GROUP,
            "names": {
                "kind": names.KIND,
                "listKind": f"{names.KIND}List",
                "plural": names.PLURAL,
                "singular": names.KIND.lower(),
                "shortNames": [names.SHORT_NAME],
                "categories": ["all", "swingpool"],
            },
            "scope": "Namespaced",
            "versions": [
                {
                    "name": names.VERSION,
                    "served": True,
                    "storage": True,
                    "subresources": {"status": {}},
                    "additionalPrinterColumns": _columns(),
                    "schema": {"openAPIV3Schema": _resource_schema()},
                }
            ],
        },
    }


def structural(model: type[BaseModel]) -> Schema:
    """Return a model's schema in structural form.

    Raises:
        SchemaError: the model uses what a structural schema cannot express.
    """
    whole = model.model_json_schema(by_alias=True, mode="validation")
    return _translate(whole, whole.get("$defs", {}), path=model.__name__, open_references=())


def _resource_schema() -> Schema:
    return {
        "type": "object",
        "description": "A model served by pools of workers that compute prompts (prefill), generate tokens (decode), "
        "or change between the two as the load asks (swing).",
        "required": ["spec"],
        "properties": {
            "apiVersion": {"type": "string", "description": "Version of the form of this resource."},
            "kind": {"type": "string", "description": "Kind of this resource."},
            "metadata": {"type": "object"},
            "spec": {**structural(InferenceClusterSpec), "description": "What shall be."},
            "status": {**structural(InferenceClusterStatus), "description": "What is; written by Swingpool."},
        },
        VALIDATIONS: [
            Rule(
                cel=f"size(self.metadata.name) <= {names.MAX_CLUSTER_NAME}",
                message=f"metadata.name must have at most {names.MAX_CLUSTER_NAME} characters, so that the names of "
                "its Services, Deployments and labels fit: choose a shorter one",
            ).schema(),
            Rule(
                cel=f"self.metadata.name.matches(r'{CLUSTER_NAME_PATTERN}')",
                message="metadata.name must be lower-case letters, digits and dashes, and start with a letter, so that "
                "it can begin a Service's name: choose another",
            ).schema(),
        ],
    }


def _columns() -> list[dict[str, Any]]:
    ready = '.status.conditions[?(@.type=="Ready")]'
    columns = (
        ("Ready", "string", f"{ready}.status", "Whether every role serves.", 0),
        ("Reason", "string", f"{ready}.reason", "Why it is ready or not.", 0),
        ("Workers", "string", ".status.workers", "Ready and wanted workers.", 0),
        ("Roles", "string", ".status.roles", "Ready workers by role.", 0),
        ("Model", "string", ".spec.model.name", "The model.", 0),
        ("Age", "date", ".metadata.creationTimestamp", "", 0),
        ("Endpoint", "string", ".status.endpoint", "Where clients send requests.", 1),
        ("Message", "string", f"{ready}.message", "Why it is ready or not, in a sentence.", 1),
    )
    return [
        {"name": name, "type": kind, "jsonPath": path}
        | ({"description": description} if description else {})
        | ({"priority": priority} if priority else {})
        for name, kind, path, description, priority in columns
    ]


def _translate(schema: Schema, definitions: Schema, *, path: str, open_references: tuple[str, ...]) -> Schema:
    """Return one schema node in structural form; `open_references` are the definitions it lies in."""
    node = dict(schema)
    if "anyOf" in node:
        node = _without_null(node, path=path)
    if "$ref" in node:
        name = node.pop("$ref").removeprefix("#/$defs/")
        if name in open_references:
            raise SchemaError(f"{path}: {name} contains itself, which a structural schema cannot express")
        open_references = (*open_references, name)
        node = _merged(definitions[name], node)
        return _translate(node, definitions, path=path, open_references=open_references)
    result: Schema = {}
    for keyword, value in node.items():
        if keyword in _KEPT or keyword.startswith("x-kubernetes-"):
            result[keyword] = value
        elif keyword in ("properties", "items", "additionalProperties"):
            result |= _children(keyword, value, definitions, path=path, open_references=open_references)
        elif keyword not in _HANDLED:
            raise SchemaError(f"{path}: {keyword!r} has no place in a structural schema")
    if "type" not in result:
        raise SchemaError(f"{path}: a structural schema needs one type")
    if "default" in node and not node.get(NO_WRITTEN_DEFAULT):
        result |= _default(node["default"], result)
    return result


def _merged(definition: Schema, beside: Schema) -> Schema:
    """Return a definition with what stands beside its reference; rules of both hold."""
    merged = {**definition, **beside}
    if both := [*definition.get(VALIDATIONS, []), *beside.get(VALIDATIONS, [])]:
        merged[VALIDATIONS] = both
    return merged


def _without_null(node: Schema, *, path: str) -> Schema:
    """Return `X | None` as X: in a resource, an optional value is absent, not null."""
    branches = [branch for branch in node.pop("anyOf") if branch != {"type": "null"}]
    if len(branches) != 1:
        raise SchemaError(f"{path}: a value of several types has no place in a structural schema")
    return _merged(branches[0], {key: value for key, value in node.items() if (key, value) != ("default", None)})


def _children(keyword: str, value: Any, definitions: Schema, *, path: str, open_references: tuple[str, ...]) -> Schema:
    if keyword == "properties":
        return {
            keyword: {
                name: _translate(child, definitions, path=f"{path}.{name}", open_references=open_references)
                for name, child in value.items()
            }
        }
    if isinstance(value, bool):  # pydantic's word on unknown fields; the API server has its own
        return {"x-kubernetes-preserve-unknown-fields": True} if value else {}
    return {keyword: _translate(value, definitions, path=f"{path}[]", open_references=open_references)}


def _default(value: Any, translated: Schema) -> Schema:
    """Return the default to write into resources; an empty list is left out, absent says the same.

    An object's default is spelled out in full, since the API server asks rules about it before it fills in its fields.
    """
    if value == []:
        return {}
    if isinstance(value, dict):
        fields = translated.get("properties", {})
        return {"default": {name: field["default"] for name, field in fields.items() if "default" in field}}
    return {"default": value}
