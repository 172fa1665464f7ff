"""The endpoint picker's protocol as gateways of others speak it: full-duplex bodies, and answers that pass here too.

Such a gateway asks by ext_proc where a request goes, and sends it there itself: to the worker that generates, with the
body of its leg. The prefill leg runs from here, as it does behind our own Envoy. What that Envoy tells in its access
log is seen here in the answer itself, each piece of which costs the picker a message; it is told on in the same words.
"""

import asyncio
import time
import uuid
from functools import partial

from envoy.data.accesslog.v3.accesslog_pb2 import AccessLogType, HTTPAccessLogEntry
from envoy.service.ext_proc.v3.external_processor_pb2 import HttpHeaders, ProcessingRequest, ProcessingResponse

from swingpool.picker.accesslog import AccessLog
from swingpool.picker.extproc import Exchange, decides, is_form, is_large, read_headers
from swingpool.picker.flow import Flow
from swingpool.picker.handover import Route
from swingpool.picker.replies import Reply, bad_request, not_found, too_large
from swingpool.picker.rpc import Call
from swingpool.picker.scan import TransferScan
from swingpool_control import names
from swingpool_control.placement.openai import KV_TRANSFER
from swingpool_control.resources.envoy import BUFFER_LIMIT_BYTES, TAG_FIRST_BODY_US
from swingpool_control.resources.envoy_http import HOSTILE_HEADERS

METADATA = "envoy.lb"
"""Where gateways look for the worker, if not in the header, and where they tell which one has answered."""

SERVED = "x-gateway-destination-endpoint-served"

PIECE_BYTES = 60_000
"""Largest piece of a body that is sent: gateways refuse messages that are much larger."""

TELL_EVERY_S = 5.0
"""How often a request that goes on is told of, so that it is not taken for lost."""

PREFIX = "/v1/"

_REMOVED = [name for name in HOSTILE_HEADERS if not name.startswith("x-envoy-") and name != names.HEADER_DESTINATION]
_REQUEST_TRAILERS = ProcessingResponse(request_trailers={}).SerializeToString()
_RESPONSE_HEADERS = ProcessingResponse(response_headers={}).SerializeToString()
_RESPONSE_TRAILERS = ProcessingResponse(response_trailers={}).SerializeToString()


class GatewayExchange(Exchange):
    """One HTTP request as a gateway tells of it, from its headers to the end of its answer.

    Args:
        flow: who decides.
        access_log: told how the request went.
        call: what the answers go into.
    """

    __slots__ = ("_held", "_life", "_request_over", "_routed", "_size", "_trailers")

    def __init__(self, flow: Flow, access_log: AccessLog, call: Call) -> None:
        super().__init__(flow, call)
        self._life = _Life(access_log)
        self._held: list[bytes] = []
        """What has come of the request's body and waits for the decision."""
        self._size = 0
        self._request_over = False
        """Whether the request's last byte has come."""
        self._trailers = False
        """Whether that was one of its trailers."""
        self._routed = False
        """Whether the headers are answered; what comes of the body then passes."""

    def gone(self) -> None:
        """Take note that the gateway has ended the request: its answer is over, or its client has left."""
        super().gone()
        self._life.gone()

    def ended(self) -> None:
        """Take note that the gateway says nothing more: it has the whole answer, or nobody waits for one any more.

        It ends its question in good order either way, at whatever point its client leaves.
        """
        self.gone()
        self._call.end()

    def _take(self, message: ProcessingRequest) -> None:
        match message.WhichOneof("request"):
            case "request_headers":
                self._begin(message.request_headers)
            case "request_body":
                self._piece(message.request_body.body, last=message.request_body.end_of_stream)
            case "request_trailers":
                self._trailers = True
                self._piece(b"", last=True)
            case "response_headers":
                self._life.served_by(_served(message))
                self._life.begins(message.response_headers)
                self._call.send(_RESPONSE_HEADERS)
            case "response_body":
                body = message.response_body
                self._life.piece(len(body.body), last=body.end_of_stream)
                self._call.send(_piece("response_body", body.body, last=body.end_of_stream))
            case "response_trailers":
                self._life.piece(0, last=True)
                self._call.send(_RESPONSE_TRAILERS)

    def _begin(self, message: HttpHeaders) -> None:
        headers = read_headers(message)
        headers.setdefault(names.HEADER_REQUEST_ID, str(uuid.uuid4()))
        self._headers, self._life.request_id = headers, headers[names.HEADER_REQUEST_ID]
        self._request_over = bool(message.end_of_stream)
        if not headers.get(":path", "").startswith(PREFIX):
            self._refuse(not_found("the model is served under /v1"))
        elif self._request_over or is_form(headers):
            self._begin_with(self._flow.passed, self._routed_to)
        elif is_large(headers):
            self._scan = TransferScan()
            self._begin_with(partial(self._flow.passed, generates=decides(headers)), self._routed_to)

    def _piece(self, piece: bytes, *, last: bool) -> None:
        self._size += len(piece)
        self._request_over = last
        if self._scan is not None and self._scan.finds(piece):
            self._refuse(bad_request(f"a body this large may not hold {KV_TRANSFER}, and must be JSON in UTF-8"))
        elif self._routed:
            self._call.send(_REQUEST_TRAILERS if self._trailers else _piece("request_body", piece, last=last))
        elif self._size > BUFFER_LIMIT_BYTES:
            self._refuse(too_large(BUFFER_LIMIT_BYTES))
        else:
            self._held.append(piece)
            if last and self._task is None and self._headers is not None:
                self._begin_with(partial(self._outcome, self._headers, b"".join(self._held)), self._routed_to)

    def _routed_to(self, route: Route) -> None:
        self._life.expected(route.hosts[0])
        body = b"".join(self._held) if route.body is None else route.body
        whole = self._task is not None and self._request_over and bool(self._held)
        self._call.send(_routed(route, length=len(body) if whole else None))
        self._routed = True
        pieces = [body[start : start + PIECE_BYTES] for start in range(0, len(body), PIECE_BYTES)]
        if self._held and not pieces:
            pieces = [b""]
        for number, piece in enumerate(pieces, 1):
            last = self._request_over and not self._trailers and number == len(pieces)
            self._call.send(_piece("request_body", piece, last=last))
        if self._trailers:
            self._call.send(_REQUEST_TRAILERS)
        self._held.clear()

    def _refuse(self, said: Reply) -> None:
        super()._refuse(said)
        self._life.over = True


