"""Spans as OTLP over HTTP takes them, and their way to a collector, in the background.

OpenTelemetry's exporter would bring the protobuf modules that come with Envoy's already, at another version and under
the same names. What a span says fits in a few fields, which are written here by their numbers (opentelemetry-proto 1.x,
`trace/v1/trace.proto`).
"""

import asyncio
import logging
import struct
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import IntEnum
from functools import lru_cache

import aiohttp

from swingpool.telemetry.varint import varint

FLUSH_S = 1.0
MOST_SPANS = 16_384
"""Spans that wait to be sent; more are dropped, and that is said."""
BATCH = 512
TIMEOUT_S = 5.0
COMPLAIN_EVERY_S = 60.0

AttributeValue = str | bool | int | float

log = logging.getLogger(__name__)

_FIXED64 = struct.Struct("<Q")
_DOUBLE = struct.Struct("<d")
_ERROR = b"\x18\x02"
"""Status: code ERROR."""


class Kind(IntEnum):
    """Whose work a span is."""

    INTERNAL = 1
    SERVER = 2
    CLIENT = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Span:
    """Something that took time; times are Unix seconds."""

    trace_id: bytes
    span_id: bytes
    parent_id: bytes
    name: str
    start_unix_s: float
    end_unix_s: float
    kind: Kind = Kind.INTERNAL
    attributes: Mapping[str, AttributeValue] = field(default_factory=dict)
    error: str = ""
    """Why it failed; empty if it did not."""


class Exporter:
    """Sends spans, some at a time. What a collector does not take is lost: traces are no reason to hold anything up.

    Args:
        url: where OTLP's traces are taken, with its path.
        resource: who sends, as attributes.
        scope: what made the spans.
        session: sends them.
    """

    def __init__(self, url: str, resource: Mapping[str, str], *, scope: str, session: aiohttp.ClientSession) -> None:
        self._url = url
        self._resource = dict(resource)
        self._scope = scope
        self._session = session
        self._spans: list[Span] = []
        self._lost = 0
        self._why = ""
        self._complained_s = -COMPLAIN_EVERY_S

    def add(self, span: Span) -> None:
        """Send a span soon."""
        if len(self._spans) < MOST_SPANS:
            self._spans.append(span)
        else:
            self._lost += 1
            self._why = self._why or "too many at a time"

    async def follow(self) -> None:
        """Send what there is, again and again, until cancelled; then once more."""
        try:
            while True:
                await asyncio.sleep(FLUSH_S)
                await self.flush()
        finally:
            await self.flush()

    async def flush(self) -> None:
        """Send what there is."""
        spans, self._spans = self._spans, []
        for start in range(0, len(spans), BATCH):
            batch = spans[start : start + BATCH]
            body = await asyncio.to_thread(request, batch, resource=self._resource, scope=self._scope)
            if why := await self._post(body):
                self._lost += len(batch)
                self._why = why
        self._complain()

    async def _post(self, body: bytes) -> str:
        """Return why it was not taken; empty if it was."""
        headers = {"content-type": "application/x-protobuf"}
        timeout = aiohttp.ClientTimeout(total=TIMEOUT_S)
        try:
            async with self._session.post(self._url, data=body, headers=headers, timeout=timeout) as response:
                return "" if response.status < 300 else f"status {response.status}"
        except TimeoutError:
            return f"no answer within {TIMEOUT_S:g} s"
        except aiohttp.ClientError as error:
            return str(error) or type(error).__name__

    def _complain(self) -> None:
        now_s = time.monotonic()
        if self._lost and now_s - self._complained_s >= COMPLAIN_EVERY_S:
            log.warning("%d spans are lost, %s could not take them: %s", self._lost, self._url, self._why)
            self._lost, self._why, self._complained_s = 0, "", now_s


def request(spans: Iterable[Span], *, resource: Mapping[str, str], scope: str) -> bytes:
    """Return a serialised ExportTraceServiceRequest."""
    scoped = _bytes(1, _bytes(1, scope.encode())) + b"".join(_bytes(2, _span(span)) for span in spans)
    return _bytes(1, _bytes(1, _attributes(1, resource)) + _bytes(2, scoped))


def _span(span: Span) -> bytes:
    parts = [
        _bytes(1, span.trace_id),
        _bytes(2, span.span_id),
        _bytes(4, span.parent_id),
        _name(5, span.name),
        bytes((6 << 3, span.kind)),
        bytes((7 << 3 | 1,)) + _FIXED64.pack(_nanoseconds(span.start_unix_s)),
        bytes((8 << 3 | 1,)) + _FIXED64.pack(_nanoseconds(max(span.start_unix_s, span.end_unix_s))),
        _attributes(9, span.attributes),
    ]
    if span.error:
        parts.append(_bytes(15, _bytes(2, span.error.encode()) + _ERROR))
    return b"".join(parts)


def _nanoseconds(unix_s: float) -> int:
    """Return a time in nanoseconds, as exactly as the clock is: to a microsecond."""
    return round(unix_s * 1e6) * 1000


def _attributes(number: int, values: Mapping[str, AttributeValue]) -> bytes:
    return b"".join(_bytes(number, _name(1, key) + _bytes(2, _value(value))) for key, value in values.items())


def _value(value: AttributeValue) -> bytes:
    """Return a serialised AnyValue; a truth is a number too in Python, and so comes first."""
    if isinstance(value, bool):
        return bytes((2 << 3, value))
    if isinstance(value, int):
        return bytes((3 << 3,)) + varint(value & (1 << 64) - 1)
    if isinstance(value, float):
        return bytes((4 << 3 | 1,)) + _DOUBLE.pack(value)
    return _bytes(1, value.encode(errors="replace"))


def _bytes(number: int, payload: bytes) -> bytes:
    """Return a serialised field that holds a message, a text or bytes; all numbers here are below 16."""
    return bytes((number << 3 | 2,)) + varint(len(payload)) + payload


@lru_cache(maxsize=256)
def _name(number: int, text: str) -> bytes:
    """Return a serialised field that holds one of a few texts."""
    return _bytes(number, text.encode())
