"""Events on InferenceClusters: what a user sees in `kubectl describe`. Few, and never the same one twice in a row.

A message that was told within `REPEAT_S` is not told again, and a cluster gets at most `BURST` Events at once and one
more every `REFILL_S`; what is left out still stands in the log. An Event that cannot be written is dropped: it tells of
a change, and is none itself.
"""

import logging
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Literal

from swingpool.kube import KubeError, Object
from swingpool.kube.objects import metadata, name_of, namespace_of, uid_of
from swingpool.manager.store import Key
from swingpool.manager.writes import Writes
from swingpool_control import names
from swingpool_control.timestamps import rfc3339

log = logging.getLogger(__name__)

REPEAT_S = 600.0
BURST = 20
REFILL_S = 15.0
MESSAGE_LIMIT = 1024
"""Longest message the API takes, in bytes."""

REPORTER_LIMIT = 128
"""Longest name of who tells that the API takes."""


@dataclass(slots=True)
class _Budget:
    tokens: float = float(BURST)
    at: float = 0.0
    told: dict[tuple[str, str], float] = field(default_factory=dict)


class Recorder:
    """Writes Events about clusters.

    Args:
        writes: the client for writes.
        component: who tells; name of the manager's pod.
        now_unix_s: the wall clock.
    """

    def __init__(self, writes: Writes, *, component: str, now_unix_s: Callable[[], float]) -> None:
        self._writes = writes
        self._component = component
        self._now = now_unix_s
        self._budgets: dict[Key, _Budget] = {}

    async def tell(self, cluster: Object, type_: Literal["Normal", "Warning"], reason: str, message: str) -> None:
        """Write an Event about a cluster, unless it was told lately or too much is told."""
        key = Key(namespace_of(cluster), name_of(cluster))
        log.log(
            logging.WARNING if type_ == "Warning" else logging.INFO, message, extra={"reason": reason, "event": type_}
        )
        if not self._may_tell(key, reason, message):
            return
        try:
            await self._writes.create(self._event(cluster, type_, reason, message))
        except KubeError as error:
            log.warning("an event could not be written", extra={"reason": reason, "error": str(error)})

    def forget(self, key: Key) -> None:
        """Drop the memory of a cluster."""
        self._budgets.pop(key, None)

    def _may_tell(self, key: Key, reason: str, message: str) -> bool:
        now = self._now()
        budget = self._budgets.setdefault(key, _Budget(at=now))
        budget.tokens = min(BURST, budget.tokens + (now - budget.at) / REFILL_S)
        budget.at = now
        budget.told = {text: at for text, at in budget.told.items() if now - at < REPEAT_S}
        if (reason, message) in budget.told or budget.tokens < 1:
            return False
        budget.told[(reason, message)] = now
        budget.tokens -= 1
        return True

    def _event(self, cluster: Object, type_: str, reason: str, message: str) -> Object:
        at = rfc3339(self._now())
        at_second = at[:19] + "Z"
        return {
            "apiVersion": "v1",
            "kind": "Event",
            "metadata": {"generateName": f"{name_of(cluster)}.", "namespace": namespace_of(cluster)},
            "involvedObject": {
                "apiVersion": f"{names.GROUP}/{names.VERSION}",
                "kind": names.KIND,
                "namespace": namespace_of(cluster),
                "name": name_of(cluster),
                "uid": uid_of(cluster),
                "resourceVersion": str(metadata(cluster).get("resourceVersion", "")),
            },
            "type": type_,
            "reason": reason,
            "message": _cut(message, MESSAGE_LIMIT),
            "firstTimestamp": at_second,
            "lastTimestamp": at_second,
            "count": 1,
            "source": {"component": "swingpool-manager"},
            "reportingComponent": f"{names.GROUP}/manager",
            "reportingInstance": _cut(self._component, REPORTER_LIMIT),
            "action": reason,
            "eventTime": f"{at[:-1]}000Z",
        }


def _cut(text: str, limit: int) -> str:
    """Return as much of a text as fits into so many bytes, without half a character."""
    return text.encode("utf-8", errors="replace")[:limit].decode("utf-8", errors="ignore")
