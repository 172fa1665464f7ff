"""Full lists: at start, from time to time, and soon after a watch had to start anew.

A watch that was interrupted never tells what was deleted meanwhile, and one that hangs tells nothing at all. Lists put
that right, and show it: a change that was listed, and that its watch has still not told a while later, means that the
watch is dead, and the process is better started anew.
"""

import asyncio
import logging
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from swingpool.kube import Kube, KubeError
from swingpool.kube.kinds import INFERENCE_CLUSTER, POD, Kind
from swingpool.kube.objects import metadata
from swingpool.manager.metrics import Metrics
from swingpool.manager.reconcile import CHILD_KINDS
from swingpool.manager.store import Store, version_of
from swingpool_control import names

log = logging.getLogger(__name__)

WATCHED: tuple[Kind, ...] = (*CHILD_KINDS, POD, INFERENCE_CLUSTER)
"""Clusters last: when one is known, so are its children."""

MANAGED = {names.LABEL_MANAGED_BY: names.MANAGED_BY}

WATCH_PATIENCE_S = 120.0
"""How long a watch may lag behind a list: kopf opens a silent one anew after 70 s."""

AFTER_RELIST_S = 1.0


@dataclass(slots=True)
class _Owed:
    """A version that a list has shown and that the watch has not told yet."""

    version: int
    since: float


class WatchHealth:
    """Compares what watches told with what lists showed."""

    def __init__(self, *, monotonic: Callable[[], float], metrics: Metrics) -> None:
        self._monotonic = monotonic
        self._metrics = metrics
        self._told: dict[Kind, int] = {}
        self._owed: dict[Kind, _Owed] = {}

    def told(self, kind: Kind, version: int) -> None:
        """Note that a watch told a version of an object."""
        self._told[kind] = max(version, self._told.get(kind, -1))
        owed = self._owed.get(kind)
        if owed and self._told[kind] >= owed.version:
            del self._owed[kind]

    def listed(self, kind: Kind, version: int) -> None:
        """Note that a list showed a version that was not known."""
        if version > self._told.get(kind, -1):
            self._owed.setdefault(kind, _Owed(version, self._monotonic()))

    def lagging(self) -> list[str]:
        """Return the kinds whose watch is dead."""
        now = self._monotonic()
        late = [kind for kind, owed in self._owed.items() if now - owed.since > WATCH_PATIENCE_S]
        for kind in late:
            self._metrics.missed.labels(kind.kind).inc()
        return [kind.plural for kind in late]


class Resync:
    """Lists everything that the manager watches.

    Args:
        kube: the client.
        store: what is kept.
        health: told what lists showed that was not known.
        namespaces: where; empty for everywhere.
    """

    def __init__(self, kube: Kube, store: Store, health: WatchHealth, *, namespaces: Sequence[str]) -> None:
        self._kube = kube
        self._store = store
        self._health = health
        self._places: tuple[str | None, ...] = tuple(namespaces) or (None,)
        self._soon = asyncio.Event()
        self._last_pass = -1
        self.synced = False

    def soon(self) -> None:
        """Ask for lists in a moment: a watch has started anew."""
        self._soon.set()

    async def everything(self) -> None:
        """List all kinds in all places once.

        Raises:
            KubeError: a list failed; what was listed before it is kept.
        """
        oldest = min([await self._list(kind, place) for kind in WATCHED for place in self._places])
        # No watch is so late that it would still tell of something from before the last pass.
        self._store.forget_deletions(before=self._last_pass)
        self._last_pass = oldest
        self.synced = True

    async def run(self, period_s: float, beat: Callable[[], None]) -> None:
        """List everything again and again.

        Args:
            period_s: how often, give or take a tenth.
            beat: called after each pass.
        """
        while True:
            beat()
            try:
                wait_s = period_s * random.uniform(0.9, 1.1)  # noqa: S311 - spreads load, guards nothing
                await asyncio.wait_for(self._soon.wait(), wait_s)
                await asyncio.sleep(AFTER_RELIST_S)
            except TimeoutError:
                pass
            self._soon.clear()
            try:
                await self.everything()
            except KubeError as error:
                log.warning("resync failed; trying again", extra={"error": str(error)})
                await asyncio.sleep(AFTER_RELIST_S)
                self._soon.set()

    async def _list(self, kind: Kind, place: str | None) -> int:
        """List one kind in one place; return the version that the list is of."""
        labels = None if kind == INFERENCE_CLUSTER else MANAGED
        found = await self._kube.list(kind, namespace=place, labels=labels)
        for obj in found.objects:
            known = self._store.get(kind, metadata(obj).get("namespace", ""), metadata(obj)["name"])
            if known is None or version_of(known) < version_of(obj):
                self._health.listed(kind, version_of(obj))
        self._store.replace(kind, found.objects, resource_version=found.resource_version, namespace=place)
        return int(found.resource_version)
