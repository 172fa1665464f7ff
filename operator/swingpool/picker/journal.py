"""What became of each of the last requests, step by step, for whoever asks why one of them was slow or failed.

It holds no prompts and no answers: lengths, times, workers, and the reasons of decisions.
"""

import time
from collections import deque
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from swingpool.picker.tracing import Trace

MOST_ENTRIES = 2000
"""Requests that are remembered."""


class Entry:
    """One request; times are Unix seconds."""

    __slots__ = (
        "arrived_unix_s",
        "ended_unix_s",
        "first_token_unix_s",
        "kind",
        "path",
        "predicted_first_token_s",
        "predicted_prompt_s",
        "prompt_tokens",
        "request_id",
        "status",
        "steps",
        "stream",
        "tenant",
        "trace",
        "trouble",
    )

    def __init__(
        self, request_id: str, path: str, *, kind: str, tenant: str, stream: bool, arrived_unix_s: float
    ) -> None:
        self.request_id = request_id
        self.path = path
        self.kind = kind
        self.tenant = tenant
        self.stream = stream
        self.arrived_unix_s = arrived_unix_s
        self.prompt_tokens = 0
        self.steps: list[tuple[float, str]] = []
        self.predicted_prompt_s: float | None = None
        """Seconds from its arrival to the end of its prompt, as predicted when that was sent to a worker."""
        self.predicted_first_token_s: float | None = None
        """And to its first token, by that, the transfer and the decode worker's next step."""
        self.first_token_unix_s: float | None = None
        self.ended_unix_s: float | None = None
        self.status = 0
        self.trouble = ""
        self.trace: Trace | None = None
        """Its spans, if it is traced."""

    def step(self, text: str) -> None:
        """Note what happens now."""
        self.steps.append((time.time(), text))

    def ended(self, status: int, trouble: str = "", *, at_unix_s: float | None = None) -> None:
        """Note its end.

        Args:
            status: what the client got; 0 if it left before.
            trouble: why it ended badly, in a word; empty if it did not.
            at_unix_s: when it ended; None for now.
        """
        self.ended_unix_s, self.status, self.trouble = at_unix_s or time.time(), status, trouble
        if self.trace is not None:
            self.trace.ended()

    def told(self) -> dict[str, Any]:
        """Return it as JSON tells it; seconds are since its arrival."""

        def after(at_unix_s: float | None) -> float | None:
            return None if at_unix_s is None else round(at_unix_s - self.arrived_unix_s, 6)

        foreseen = self.predicted_first_token_s
        return {
            "requestID": self.request_id,
            "path": self.path,
            "class": self.kind,
            "tenant": self.tenant,
            "stream": self.stream,
            "arrivedUnixS": self.arrived_unix_s,
            "promptTokens": self.prompt_tokens,
            "steps": [{"afterS": after(at), "what": text} for at, text in self.steps],
            "predictedFirstTokenAfterS": None if foreseen is None else round(foreseen, 6),
            "firstTokenAfterS": after(self.first_token_unix_s),
            "endedAfterS": after(self.ended_unix_s),
            "status": self.status,
            "trouble": self.trouble,
        }


class Journal:
    """The last requests."""

    def __init__(self, most: int = MOST_ENTRIES) -> None:
        self._entries: deque[Entry] = deque(maxlen=most)

    def add(self, entry: Entry) -> None:
        """Remember a request that arrived."""
        self._entries.append(entry)

    def of(self, request_id: str) -> list[Entry]:
        """Return what is remembered of an id, newest first: a client may use one id more than once."""
        return [entry for entry in reversed(self._entries) if entry.request_id == request_id]

    def slowest(self, most: int) -> list[Entry]:
        """Return the requests that waited longest for their first token or have none yet, longest first."""

        def waited_s(entry: Entry) -> float:
            until = entry.first_token_unix_s or entry.ended_unix_s or time.time()
            return until - entry.arrived_unix_s

        return sorted(self._entries, key=waited_s, reverse=True)[:most]
