"""A user's overrides merged over the pod template that Swingpool renders.

It works like Kubernetes' strategic merge: maps merge, lists whose items have a name merge by it, other lists and
scalars are replaced, null removes, and so does `$patch: delete` in an item. Tolerations add up, since nobody who adds
one means to drop ours. What the manager steers workers by (labels, arguments, ports, handshake variables) cannot be
overridden: it is refused by name.
"""

from collections.abc import Collection, Mapping
from typing import Any

from swingpool_control import names
from swingpool_control.resources.metadata import Manifest

MERGE_KEYS: Mapping[str, str] = {
    "containers": "name",
    "env": "name",
    "hostAliases": "ip",
    "imagePullSecrets": "name",
    "initContainers": "name",
    "ports": "containerPort",
    "resourceClaims": "name",
    "topologySpreadConstraints": "topologyKey",
    "volumeDevices": "devicePath",
    "volumeMounts": "mountPath",
    "volumes": "name",
}
"""Lists of maps, and the field that tells their items apart."""

ADDED_LISTS = ("tolerations",)
"""Lists whose items are kept, and new ones appended."""

REPLACED_ITEMS = ("env", "volumes")
"""Lists whose items are replaced whole: a volume has one source and a variable one value, which do not mix."""


class PodTemplateError(ValueError):
    """An override that cannot be merged; the message names the field and the remedy."""


def merge(
    template: Manifest,
    override: Manifest | None,
    *,
    field: str,
    container: str,
    owned_environment: Collection[str] = (),
) -> Manifest:
    """Return a pod template with a user's overrides merged in; neither argument is changed.

    Args:
        template: `metadata` and `spec` as Swingpool renders them.
        override: what the user wrote, of the same form; None or empty for nothing.
        field: path of the override in the InferenceCluster, for messages.
        container: name of the container whose arguments and ports are Swingpool's.
        owned_environment: variables of that container that are Swingpool's.

    Raises:
        PodTemplateError: the override has the wrong form, or touches what is Swingpool's.
    """
    if not override:
        return template
    _refuse_owned(template, override, field=field, container=container, owned_environment=owned_environment)
    merged: Manifest = _merge_maps(template, override, path=field)
    if not any(item["name"] == container for item in merged["spec"]["containers"]):
        raise PodTemplateError(f"{field}.spec.containers: the container {container!r} must stay")
    return merged


def _merge_maps(base: Manifest, over: Manifest, *, path: str) -> Manifest:
    merged = dict(base)
    for key, value in over.items():
        if value is None:
            merged.pop(key, None)
        else:
            merged[key] = _merge_values(base.get(key), value, key=key, path=f"{path}.{key}")
    return merged


def _merge_values(base: Any, over: Any, *, key: str, path: str) -> Any:
    if base is None:
        return _merge_maps({}, over, path=path) if isinstance(over, dict) else over
    if isinstance(base, dict) or isinstance(over, dict):
        if not (isinstance(base, dict) and isinstance(over, dict)):
            raise PodTemplateError(f"{path}: must be {'a map' if isinstance(base, dict) else 'no map'}")
        return _merge_maps(base, over, path=path)
    if isinstance(base, list) != isinstance(over, list):
        raise PodTemplateError(f"{path}: must be {'a list' if isinstance(base, list) else 'no list'}")
    if not isinstance(base, list):
        return over
    if key in MERGE_KEYS:
        return _merge_items(base, over, by=MERGE_KEYS[key], whole=key in REPLACED_ITEMS, path=path)
    if key in ADDED_LISTS:
        return [*base, *(item for item in over if item not in base)]
    return over


def _merge_items(base: list[Manifest], over: list[Any], *, by: str, whole: bool, path: str) -> list[Manifest]:
    merged = {item[by]: item for item in base}
    for index, item in enumerate(over):
        at = f"{path}[{index}]"
        if not isinstance(item, dict) or not isinstance(item.get(by), str | int):
            raise PodTemplateError(f"{at}: must be a map with the field {by!r}")
        if item.get("$patch") == "delete":
            merged.pop(item[by], None)
        else:
            merged[item[by]] = _merge_maps({} if whole else merged.get(item[by], {}), item, path=at)
    return list(merged.values())


def _refuse_owned(
    template: Manifest, override: Manifest, *, field: str, container: str, owned_environment: Collection[str]
) -> None:
    for key in override:
        if key not in ("metadata", "spec"):
            raise PodTemplateError(f"{field}.{key}: unknown; a pod template has `metadata` and `spec`")
    metadata = _map_at(override, "metadata", path=field)
    _refuse_owned_metadata(metadata, path=f"{field}.metadata", labels=template["metadata"]["labels"])
    spec = _map_at(override, "spec", path=field)
    for index, item in enumerate(_list_at(spec, "containers", path=f"{field}.spec")):
        if isinstance(item, dict) and item.get("name") == container:
            _refuse_owned_container(item, path=f"{field}.spec.containers[{index}]", owned_environment=owned_environment)


def _refuse_owned_metadata(metadata: Manifest, *, path: str, labels: Manifest) -> None:
    for key in metadata:
        if key not in ("labels", "annotations"):
            raise PodTemplateError(f"{path}.{key}: remove it; only `labels` and `annotations` can be set")
    for key in _map_at(metadata, "labels", path=path):
        if key in labels or _is_ours(key):
            raise PodTemplateError(f"{path}.labels.{key}: remove it; Swingpool steers workers by this label")
    for key in _map_at(metadata, "annotations", path=path):
        if _is_ours(key) or key == names.ANNOTATION_DELETION_COST:
            raise PodTemplateError(f"{path}.annotations.{key}: remove it; Swingpool keeps its state there")


def _refuse_owned_container(item: Manifest, *, path: str, owned_environment: Collection[str]) -> None:
    if "args" in item:
        raise PodTemplateError(f"{path}.args: remove it; further arguments go to the pool's `engine.extraArguments`")
    for index, port in enumerate(_list_at(item, "ports", path=path)):
        if isinstance(port, dict) and port.get("containerPort") in (names.PORT_WORKER, names.PORT_SIDE_CHANNEL):
            raise PodTemplateError(f"{path}.ports[{index}]: remove it; Swingpool reaches workers by this port")
    for index, variable in enumerate(_list_at(item, "env", path=path)):
        if isinstance(variable, dict) and variable.get("name") in owned_environment:
            raise PodTemplateError(f"{path}.env[{index}]: remove {variable['name']}; Swingpool sets it")


def _is_ours(key: str) -> bool:
    return key.startswith(f"{names.GROUP}/")


def _map_at(parent: Manifest, key: str, *, path: str) -> Manifest:
    value = parent.get(key, {})
    if not isinstance(value, dict):
        raise PodTemplateError(f"{path}.{key}: must be a map")
    return value


def _list_at(parent: Manifest, key: str, *, path: str) -> list[Any]:
    value = parent.get(key, [])
    if not isinstance(value, list):
        raise PodTemplateError(f"{path}.{key}: must be a list")
    return value
