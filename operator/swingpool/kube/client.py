"""A thin asynchronous client: plain dicts over lightkube, one error type, every call named and counted.

It holds no state but the connection, retries nothing (callers are loops, and decide anew), and bounds every call.
"""

from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self, TypeVar, cast

import httpx2
from lightkube import AsyncClient, KubeConfig
from lightkube.core.exceptions import ConfigError
from lightkube.core.resource import NamespacedResourceG
from lightkube.types import PatchType

from swingpool.kube.errors import FAILURES, KubeError, error_from
from swingpool.kube.kinds import POD, Kind, kind_of
from swingpool.kube.objects import Object, name_of, namespace_of

CallObserver = Callable[[str, str, int | None], None]
"""Told after each call: verb, kind, HTTP status (200 for any success, None for no answer)."""

T = TypeVar("T")

PAGE = 500
"""Objects per answer to a list."""

WATCH_TIMEOUT_S = 300
"""The server ends a watch after so long; lightkube opens the next at once."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ObjectList:
    """What a list returned, and the resource version it is of."""

    objects: tuple[Object, ...]
    resource_version: str


class Kube:
    """The API server, as far as Swingpool uses it. Every method raises `KubeError` when a call fails."""

    def __init__(self, config: KubeConfig, *, timeout_s: float = 10.0, on_call: CallObserver | None = None) -> None:
        self.lightkube = AsyncClient(config=config, timeout=httpx2.Timeout(timeout_s))
        self._on_call = on_call

    @classmethod
    def load(
        cls, kubeconfig: str | Path | None = None, *, timeout_s: float = 10.0, on_call: CallObserver | None = None
    ) -> Self:
        """Connect by a kubeconfig file, else by the pod's ServiceAccount, `$KUBECONFIG` or `~/.kube/config`.

        Raises:
            KubeError: no configuration is found, or it is broken.
        """
        try:
            config = KubeConfig.from_file(kubeconfig) if kubeconfig else KubeConfig.from_env()
            return cls(config, timeout_s=timeout_s, on_call=on_call)
        except (ConfigError, KeyError, OSError) as error:
            raise KubeError(status=None, reason="BadConfiguration", message=str(error)) from error

    async def __aenter__(self) -> Self:
        """Return the client; leaving closes it."""
        return self

    async def __aexit__(self, *exception: object) -> None:
        """Close the connections."""
        await self.close()

    async def close(self) -> None:
        """Close the connections."""
        await self.lightkube.close()

    async def get(self, kind: Kind, name: str, *, namespace: str) -> Object:
        """Return one object."""
        call = self.lightkube.get(kind.resource, name, namespace=namespace)
        return await self._done("get", kind, f"{namespace}/{name}", call)

    async def list(self, kind: Kind, *, namespace: str | None, labels: dict[str, str] | None = None) -> ObjectList:
        """Return the objects of a kind, page by page.

        Args:
            kind: the kind.
            namespace: where; None for everywhere.
            labels: only objects with these.
        """

        async def pages() -> ObjectList:
            found = self.lightkube.list(
                kind.resource,
                namespace=namespace or "*",
                chunk_size=PAGE,
                labels=dict(labels) if labels else None,
            )
            objects = tuple([named(kind, item) async for item in found])
            return ObjectList(objects=objects, resource_version=found.resourceVersion)

        return await self._done("list", kind, namespace or "*", pages())

    async def create(self, obj: Object) -> Object:
        """Create an object; 409 if it exists. `metadata.generateName` works."""
        kind = kind_of(obj)
        call = self.lightkube.create(kind.resource.from_dict(obj))
        return await self._done("create", kind, _place(obj), call)

    async def replace(self, obj: Object) -> Object:
        """Replace an object; 409 if its `metadata.resourceVersion` is not the present one."""
        kind = kind_of(obj)
        call = self.lightkube.replace(kind.resource.from_dict(obj), name_of(obj), namespace=namespace_of(obj))
        return await self._done("update", kind, _place(obj), call)

    async def apply(self, obj: Object, *, field_manager: str, force: bool = True) -> Object:
        """Server-side apply an object, creating it if it does not exist; with `force` conflicts are taken over."""
        kind = kind_of(obj)
        call = self._apply(kind.resource, obj, field_manager, force)
        return await self._done("patch", kind, _place(obj), call)

    async def apply_status(self, obj: Object, *, field_manager: str, force: bool = True) -> Object:
        """Server-side apply an object's /status; 409 if it names a resource version that is not the present one."""
        kind = kind_of(obj)
        call = self._apply(kind.status, obj, field_manager, force)
        return await self._done("patch", kind, f"{_place(obj)}/status", call)

    async def json_patch(
        self, kind: Kind, name: str, *, namespace: str, operations: Sequence[dict[str, Any]], field_manager: str
    ) -> Object:
        """Apply a JSON patch; 422 (`invalid`) if one of its tests fails."""
        call = self.lightkube.patch(
            kind.resource,
            name,
            list(operations),
            namespace=namespace,
            patch_type=PatchType.JSON,
            field_manager=field_manager,
        )
        return await self._done("patch", kind, f"{namespace}/{name}", call)

    async def delete(self, kind: Kind, name: str, *, namespace: str) -> None:
        """Delete an object; its dependents go in the background."""
        call = self.lightkube.delete(kind.resource, name, namespace=namespace)
        await self._done("delete", kind, f"{namespace}/{name}", call)

    async def log(self, pod: str, *, namespace: str) -> tuple[str, ...]:
        """Return what a pod's only container has written since it started, line by line."""

        async def lines() -> tuple[str, ...]:
            return tuple([line async for line in self.lightkube.log(pod, namespace=namespace, newlines=False)])

        return await self._done("get", POD, f"{namespace}/{pod}/log", lines())

    def watch_once(
        self, kind: Kind, *, namespace: str | None, labels: dict[str, str] | None, resource_version: str
    ) -> AsyncGenerator[tuple[str, Object], None]:
        """Yield changes after a version until the connection ends; raises one of `errors.FAILURES`. See `watch`."""
        stream = self.lightkube.watch(
            kind.resource,
            namespace=namespace or "*",
            labels=dict(labels) if labels else None,
            resource_version=resource_version,
            server_timeout=WATCH_TIMEOUT_S,
        )
        return cast(AsyncGenerator[tuple[str, Object], None], stream)

    def _apply(
        self, resource: type[NamespacedResourceG], obj: Object, field_manager: str, force: bool
    ) -> Awaitable[Any]:
        return self.lightkube.patch(
            resource,
            name_of(obj),
            obj,
            namespace=namespace_of(obj),
            patch_type=PatchType.APPLY,
            field_manager=field_manager,
            force=force,
        )

    async def _done(self, verb: str, kind: Kind, place: str, call: Awaitable[T]) -> T:
        """Await a call; count it; give its failure the one shape."""
        try:
            result = await call
        except FAILURES as failure:
            error = error_from(failure, call=f"{verb} {kind.plural} {place}")
            if self._on_call:
                self._on_call(verb, kind.kind, error.status)
            raise error from failure
        if self._on_call:
            self._on_call(verb, kind.kind, 200)
        return result


def _place(obj: Object) -> str:
    return f"{namespace_of(obj)}/{name_of(obj) or '(new)'}"


def named(kind: Kind, item: Object) -> Object:
    """Return an item of a list with the `apiVersion` and `kind` that lists leave out."""
    return {**item, "apiVersion": kind.api_version, "kind": kind.kind}
