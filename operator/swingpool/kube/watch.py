"""An informer: the objects of a kind, listed once and then followed, whatever happens to the API server.

It lists anew only when it must (a resource version that is too old); a dropped connection, a restart of the API server
or a silent one resumes from the last version seen. It never ends by itself.
"""

import asyncio
from collections.abc import AsyncGenerator
from dataclasses import dataclass

from swingpool.kube.backoff import delay_s
from swingpool.kube.client import Kube, named
from swingpool.kube.errors import FAILURES, KubeError, error_from
from swingpool.kube.kinds import Kind
from swingpool.kube.objects import Object, metadata

IDLE_S = 60.0
"""A watch that says nothing for so long is opened anew: a dead connection looks like a quiet one."""

FIRST_BACKOFF_S = 0.2
LONGEST_BACKOFF_S = 10.0


@dataclass(frozen=True, slots=True)
class Snapshot:
    """All objects that exist; whatever else was known is gone."""

    objects: tuple[Object, ...]


@dataclass(frozen=True, slots=True)
class Upserted:
    """An object was created or changed."""

    object: Object


@dataclass(frozen=True, slots=True)
class Removed:
    """An object was deleted; this is its last state."""

    object: Object


@dataclass(frozen=True, slots=True)
class Interrupted:
    """Listing or watching failed and will be tried again: what is known may be old."""

    error: KubeError


WatchEvent = Snapshot | Upserted | Removed | Interrupted


async def watch(
    kube: Kube,
    kind: Kind,
    *,
    namespace: str | None,
    labels: dict[str, str] | None = None,
    idle_s: float = IDLE_S,
) -> AsyncGenerator[WatchEvent, None]:
    """List, then follow, the objects of a kind for ever.

    Args:
        kube: the client.
        kind: the kind.
        namespace: where; None for everywhere.
        labels: only objects with these.
        idle_s: see `IDLE_S`.
    """
    version: str | None = None
    failures = 0
    while True:
        try:
            if version is None:
                found = await kube.list(kind, namespace=namespace, labels=labels)
                version = found.resource_version
                failures = 0
                yield Snapshot(found.objects)
            stream = kube.watch_once(kind, namespace=namespace, labels=labels, resource_version=version)
            async for event, seen in _follow(stream, kind, version=version, idle_s=idle_s):
                version = seen
                failures = 0
                yield event
        except KubeError as error:
            failures += 1
            if error.gone:
                version = None
            # One expired version is business as usual and needs no wait; a server that says so each time does.
            if not error.gone or failures > 1:
                yield Interrupted(error)
                await asyncio.sleep(delay_s(failures, first_s=FIRST_BACKOFF_S, longest_s=LONGEST_BACKOFF_S))


async def _follow(
    stream: AsyncGenerator[tuple[str, Object], None], kind: Kind, *, version: str, idle_s: float
) -> AsyncGenerator[tuple[WatchEvent, str], None]:
    """Yield changes, each with its own version; return when nothing was heard for `idle_s`."""
    try:
        while True:
            try:
                # Not by wait_for, which forgets a cancellation that comes together with a change.
                async with asyncio.timeout(idle_s):
                    change, raw = await anext(stream)
            except (TimeoutError, StopAsyncIteration):
                return
            obj = named(kind, raw)
            seen = str(metadata(obj).get("resourceVersion", version))
            yield (Removed(obj) if change == "DELETED" else Upserted(obj)), seen
    except FAILURES as failure:
        raise error_from(failure, call=f"watch {kind.plural}") from failure
    finally:
        await stream.aclose()
