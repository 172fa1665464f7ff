"""From a pydantic model's JSON schema to the subset that Kubernetes takes, called structural.

No references, one type per value, no null, no branches that carry types. Pydantic speaks more than that, so its schema
is translated here, and what has no translation is refused with its path.
"""

from dataclasses import dataclass
from typing import Any

from pydantic import BaseModel

from swingpool_control.api.rules import NO_WRITTEN_DEFAULT, VALIDATIONS

Schema = dict[str, Any]
"""A JSON schema, or a part of one."""

_KEPT = frozenset(
    {
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
    }
)
"""Keywords that mean the same on both sides."""

_APART = frozenset({"title", "$defs", "default", "properties", "items", "additionalProperties", NO_WRITTEN_DEFAULT})
"""Keywords that are left out, or translated each in its own way."""


class SchemaError(ValueError):
    """A model that no structural schema can express; the message names the path and the keyword."""


def structural(model: type[BaseModel]) -> Schema:
    """Return a model's schema in structural form.

    Raises:
        SchemaError: the model uses what a structural schema cannot express.
    """
    whole = model.model_json_schema(by_alias=True, mode="validation")
    return _Translation(definitions=whole.get("$defs", {})).translate(whole, path=model.__name__, inside=())


@dataclass(frozen=True, slots=True, kw_only=True)
class _Translation:
    definitions: Schema

    def translate(self, schema: Schema, *, path: str, inside: tuple[str, ...]) -> Schema:
        """Return a schema in structural form; `inside` are the definitions that it lies in."""
        node, inside = self._resolved(schema, path=path, inside=inside)
        result = {key: value for key, value in node.items() if key in _KEPT or key.startswith("x-kubernetes-")}
        if unknown := node.keys() - result.keys() - _APART:
            raise SchemaError(f"{path}: {', '.join(sorted(unknown))}: no place for it in a structural schema")
        if "type" not in result:
            raise SchemaError(f"{path}: a structural schema needs one type")
        result |= self._children(node, path=path, inside=inside)
        if _said_in_words(result):
            del result["pattern"]
        if "default" in node and not node.get(NO_WRITTEN_DEFAULT):
            result |= _default(node["default"], result)
        return result

    def _resolved(self, schema: Schema, *, path: str, inside: tuple[str, ...]) -> tuple[Schema, tuple[str, ...]]:
        """Return a node with neither null branch nor reference, and the definitions that it lies in now."""
        node = _without_null(schema, path=path)
        while "$ref" in node:
            name = node.pop("$ref").removeprefix("#/$defs/")
            if name in inside:
                raise SchemaError(f"{path}: {name} contains itself, which a structural schema cannot express")
            inside = (*inside, name)
            node = _without_null(_merged(self.definitions[name], node), path=path)
        return node, inside

    def _children(self, node: Schema, *, path: str, inside: tuple[str, ...]) -> Schema:
        children: Schema = {}
        if "properties" in node:
            children["properties"] = {
                name: self.translate(child, path=f"{path}.{name}", inside=inside)
                for name, child in node["properties"].items()
            }
        for keyword in ("items", "additionalProperties"):
            child = node.get(keyword)
            if isinstance(child, dict):
                children[keyword] = self.translate(child, path=f"{path}[]", inside=inside)
            elif child:  # False is pydantic's way to refuse unknown fields; the API server has its own
                children["x-kubernetes-preserve-unknown-fields"] = True
        return children


def _without_null(schema: Schema, *, path: str) -> Schema:
    """Return a copy with `X | None` as X: in a resource, an optional value is absent, not null."""
    node = dict(schema)
    if "anyOf" not in node:
        return node
    branches = [branch for branch in node.pop("anyOf") if branch != {"type": "null"}]
    if len(branches) != 1:
        raise SchemaError(f"{path}: a value of several types has no place in a structural schema")
    return _merged(branches[0], {key: value for key, value in node.items() if (key, value) != ("default", None)})


def _merged(definition: Schema, beside: Schema) -> Schema:
    """Return a definition with what stands beside its reference; rules of both hold."""
    merged = {**definition, **beside}
    if both := [*definition.get(VALIDATIONS, []), *beside.get(VALIDATIONS, [])]:
        merged[VALIDATIONS] = both
    return merged


def _said_in_words(schema: Schema) -> bool:
    """Tell whether a rule asks for the pattern, so that a user is told in words, and once."""
    check = f"self.matches(r'{schema.get('pattern')}')"
    return any(rule["rule"] == check for rule in schema.get(VALIDATIONS, []))


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