class _Life:
    """A request's later life, as its answer shows it: told to the access log in the words of an Envoy."""

    __slots__ = (
        "_access_log",
        "_attempts",
        "_bytes",
        "_first_us",
        "_host",
        "_started_s",
        "_status",
        "_timer",
        "over",
        "request_id",
    )

    def __init__(self, access_log: AccessLog) -> None:
        self._access_log = access_log
        self._started_s = time.monotonic()
        self._host = ""
        self._attempts = 1
        self._status = 0
        self._bytes = 0
        self._first_us: int | None = None
        self._timer: asyncio.TimerHandle | None = None
        self.over = False
        self.request_id = ""

    def expected(self, host: str) -> None:
        """Take note that a worker has the request."""
        self._host = host
        self._timer = asyncio.get_running_loop().call_later(TELL_EVERY_S, self._goes_on)

    def served_by(self, host: str) -> None:
        """Take note of which worker the gateway says has answered; it need not be the one that it was told."""
        if host and host != self._host:
            self._host, self._attempts = host, 2

    def begins(self, headers: HttpHeaders) -> None:
        """Take the answer's headers."""
        status = read_headers(headers).get(":status", "")
        self._status = int(status) if status.isdecimal() else 0
        if headers.end_of_stream:
            self._ends()

    def piece(self, size: int, *, last: bool) -> None:
        """Take a piece of the answer's body."""
        self._bytes += size
        if size and self._first_us is None:
            self._first_us = round((time.monotonic() - self._started_s) * 1e6)
            self._tell(AccessLogType.DownstreamPeriodic)
        if last:
            self._ends()

    def gone(self) -> None:
        """Take note that nothing more comes."""
        if not self.over and self._host:
            self._ends(left=True)
        if self._timer is not None:
            self._timer.cancel()

    def _goes_on(self) -> None:
        self._tell(AccessLogType.DownstreamPeriodic)
        self._timer = asyncio.get_running_loop().call_later(TELL_EVERY_S, self._goes_on)

    def _ends(self, *, left: bool = False) -> None:
        if not self.over:
            self.over = True
            self._tell(AccessLogType.DownstreamEnd, left=left)
        if self._timer is not None:
            self._timer.cancel()

    def _tell(self, kind: "AccessLogType.ValueType", *, left: bool = False) -> None:
        entry = HTTPAccessLogEntry()
        common = entry.common_properties
        common.access_log_type = kind
        common.duration.FromMicroseconds(round((time.monotonic() - self._started_s) * 1e6))
        host, _, port = self._host.rpartition(":")
        common.upstream_remote_address.socket_address.address = host.strip("[]")
        common.upstream_remote_address.socket_address.port_value = int(port)
        common.upstream_request_attempt_count = self._attempts
        common.response_flags.downstream_remote_reset = left
        if self._first_us is not None:
            common.custom_tags[TAG_FIRST_BODY_US] = str(self._first_us)
        entry.request.request_id = self.request_id
        entry.response.response_code.value = self._status
        entry.response.response_body_bytes = self._bytes
        self._access_log.entry(entry)


def _served(message: ProcessingRequest) -> str:
    """Return which worker has answered, `HOST:PORT`; empty if the gateway does not tell, or tells no such thing."""
    told = message.metadata_context.filter_metadata
    host = str(told[METADATA][SERVED]) if METADATA in told and SERVED in told[METADATA] else ""
    return host if host.rpartition(":")[2].isdecimal() else ""


def _routed(route: Route, *, length: int | None) -> bytes:
    """Return the answer to the headers: where to, by header and by metadata, and what no worker should see.

    One worker and no list: gateways that send to the address in the header itself take no more.
    """
    where = route.hosts[0]
    said = ProcessingResponse()
    common = said.request_headers.response
    common.clear_route_cache = True
    common.header_mutation.remove_headers.extend(_REMOVED)
    found = {names.HEADER_DESTINATION: where} | ({} if length is None else {"content-length": str(length)})
    for name, value in found.items():
        option = common.header_mutation.set_headers.add()
        option.header.key, option.header.raw_value = name, value.encode()
        option.append_action = option.OVERWRITE_IF_EXISTS_OR_ADD
    said.dynamic_metadata.get_or_create_struct(METADATA)[names.HEADER_DESTINATION] = where
    return bytes(said.SerializeToString())


def _piece(part: str, body: bytes, *, last: bool) -> bytes:
    """Return a piece of a body that goes on."""
    said = ProcessingResponse()
    streamed = getattr(said, part).response.body_mutation.streamed_response
    streamed.body, streamed.end_of_stream = body, last
    return bytes(said.SerializeToString())
