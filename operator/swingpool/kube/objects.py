"""Kubernetes objects as plain dicts: the type, and reads that never fail on a missing field."""

from collections.abc import Mapping
from typing import Any

Object = dict[str, Any]
"""A Kubernetes object, decoded from JSON."""


def metadata(obj: Mapping[str, Any]) -> dict[str, Any]:
    """Return the object's metadata, empty if it has none."""
    value = obj.get("metadata")
    return value if isinstance(value, dict) else {}


def name_of(obj: Mapping[str, Any]) -> str:
    """Return the object's name, empty if it has none."""
    return str(metadata(obj).get("name", ""))


def namespace_of(obj: Mapping[str, Any]) -> str:
    """Return the object's namespace, empty if it has none."""
    return str(metadata(obj).get("namespace", ""))


def uid_of(obj: Mapping[str, Any]) -> str:
    """Return the object's uid, empty if it has none."""
    return str(metadata(obj).get("uid", ""))


def labels_of(obj: Mapping[str, Any]) -> dict[str, str]:
    """Return the object's labels."""
    return metadata(obj).get("labels") or {}


def annotations_of(obj: Mapping[str, Any]) -> dict[str, str]:
    """Return the object's annotations."""
    return metadata(obj).get("annotations") or {}


def controller_uid(obj: Mapping[str, Any]) -> str:
    """Return the uid of the owner that controls the object, empty if none does."""
    for owner in metadata(obj).get("ownerReferences") or ():
        if owner.get("controller"):
            return str(owner.get("uid", ""))
    return ""


def field(obj: Mapping[str, Any], *path: str) -> Any:
    """Return the value at a path of keys, None where the path ends early."""
    value: Any = obj
    for key in path:
        if not isinstance(value, Mapping):
            return None
        value = value.get(key)
    return value
