"""The picker's spans of a request, under the span that Envoy gave its call.

```
request                       arrival to the end of the answer
├ first_token                 arrival to the first token, of answers that stream
│ ├ queue                     until a worker is chosen; again after a failed leg
│ ├ prefill                   the leg on a prefill worker; the worker's own span hangs on it
│ └ transfer                  hand-over to the first token: the KV cache comes, one iteration follows
└ generation                  first token to the end
```

A request that one worker serves whole has `whole` in the place of `prefill` and `transfer`. The first token of an
answer that does not stream is nobody's to see here: `generation` begins at the hand-over then, and the rest hangs on
`request`.
"""

import os
import random
import re
import time
from collections.abc import Mapping

from swingpool.picker.journal import Entry
from swingpool.picker.leg import Computed, Failed, LegResult, Refused
from swingpool.telemetry.otlp import AttributeValue, Exporter, Kind, Span
from swingpool_control import names

SCOPE = "swingpool.picker"
SAMPLED = 1

_PARENT = re.compile(r"^(?!ff)[0-9a-f]{2}-(?!0{32})([0-9a-f]{32})-(?!0{16})([0-9a-f]{16})-([0-9a-f]{2})(-.*)?$")
_numbers = random.Random(os.urandom(16))  # noqa: S311 - ids, no secrets


class Trace:
    """One request's spans. Whoever carries the request says what happens now.

    Args:
        exporter: takes them.
        trace_id: of the trace that they belong to.
        parent_id: the span that they hang on.
        entry: the request.
    """

    __slots__ = (
        "_entry",
        "_exporter",
        "_first",
        "_handed_unix_s",
        "_kept_by",
        "_leg_id",
        "_leg_unix_s",
        "_parent_id",
        "_queued_unix_s",
        "_root",
        "_trace_id",
        "_whole",
        "worker",
    )

    def __init__(self, exporter: Exporter, trace_id: bytes, parent_id: bytes, entry: Entry) -> None:
        self._exporter = exporter
        self._trace_id = trace_id
        self._parent_id = parent_id
        self._entry = entry
        self._root = _span_id()
        self._first = _span_id() if entry.stream else self._root
        """What leads to the first token hangs on this."""
        self._queued_unix_s: float = entry.arrived_unix_s
        self._leg_id = b""
        self._leg_unix_s = 0.0
        self._handed_unix_s: float | None = None
        self._whole = False
        self._kept_by = ""
        self.worker = ""
        """Who generates."""

    def placed(self, *, why: str) -> None:
        """Take note that the request has waited until now."""
        now_s = time.time()
        self._tell("queue", self._queued_unix_s, now_s, parent=self._first, attributes={"swingpool.placement": why})

    def leg(self, worker: str, headers: Mapping[str, str]) -> dict[str, str]:
        """Take note that a leg begins; return its headers, by which the worker's span hangs on the leg's."""
        self._leg_id, self._leg_unix_s, self._kept_by = _span_id(), time.time(), worker
        parent = f"00-{self._trace_id.hex()}-{self._leg_id.hex()}-{SAMPLED:02x}"
        return {**headers, names.HEADER_TRACE: parent}

    def leg_ended(self, result: LegResult | None) -> None:
        """Take note that the leg has ended, or None if the client has left; the request waits again if it failed."""
        attributes: dict[str, AttributeValue] = {"swingpool.worker": self._kept_by}
        error = ""
        match result:
            case Computed(prompt_tokens=tokens):
                attributes["gen_ai.usage.input_tokens"] = tokens
            case Refused(status=status):
                error = f"status {status}"
            case Failed(why=why):
                error = why
            case None:
                error = "client_disconnect"
        self._queued_unix_s = now_s = time.time()
        self._tell(
            "prefill", self._leg_unix_s, now_s, parent=self._first, span_id=self._leg_id, kind=Kind.CLIENT,
            attributes=attributes, error=error,
        )  # fmt: skip

    def handed(self, worker: str, *, whole: bool) -> None:
        """Take note that Envoy has the request from here on."""
        self.worker, self._whole, self._handed_unix_s = worker, whole, time.time()

    def ended(self) -> None:
        """Tell of the request, whose entry says how it ended."""
        entry, end_s = self._entry, self._entry.ended_unix_s or time.time()
        failed = entry.trouble or (f"status {entry.status}" if entry.status >= 500 else "")
        first_s = entry.first_token_unix_s if entry.stream else None
        if entry.stream:
            self._tell("first_token", entry.arrived_unix_s, first_s or end_s, parent=self._root, span_id=self._first,
                       error="" if first_s else failed)  # fmt: skip
        if self._handed_unix_s is not None:
            self._generated(self._handed_unix_s, first_s, end_s, failed)
        attributes: dict[str, AttributeValue] = {
            "swingpool.request_id": entry.request_id,
            "http.response.status_code": entry.status,
            "url.path": entry.path,
            "gen_ai.usage.input_tokens": entry.prompt_tokens,
            "swingpool.stream": entry.stream,
        }
        named = {"swingpool.class": entry.kind, "swingpool.tenant": entry.tenant}
        attributes.update({key: value for key, value in named.items() if value})
        self._tell("request", entry.arrived_unix_s, end_s, parent=self._parent_id, span_id=self._root,
                   kind=Kind.SERVER, attributes=attributes, error=failed)  # fmt: skip

    def _generated(self, handed_s: float, first_s: float | None, end_s: float, failed: str) -> None:
        attributes = {"swingpool.worker": self.worker}
        if self._entry.stream:
            name = "whole" if self._whole else "transfer"
            self._tell(name, handed_s, first_s or end_s, parent=self._first, attributes=attributes,
                       error="" if first_s else failed)  # fmt: skip
        if first_s is not None or not self._entry.stream:
            self._tell("generation", first_s or handed_s, end_s, parent=self._root, attributes=attributes, error=failed)

    def _tell(
        self,
        name: str,
        start_unix_s: float,
        end_unix_s: float,
        *,
        parent: bytes,
        span_id: bytes = b"",
        kind: Kind = Kind.INTERNAL,
        attributes: Mapping[str, AttributeValue] | None = None,
        error: str = "",
    ) -> None:
        self._exporter.add(
            Span(
                trace_id=self._trace_id,
                span_id=span_id or _span_id(),
                parent_id=parent,
                name=name,
                start_unix_s=start_unix_s,
                end_unix_s=end_unix_s,
                kind=kind,
                attributes=attributes or {},
                error=error,
            )
        )


class Tracer:
    """Begins traces of the requests that shall be traced."""

    def __init__(self, exporter: Exporter) -> None:
        self.exporter = exporter

    def begin(self, traceparent: str, entry: Entry) -> Trace | None:
        """Return a request's trace; None if Envoy has decided that it is not traced.

        Args:
            traceparent: as Envoy sent it with its call.
            entry: the request.
        """
        found = _PARENT.match(traceparent)
        if found is None or not int(found[3], 16) & SAMPLED:
            return None
        return Trace(self.exporter, bytes.fromhex(found[1]), bytes.fromhex(found[2]), entry)


def _span_id() -> bytes:
    return _numbers.randbytes(8)
