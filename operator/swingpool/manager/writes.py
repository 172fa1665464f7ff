"""The one door through which the manager changes anything: each write first checks that we still lead."""

from collections.abc import Sequence
from typing import Any

from swingpool.kube import Kube, Object
from swingpool.kube.kinds import Kind, kind_of
from swingpool.manager.lease import Leadership
from swingpool.manager.store import Store
from swingpool_control import names


class Writes:
    """Writes for a leader; every method raises `KubeError` if the call fails and `NotLeadingError` if we do not lead.

    What the API server answers goes into the store, so that no later decision stands on what was before the write.
    """

    def __init__(self, kube: Kube, leadership: Leadership, store: Store) -> None:
        self._kube = kube
        self._leadership = leadership
        self._store = store

    async def apply(self, manifest: Object, *, field_manager: str = names.FIELD_MANAGER) -> Object:
        """Server-side apply; conflicts are taken over, since what we ask for is ours to say."""
        self._leadership.check()
        return self._seen(await self._kube.apply(manifest, field_manager=field_manager))

    async def apply_status(self, manifest: Object) -> Object:
        """Server-side apply of an InferenceCluster's /status."""
        self._leadership.check()
        return self._seen(await self._kube.apply_status(manifest, field_manager=names.FIELD_MANAGER_STATUS))

    async def json_patch(
        self, kind: Kind, name: str, *, namespace: str, operations: Sequence[dict[str, Any]]
    ) -> Object:
        """Apply a JSON patch."""
        self._leadership.check()
        return self._seen(
            await self._kube.json_patch(
                kind, name, namespace=namespace, operations=operations, field_manager=names.FIELD_MANAGER
            )
        )

    async def create(self, obj: Object) -> None:
        """Create an object that is not kept in the store."""
        self._leadership.check()
        await self._kube.create(obj)

    async def delete(self, kind: Kind, name: str, *, namespace: str) -> None:
        """Delete an object; the watch tells when it is gone."""
        self._leadership.check()
        await self._kube.delete(kind, name, namespace=namespace)

    def _seen(self, obj: Object) -> Object:
        self._store.upsert(kind_of(obj), obj)
        return obj
