"""A receiver of OTLP over HTTP that keeps the spans it is sent, read by the protobuf messages of Envoy's package."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from aiohttp import web
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

SCOPE_SPANS, SPANS = 2, 2
"""Fields whose names have changed and whose numbers have not."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """A span as it came."""

    service: str
    name: str
    trace_id: str
    span_id: str
    parent_id: str
    start_ns: int
    end_ns: int
    kind: int
    attributes: dict[str, Any]
    error: str


@dataclass
class Collector:
    """What was received; it answers with `status`."""

    port: int = 0
    status: int = 200
    spans: list[Seen] = field(default_factory=list)

    def named(self, name: str, *, trace_id: str = "") -> list[Seen]:
        """Return the spans of a name, of all traces or of one."""
        return [one for one in self.spans if one.name == name and trace_id in ("", one.trace_id)]

    async def take(self, request: web.Request) -> web.Response:
        """Take an export."""
        assert request.path == "/v1/traces"
        assert request.content_type == "application/x-protobuf"
        self.spans += spans_of(await request.read())
        return web.Response(status=self.status)


def spans_of(body: bytes) -> list[Seen]:
    """Return the spans of a serialised ExportTraceServiceRequest."""
    found: list[Seen] = []
    for resource in ExportTraceServiceRequest.FromString(body).resource_spans:
        service = _values(resource.resource.attributes)["service.name"]
        for scope in _field(resource, SCOPE_SPANS):
            found += [_seen(span, service) for span in _field(scope, SPANS)]
    return found


def _seen(span: Any, service: str) -> Seen:
    return Seen(
        service=service,
        name=span.name,
        trace_id=span.trace_id.hex(),
        span_id=span.span_id.hex(),
        parent_id=span.parent_span_id.hex(),
        start_ns=span.start_time_unix_nano,
        end_ns=span.end_time_unix_nano,
        kind=span.kind,
        attributes=_values(span.attributes),
        error=span.status.message if span.status.code == 2 else "",
    )


def _field(message: Any, number: int) -> Any:
    return getattr(message, message.DESCRIPTOR.fields_by_number[number].name)


def _values(attributes: Any) -> dict[str, Any]:
    return {one.key: getattr(one.value, one.value.WhichOneof("value")) for one in attributes}


@asynccontextmanager
async def collecting(port: int = 0) -> AsyncIterator[Collector]:
    """Yield a receiver that listens on a port of loopback; 0 takes any."""
    collector = Collector()
    app = web.Application()
    app.router.add_post("/{path:.*}", collector.take)
    runner = web.AppRunner(app)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", port).start()
    collector.port = int(runner.addresses[0][1])
    try:
        yield collector
    finally:
        await runner.cleanup()
