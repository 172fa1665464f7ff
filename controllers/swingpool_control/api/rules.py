"""What the API server shall check beyond types: CEL rules and list semantics, attached to pydantic models and fields.

The pydantic models carry them into their JSON schema; `crd.py` passes them on. The API server is the one that evaluates
them, so an InferenceCluster that the manager reads has passed them all.
"""

from dataclasses import dataclass
from typing import Any, Literal

from pydantic import ConfigDict, GetJsonSchemaHandler
from pydantic.config import JsonDict
from pydantic_core import CoreSchema

VALIDATIONS = "x-kubernetes-validations"
NO_WRITTEN_DEFAULT = "x-swingpool-no-written-default"
"""Marks a field whose default the API server shall not write into the resource, since it means nothing there."""

FieldErrorReason = Literal["FieldValueInvalid", "FieldValueForbidden", "FieldValueRequired"]
"""Kubernetes has one more, FieldValueDuplicate, which drops the message and so the remedy."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """One CEL rule. As `Annotated` metadata it sits on a field's value; in `rules()` on a whole object.

    Exactly one of `message` and `message_cel` is given; it names the remedy, the path comes from the API server.
    """

    cel: str
    message: str = ""
    message_cel: str = ""
    """CEL that yields the message."""
    field: str = ""
    """Field to blame within the object, such as `.max`; empty: the object itself."""
    reason: FieldErrorReason = "FieldValueInvalid"

    def schema(self) -> dict[str, Any]:
        """Return the rule as an item of `x-kubernetes-validations`."""
        entry: dict[str, Any] = {"rule": self.cel}
        if self.message:
            entry["message"] = self.message
        if self.message_cel:
            entry["messageExpression"] = self.message_cel
        if self.field:
            entry["fieldPath"] = self.field
        entry["reason"] = self.reason
        return entry

    def __get_pydantic_json_schema__(self, core_schema: CoreSchema, handler: GetJsonSchemaHandler) -> dict[str, Any]:
        """Add the rule to the schema of the value that it annotates."""
        schema: dict[str, Any] = handler(core_schema)
        return {**schema, VALIDATIONS: [*schema.get(VALIDATIONS, []), self.schema()]}


def rules(*items: Rule) -> ConfigDict:
    """Return the `model_config` that puts rules on a whole model."""
    return ConfigDict(json_schema_extra={VALIDATIONS: [item.schema() for item in items]})


def matches(pattern: str, *, message: str) -> Rule:
    """Return a text's rule that it matches `pattern`, in words that a regular expression has not."""
    return Rule(cel=f"self.matches(r'{pattern}')", message=message)


def immutable(field: str, *, optional: bool = False, remedy: str) -> Rule:
    """Return an object's rule that `field` cannot change once the object exists.

    Args:
        field: its name in the resource.
        optional: whether it may be absent; then adding and removing it are changes too.
        remedy: what to do instead.
    """
    same = f"self.{field} == oldSelf.{field}"
    if optional:
        same = f"has(self.{field}) == has(oldSelf.{field}) && (!has(self.{field}) || {same})"
    return Rule(
        cel=same,
        message=f"{field} cannot be changed; {remedy}",
        field=f".{field}",
        reason="FieldValueForbidden",
    )


def list_map(key: str = "name") -> JsonDict:
    """Return the schema extension of a list whose items are told apart, and merged, by `key`."""
    return {"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": [key]}


LIST_SET: JsonDict = {"x-kubernetes-list-type": "set"}
"""A list without duplicates, merged item by item."""

LIST_ATOMIC: JsonDict = {"x-kubernetes-list-type": "atomic"}
"""A list in which order matters; it is replaced as a whole."""
