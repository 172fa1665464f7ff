"""Whether a child still is what was asked for, told from its live object.

The API server fills in defaults, rewrites quantities and keeps what others added, so the live object never equals the
manifest. Compared is its *projection*: what stands in the live object at the places the manifest names. A projection
that differs from the manifest after our own apply is the server's way to write the same thing, and is remembered.
"""

import hashlib
import json
from collections.abc import Iterator
from typing import Any

from swingpool.kube import Object
from swingpool_control import names
from swingpool_control.resources.pod_template import MERGE_KEYS

MISSING = "<missing>"
"""Stands in a projection where the live object has nothing."""

_KEYS: dict[str, tuple[str, ...]] = {
    **{field: (key,) for field, key in MERGE_KEYS.items()},
    "ports": ("containerPort", "port"),
    "ownerReferences": ("uid",),
}
"""Lists that the API server merges item by item, and the field, or the first field there is, that tells items apart.

What others added to such a list is theirs. Any other list is one value: an item more is a difference.
"""

_NOTHING: tuple[Any, ...] = (None, {}, [])


def desired_hash(manifest: Object) -> str:
    """Return a hash of a manifest, the same for equal manifests."""
    text = json.dumps(manifest, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def with_hash(manifest: Object) -> Object:
    """Return the manifest with its hash as an annotation."""
    metadata = dict(manifest.get("metadata") or {})
    metadata["annotations"] = {
        **(metadata.get("annotations") or {}),
        names.ANNOTATION_DESIRED_HASH: desired_hash(manifest),
    }
    return {**manifest, "metadata": metadata}


def project(desired: Any, live: Any, *, field: str = "") -> Any:
    """Return what `live` has at the places that `desired` names; null, {} and [] count as nothing.

    Args:
        desired: a manifest, or a part of it.
        live: the live object, or the same part of it.
        field: name of the field that holds the part.
    """
    if desired in _NOTHING:
        return MISSING
    if isinstance(desired, dict):
        if not isinstance(live, dict):
            return MISSING
        kept = {key: value for key, value in desired.items() if value not in _NOTHING}
        return {key: project(value, live.get(key), field=key) for key, value in kept.items()} or MISSING
    if isinstance(desired, list):
        return _project_list(desired, live if isinstance(live, list) else [], field)
    return MISSING if live in _NOTHING else live


def differences(one: Any, other: Any, path: str = "") -> Iterator[str]:
    """Yield the paths at which two projections of one manifest differ."""
    if isinstance(one, dict) and isinstance(other, dict):
        for key in sorted(one.keys() | other.keys()):
            place = f"{path}{key}" if key.startswith("[") else f"{path}.{key}".lstrip(".")
            yield from differences(one.get(key, MISSING), other.get(key, MISSING), place)
    elif one != other:
        yield path


def _project_list(desired: list[Any], live: list[Any], field: str) -> Any:
    key = _key_of(desired, field)
    if key is None:
        if len(desired) != len(live):
            return live or MISSING
        return {f"[{i}]": project(item, live[i]) for i, item in enumerate(desired)}
    by_key = {item.get(key): item for item in live if isinstance(item, dict)}
    return {f"[{item[key]}]": project(item, by_key.get(item[key])) for item in desired}


def _key_of(items: list[Any], field: str) -> str | None:
    """Return the field that tells the items of a merged list apart, None if the list is one value."""
    for key in _KEYS.get(field, ()):
        values = [item.get(key) for item in items if isinstance(item, dict)]
        if None not in values and len(set(values)) == len(items):
            return key
    return None
