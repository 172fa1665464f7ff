"""The translation from pydantic's schema to Kubernetes' structural one, and what it refuses."""

from typing import Annotated, Any, Literal

import pytest
from pydantic import BaseModel, Field

from swingpool_control.api import crd
from swingpool_control.api.base import ApiModel
from swingpool_control.api.rules import NO_WRITTEN_DEFAULT, VALIDATIONS, Rule, matches, rules
from swingpool_control.api.structural import SchemaError, structural

ALLOWED = {
    "additionalProperties", "default", "description", "enum", "format", "items", "maxItems", "maxLength",
    "maxProperties", "maximum", "minItems", "minLength", "minimum", "pattern", "properties", "required", "type",
    "x-kubernetes-list-map-keys", "x-kubernetes-list-type", "x-kubernetes-preserve-unknown-fields", VALIDATIONS,
}  # fmt: skip
TYPES = {"array", "boolean", "integer", "number", "object", "string"}


def faults(schema: dict[str, Any], path: str = "") -> list[str]:
    """Return where a schema is not structural, by the rules of Kubernetes, or leaves a size open that rules walk."""
    found = [f"{path}: {keyword}" for keyword in schema.keys() - ALLOWED]
    if schema.get("type") not in TYPES:
        found.append(f"{path}: type {schema.get('type')}")
    if "properties" in schema and "additionalProperties" in schema:
        found.append(f"{path}: properties beside additionalProperties")
    if any(name not in schema.get("properties", {}) for name in schema.get("required", [])):
        found.append(f"{path}: requires what it does not describe")
    if schema.get("type") == "array":
        found += [f"{path}: array without {keyword}" for keyword in ("items", "maxItems") if keyword not in schema]
        found += faults(schema.get("items", {"type": "string"}), f"{path}[]")
    if schema.get("x-kubernetes-list-type") == "map":
        keys = schema["x-kubernetes-list-map-keys"]
        found += [f"{path}: key {key} may be absent" for key in keys if key not in schema["items"]["required"]]
    for name, child in schema.get("properties", {}).items():
        found += faults(child, f"{path}.{name}")
    if "additionalProperties" in schema:
        found += faults(schema["additionalProperties"], f"{path}[*]")
    return found


def test_checker_finds_faults() -> None:
    bad = {
        "type": "object",
        "title": "x",
        "properties": {"a": {"anyOf": []}, "b": {"type": "array"}},
        "required": ["c"],
    }
    assert set(faults(bad)) == {
        ".a: anyOf",
        ".a: type None",
        ".b: array without items",
        ".b: array without maxItems",
        ": requires what it does not describe",
        ": title",
    }


def test_definition_is_structural() -> None:
    version = crd.definition()["spec"]["versions"][0]
    assert faults(version["schema"]["openAPIV3Schema"]) == []


def test_every_field_has_a_description() -> None:
    def silent(schema: dict[str, Any], path: str) -> list[str]:
        found = [] if schema.get("description") else [path]
        for name, child in schema.get("properties", {}).items():
            found += silent(child, f"{path}.{name}")
        return found + (silent({"description": "-", **schema["items"]}, f"{path}[]") if "items" in schema else [])

    root = crd.definition()["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    assert [path for part in ("spec", "status") for path in silent(root["properties"][part], part)] == []


class Inner(ApiModel):
    """Inner words."""

    model_config = rules(Rule(cel="self.size >= 0", message="inner"))
    size: int = 3
    note: str | None = None


class Outer(ApiModel):
    inner: Annotated[Inner, Field(description="Outer words."), Rule(cel="true", message="outer")] = Inner()
    hidden: Annotated[Inner, Field(json_schema_extra={NO_WRITTEN_DEFAULT: True})] = Inner()
    kind: Literal["A", "B"] = "A"
    items: tuple[Annotated[str, Field(pattern="^x"), matches("^x", message="start with x")], ...] = ()
    free: dict[str, Any] | None = None


def test_optional_references_and_defaults() -> None:
    properties = structural(Outer)["properties"]
    assert properties["inner"] == {
        "type": "object",
        "description": "Outer words.",
        "properties": {"size": {"type": "integer", "default": 3}, "note": {"type": "string"}},
        "default": {"size": 3},
        VALIDATIONS: [
            {"rule": "self.size >= 0", "message": "inner", "reason": "FieldValueInvalid"},
            {"rule": "true", "message": "outer", "reason": "FieldValueInvalid"},
        ],
    }
    assert "default" not in properties["hidden"]
    assert NO_WRITTEN_DEFAULT not in properties["hidden"]
    assert properties["kind"] == {"type": "string", "enum": ["A", "B"], "default": "A"}
    assert properties["free"]["x-kubernetes-preserve-unknown-fields"] is True


def test_a_pattern_that_a_rule_says_in_words_is_said_once() -> None:
    item = structural(Outer)["properties"]["items"]["items"]
    assert "pattern" not in item
    assert [rule["message"] for rule in item[VALIDATIONS]] == ["start with x"]


class Several(BaseModel):
    value: int | str


class Exclusive(BaseModel):
    value: Annotated[float, Field(gt=0)]


class Constant(BaseModel):
    value: Literal["only"]


class Recursive(BaseModel):
    child: "Recursive | None" = None


class Anything(BaseModel):
    value: Any


@pytest.mark.parametrize(
    ("model", "words"),
    [
        (Several, "Several.value: a value of several types"),
        (Exclusive, "Exclusive.value: exclusiveMinimum"),
        (Constant, "Constant.value: const"),
        (Recursive, "Recursive contains itself"),
        (Anything, "Anything.value: a structural schema needs one type"),
    ],
)
def test_what_has_no_structural_form_is_refused_with_its_path(model: type[BaseModel], words: str) -> None:
    with pytest.raises(SchemaError, match=words):
        structural(model)
