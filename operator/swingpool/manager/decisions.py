"""The last decisions about each cluster with all that they stood on, for whoever asks why, or makes them again.

They are kept as they were, and written down only when somebody asks: that costs a round nothing but memory, of which a
bound on their number takes care. A step that decides the same as the one before takes its place.
"""

from collections import deque
from importlib import metadata

from swingpool.manager.store import Key
from swingpool_control.replay.decision import Decision, Recording

MOST = 16
"""Decisions that are kept of each loop of a cluster."""


class Decisions:
    """Decisions by cluster."""

    def __init__(self) -> None:
        self._known: dict[Key, dict[str, deque[Decision]]] = {}

    def add(self, key: Key, decision: Decision) -> None:
        """Keep a decision."""
        kept = self._known.setdefault(key, {}).setdefault(decision.loop, deque(maxlen=MOST))
        if kept and _says_the_same(kept[-1], decision):
            kept.pop()
        kept.append(decision)

    def forget(self, key: Key) -> None:
        """Drop those about a cluster."""
        self._known.pop(key, None)

    def of(self, key: Key) -> Recording | None:
        """Return those about a cluster, oldest first; None if there are none."""
        known = self._known.get(key)
        if not known:
            return None
        decisions = [decision for kept in known.values() for decision in kept]
        return Recording(
            cluster=f"{key.namespace}/{key.name}",
            version=metadata.version("swingpool"),
            decisions=tuple(sorted(decisions, key=lambda one: one.now_unix_s)),
        )


def _says_the_same(one: Decision, two: Decision) -> bool:
    return not one.result.actions and not two.result.actions and one.result.summary == two.result.summary
