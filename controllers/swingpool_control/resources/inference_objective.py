"""What an InferenceObjective of the Gateway API inference extension says: how urgent requests are that name it.

Read, never written. v1alpha2 names one pool in `poolRef`; later releases of it name several in `poolRefs` too.
"""

from collections.abc import Iterable, Mapping
from typing import Any

from swingpool_control.resources import inference_pool

GROUP, VERSION = "inference.networking.x-k8s.io", "v1alpha2"
KIND, PLURAL = "InferenceObjective", "inferenceobjectives"


def priorities(objects: Iterable[Mapping[str, Any]], *, pool: str) -> dict[str, int]:
    """Return the priorities of a pool's objectives by their names; 0 where none is given.

    Args:
        objects: all InferenceObjectives of the pool's namespace.
        pool: name of the InferencePool.
    """
    found: dict[str, int] = {}
    for one in objects:
        name, spec = one.get("metadata", {}).get("name"), one.get("spec") or {}
        if name and any(_names(reference, pool) for reference in _references(spec)):
            priority = spec.get("priority")
            found[name] = priority if isinstance(priority, int) else 0
    return found


def _references(spec: Mapping[str, Any]) -> list[Any]:
    several = spec.get("poolRefs")
    return [spec.get("poolRef"), *(several if isinstance(several, list) else ())]


def _names(reference: object, pool: str) -> bool:
    if not isinstance(reference, Mapping):
        return False
    group, kind = reference.get("group", inference_pool.GROUP), reference.get("kind", inference_pool.KIND)
    return (group, kind, reference.get("name")) == (inference_pool.GROUP, inference_pool.KIND, pool)
