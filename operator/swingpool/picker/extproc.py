"""Envoy's external-processing protocol: its messages in, the flow's answers out."""

import asyncio
import logging
from collections.abc import Callable, Coroutine, Mapping
from functools import partial

from envoy.service.ext_proc.v3.external_processor_pb2 import HttpBody, HttpHeaders, ProcessingRequest
from google.protobuf.message import DecodeError

from swingpool.picker.answers import CONTINUE, NEXT, answer, placed, reply
from swingpool.picker.flow import Flow
from swingpool.picker.handover import Incoming, Route
from swingpool.picker.header_blocks import Headers
from swingpool.picker.replies import Reply, bad_request, internal_error
from swingpool.picker.rpc import Call
from swingpool.picker.scan import TransferScan
from swingpool_control import names
from swingpool_control.placement.openai import KV_TRANSFER
from swingpool_control.resources.envoy import DECISION_PATHS, FORM_TYPE, PASSED_ON, STREAMED_ABOVE_BYTES
from swingpool_control.resources.envoy_exchange import TOLD

PROCESS = "/envoy.service.ext_proc.v3.ExternalProcessor/Process"
CHAT_PATH = "/v1/chat/completions"

Outcome = Coroutine[None, None, Route | Reply]
"""What becomes of a request; it is begun only by whoever awaits it, who may be cancelled before."""

log = logging.getLogger(__name__)


class Exchange:
    """One HTTP request as Envoy tells of it: a generation in one message, another by its headers first.

    A body comes whole, unless it says to be too large for that: then in pieces, which only pass. Forms come without.

    Args:
        flow: who decides.
        call: what the answers go into.
    """

    __slots__ = ("_call", "_flow", "_headers", "_scan", "_task")

    def __init__(self, flow: Flow, call: Call) -> None:
        self._flow = flow
        self._call = call
        self._headers: dict[str, str] | None = None
        self._task: asyncio.Task[None] | None = None
        self._scan: TransferScan | None = None

    def message(self, data: bytes) -> None:
        """Take headers or a body, and answer."""
        try:
            self._take(ProcessingRequest.FromString(data))
        except DecodeError:  # Envoy writes headers into text as they came
            self._refuse(bad_request("a header that the router reads is not in UTF-8"))
        except Exception:
            self._fault()

    def ended(self) -> None:
        """Go on: Envoy has said all, and waits."""

    def gone(self) -> None:
        """Give the request up: the client has left, or Envoy."""
        if self._task is not None:
            self._task.cancel()

    def _take(self, message: ProcessingRequest) -> None:
        if message.HasField("request_headers") and self._headers is None:
            self._headers = read_headers(message.request_headers)
            if message.request_headers.end_of_stream or is_form(self._headers):
                self._answer_with(self._flow.passed, partial(answer, to_headers=True))
            elif is_large(self._headers):
                self._scan = TransferScan()
                passed = partial(self._flow.passed, generates=decides(self._headers))
                self._answer_with(passed, partial(answer, to_headers=True))
            else:
                self._call.send(CONTINUE)
        elif message.HasField("request_body") and self._scan is not None:
            self._pass(self._scan, message.request_body)
        elif message.HasField("request_body") and self._task is None:
            body = message.request_body.body
            if self._headers is not None:
                self._answer_with(partial(self._outcome, self._headers, body), partial(answer, to_headers=False))
            elif names.HEADER_REQUEST_ID in (told := read_beside_body(message)):
                self._answer_with(partial(self._decided, told, body), placed)
            else:  # Envoy gives an id to whoever has none; without it nobody would hear of the request's end
                self._refuse(bad_request(f"{names.HEADER_REQUEST_ID} must be shorter than 8 KiB"))

    def _pass(self, scan: TransferScan, piece: HttpBody) -> None:
        if scan.finds(piece.body):
            self._refuse(bad_request(f"a body this large may not hold {KV_TRANSFER}, and must be JSON in UTF-8"))
            return
        self._call.send(NEXT)
        if piece.end_of_stream:
            self._call.end()

    def _outcome(self, headers: Mapping[str, str], body: bytes) -> Outcome:
        if decides(headers):
            return self._decided(headers, body)
        content_type = headers.get("content-type", "").lower()
        return self._flow.carried(body, is_json="json" in content_type or not content_type)

    def _decided(self, headers: Mapping[str, str], body: bytes) -> Outcome:
        path = headers.get(":path", "")
        passed_on = {name: headers[name] for name in PASSED_ON if name in headers}
        if (parent := _trace_parent(self._call.headers)) is not None:
            passed_on[names.HEADER_TRACE] = parent
        incoming = Incoming(
            request_id=headers.get(names.HEADER_REQUEST_ID, ""),
            path=path,
            headers=passed_on,
            body=body,
            kind=headers.get(names.HEADER_CLASS, ""),
            tenant=headers.get(names.HEADER_TENANT, ""),
        )
        return self._flow.decided(incoming, chat=path.partition("?")[0] == CHAT_PATH)

    def _answer_with(self, decide: Callable[[], Outcome], said: Callable[[Route], bytes]) -> None:
        self._begin_with(decide, partial(self._send_on, said))

    def _begin_with(self, decide: Callable[[], Outcome], carry_out: Callable[[Route], None]) -> None:
        self._task = asyncio.get_running_loop().create_task(self._carry_out(decide, carry_out))

    async def _carry_out(self, decide: Callable[[], Outcome], carry_out: Callable[[Route], None]) -> None:
        try:
            found = await decide()
            if isinstance(found, Reply):
                self._refuse(found)
            else:
                carry_out(found)
        except Exception:
            self._fault()

    def _send_on(self, said: Callable[[Route], bytes], route: Route) -> None:
        self._call.send(said(route))
        if self._scan is None:
            self._call.end()

    def _fault(self) -> None:
        """Answer even after a fault of the picker's own: Envoy would send the request on as it came."""
        log.exception("a request could not be processed")
        self._refuse(internal_error())

    def _refuse(self, said: Reply) -> None:
        """Answer the client from here."""
        self._call.send(reply(said))
        self._call.end()


def decides(headers: Mapping[str, str]) -> bool:
    """Whether a request is one that may be split."""
    return headers.get(":method") == "POST" and headers.get(":path", "").partition("?")[0] in DECISION_PATHS


def _trace_parent(headers: Headers) -> str | None:
    """Return the span that Envoy gave its call, if it traces; the client's is among the request's own headers."""
    for name, value in headers:
        if name == b"traceparent":
            return value.decode("latin-1")
    return None


def is_form(headers: Mapping[str, str]) -> bool:
    """Whether a request's body is one that is not read."""
    return headers.get("content-type", "").lower().startswith(FORM_TYPE) and not decides(headers)


def is_large(headers: Mapping[str, str]) -> bool:
    """Whether Envoy sends the body in pieces, by the same rule as its routes."""
    length = headers.get("content-length", "")
    return length.isdecimal() and int(length) > STREAMED_ABOVE_BYTES


def read_headers(message: HttpHeaders) -> dict[str, str]:
    """Return the headers of a request or an answer."""
    return {one.key: one.value or one.raw_value.decode("latin-1") for one in message.headers.headers}


def read_beside_body(message: ProcessingRequest) -> dict[str, str]:
    """Return what is told of a generation's headers beside its body."""
    told = message.metadata_context.filter_metadata[TOLD].fields
    return {name: told[name].string_value for name in told}
