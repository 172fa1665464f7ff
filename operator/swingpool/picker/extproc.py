"""Envoy's external-processing protocol: its messages in, the flow's answers out."""

import asyncio
import logging
import math
from collections.abc import Coroutine, Iterable, Mapping

from envoy.config.core.v3.base_pb2 import HeaderValue, HeaderValueOption
from envoy.service.ext_proc.v3.external_processor_pb2 import (
    BodyMutation,
    BodyResponse,
    CommonResponse,
    HeaderMutation,
    HeadersResponse,
    HttpHeaders,
    ImmediateResponse,
    ProcessingRequest,
    ProcessingResponse,
)
from envoy.type.v3.http_status_pb2 import HttpStatus

from swingpool.picker.flow import Flow, Incoming, Route
from swingpool.picker.replies import Reply, internal_error
from swingpool.picker.rpc import Call
from swingpool_control import names
from swingpool_control.resources.envoy import DECISION_PATHS, FORM_TYPE, PASSED_ON

PROCESS = "/envoy.service.ext_proc.v3.ExternalProcessor/Process"
CHAT_PATH = "/v1/chat/completions"

SECOND_TRY_AFTER = "x-envoy-upstream-rq-per-try-timeout-ms"
"""After what time without an answer Envoy asks another worker too; the first to answer counts."""

_CONTINUE = ProcessingResponse(request_headers=HeadersResponse()).SerializeToString()
_OVERWRITE = HeaderValueOption.HeaderAppendAction.OVERWRITE_IF_EXISTS_OR_ADD

log = logging.getLogger(__name__)


class Exchange:
    """One HTTP request as Envoy tells of it: its headers, then its whole body if it has one that is no form.

    Args:
        flow: who decides.
        call: what the answers go into.
    """

    __slots__ = ("_call", "_flow", "_headers", "_task")

    def __init__(self, flow: Flow, call: Call) -> None:
        self._flow = flow
        self._call = call
        self._headers: dict[str, str] | None = None
        self._task: asyncio.Task[None] | None = None

    def message(self, data: bytes) -> None:
        """Take headers or a body, and answer."""
        try:
            self._take(ProcessingRequest.FromString(data))
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
            self._headers = _headers(message.request_headers)
            if message.request_headers.end_of_stream or self._is_form(self._headers):
                self._answer_with(self._flow.passed(), "request_headers")
            else:
                self._call.send(_CONTINUE)
        elif message.HasField("request_body") and self._headers is not None and self._task is None:
            self._answer_with(self._outcome(self._headers, message.request_body.body), "request_body")

    def _is_form(self, headers: Mapping[str, str]) -> bool:
        return headers.get("content-type", "").lower().startswith(FORM_TYPE) and not _decides(headers)

    def _outcome(self, headers: Mapping[str, str], body: bytes) -> Coroutine[None, None, Route | Reply]:
        path = headers.get(":path", "")
        if not _decides(headers):
            content_type = headers.get("content-type", "").lower()
            return self._flow.carried(body, is_json="json" in content_type or not content_type)
        incoming = Incoming(
            request_id=headers.get(names.HEADER_REQUEST_ID, ""),
            path=path,
            headers={name: headers[name] for name in PASSED_ON if name in headers},
            body=body,
            kind=headers.get(names.HEADER_CLASS, ""),
            tenant=headers.get(names.HEADER_TENANT, ""),
        )
        return self._flow.decided(incoming, chat=path.partition("?")[0] == CHAT_PATH)

    def _answer_with(self, outcome: Coroutine[None, None, Route | Reply], part: str) -> None:
        self._task = asyncio.get_running_loop().create_task(self._answer(outcome, part))

    async def _answer(self, outcome: Coroutine[None, None, Route | Reply], part: str) -> None:
        try:
            response = _response(await outcome, part=part)
        except Exception:
            self._fault()
            return
        self._call.send(response.SerializeToString())
        self._call.end()

    def _fault(self) -> None:
        """Answer even after a fault of the picker's own: Envoy would send the request on as it came."""
        log.exception("a request could not be processed")
        self._call.send(_immediate(internal_error()).SerializeToString())
        self._call.end()


def _decides(headers: Mapping[str, str]) -> bool:
    return headers.get(":method") == "POST" and headers.get(":path", "").partition("?")[0] in DECISION_PATHS


def _headers(message: HttpHeaders) -> dict[str, str]:
    return {one.key: one.value or one.raw_value.decode("latin-1") for one in message.headers.headers}


def _response(outcome: Route | Reply, *, part: str) -> ProcessingResponse:
    if isinstance(outcome, Reply):
        return _immediate(outcome)
    changed = [(names.HEADER_DESTINATION, ",".join(outcome.hosts))]
    if outcome.body is not None:
        changed.append(("content-length", str(len(outcome.body))))
    if outcome.second_try_after_s > 0:
        changed.append((SECOND_TRY_AFTER, str(math.ceil(1000 * outcome.second_try_after_s))))
    common = CommonResponse(
        header_mutation=_mutation(changed),
        body_mutation=None if outcome.body is None else BodyMutation(body=outcome.body),
    )
    if part == "request_headers":
        return ProcessingResponse(request_headers=HeadersResponse(response=common))
    return ProcessingResponse(request_body=BodyResponse(response=common))


def _immediate(reply: Reply) -> ProcessingResponse:
    headers = _mutation((("content-type", reply.content_type), *reply.headers))
    return ProcessingResponse(
        immediate_response=ImmediateResponse(
            status=HttpStatus(code=reply.status), headers=headers, body=reply.body, details="picker"
        )
    )


def _mutation(headers: Iterable[tuple[str, str]]) -> HeaderMutation:
    return HeaderMutation(
        set_headers=[
            HeaderValueOption(header=HeaderValue(key=key, raw_value=value.encode()), append_action=_OVERWRITE)
            for key, value in headers
        ]
    )
