"""Priorities of requests by the InferenceObjectives that they name, as the API server tells them.

The picker follows them itself, as it does pods: what is known counts while the manager, or the API server, is away.
"""

import logging
from collections.abc import Callable, Mapping

from swingpool.kube import Interrupted, Known, Kube, Snapshot, WatchEvent, watch
from swingpool.kube.kinds import INFERENCE_OBJECTIVE
from swingpool_control.resources.inference_objective import priorities

Publish = Callable[[Mapping[str, int]], None]

log = logging.getLogger(__name__)


class Objectives:
    """Follows the InferenceObjectives of one InferencePool.

    Args:
        kube: the API server.
        namespace: the pool's.
        pool: its name.
    """

    def __init__(self, kube: Kube, *, namespace: str, pool: str) -> None:
        self._kube = kube
        self._namespace = namespace
        self._pool = pool
        self._objects = Known()
        self._published: dict[str, int] = {}
        self._trouble = ""

    async def follow(self, publish: Publish) -> None:
        """Publish the priorities by name, at once and after each change; never returns by itself."""
        async for event in watch(self._kube, INFERENCE_OBJECTIVE, namespace=self._namespace):
            self._objects.take(event)
            self._note(event)
            found = priorities(self._objects.objects, pool=self._pool)
            if found != self._published:
                self._published = found
                log.info("priorities of %d InferenceObjectives", len(found))
                publish(found)

    def _note(self, event: WatchEvent) -> None:
        """Take note of trouble, and of its end."""
        match event:
            case Snapshot():
                self._trouble = ""
            case Interrupted(error=error):
                if error.not_found:  # there is no such kind any more, or not yet
                    self._objects.forget()
                if str(error) != self._trouble:
                    self._trouble = str(error)
                    log.warning("InferenceObjectives cannot be read; going on with those known last: %s", error)
