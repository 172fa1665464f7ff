"""Performance models of a cluster's pools: parsed once, read anew when the ConfigMap may have changed."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from swingpool.kube import Kube, KubeError
from swingpool.kube.kinds import CONFIG_MAP
from swingpool.kube.objects import field
from swingpool.manager.store import Key
from swingpool_control.api.v1alpha1 import ConfigMapKey, InferenceClusterSpec
from swingpool_control.engine.model import PerformanceModel
from swingpool_control.figures import Unknown
from swingpool_control.sizing import models

Models = Mapping[str, PerformanceModel | Unknown]

READ_AGAIN_S = 15.0
"""How old the text of a ConfigMap may be. It is a user's object, outside the watches."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Known:
    spec: InferenceClusterSpec
    text: str | Unknown | None
    read_at: float
    models: Models


@dataclass(frozen=True, slots=True)
class _Unread:
    """The API server did not answer just now, which says nothing about the ConfigMap."""

    why: Unknown


class Profiles:
    """Performance models by cluster.

    Args:
        kube: the client.
        monotonic: a clock in seconds that never goes back.
    """

    def __init__(self, kube: Kube, *, monotonic: Callable[[], float]) -> None:
        self._kube = kube
        self._monotonic = monotonic
        self._known: dict[Key, _Known] = {}

    def forget(self, key: Key) -> None:
        """Drop the memory of a cluster."""
        self._known.pop(key, None)

    async def models(self, key: Key, spec: InferenceClusterSpec) -> Models:
        """Return the performance model of each pool, or why it has none."""
        known = self._known.get(key)
        reference = spec.profile.config_map if spec.profile else None
        same_spec = known is not None and known.spec == spec
        if known and same_spec and (reference is None or self._monotonic() - known.read_at < READ_AGAIN_S):
            return known.models
        text = await self._read(key, reference) if reference else None
        if isinstance(text, _Unread):
            text = known.text if known and same_spec else text.why
        unchanged = known is not None and same_spec and known.text == text
        found = known.models if known and unchanged else models.of(spec, config_map_text=text)
        self._known[key] = _Known(spec=spec, text=text, read_at=self._monotonic(), models=found)
        return found

    async def _read(self, key: Key, reference: ConfigMapKey) -> "str | Unknown | _Unread":
        place = f"ConfigMap {key.namespace}/{reference.name}"
        try:
            config_map = await self._kube.get(CONFIG_MAP, reference.name, namespace=key.namespace)
        except KubeError as error:
            why = Unknown(f"{place} cannot be read: {error.reason}")
            return _Unread(why) if error.transient else why
        text = field(config_map, "data", reference.key)
        return text if isinstance(text, str) else Unknown(f"{place} has no key {reference.key!r}")
