"""Envoy's external-processing protocol: its messages in, the flow's answers out."""

import logging
from collections.abc import Iterable
from typing import Any

import grpc.aio
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
from swingpool_control import names
from swingpool_control.resources.envoy import DECISION_PATHS, FORM_TYPE

SERVICE = "envoy.service.ext_proc.v3.ExternalProcessor"
CHAT_PATH = "/v1/chat/completions"
PASSED_ON = frozenset({"authorization", "content-type", "traceparent", "tracestate", names.HEADER_REQUEST_ID})
"""Headers that the prefill leg carries too."""

PER_TRY_TIMEOUT = "x-envoy-upstream-rq-per-try-timeout-ms"
ACKNOWLEDGED_MS = 8000
"""vLLM sends a stream's headers as soon as it has read the request: a worker that has not within this time hangs, and
Envoy tries the next. Once the headers are there Envoy forgets this limit, however long the first token takes."""

_CONTINUE = ProcessingResponse(request_headers=HeadersResponse())
_OVERWRITE = HeaderValueOption.HeaderAppendAction.OVERWRITE_IF_EXISTS_OR_ADD

log = logging.getLogger(__name__)


def handler(flow: Flow) -> "grpc.GenericRpcHandler[Any, Any]":
    """Return the gRPC service."""

    async def serve(_: object, context: "grpc.aio.ServicerContext[Any, Any]") -> None:
        await process(flow, context)

    method = grpc.stream_stream_rpc_method_handler(
        serve,
        request_deserializer=ProcessingRequest.FromString,
        response_serializer=ProcessingResponse.SerializeToString,
    )
    return grpc.method_handlers_generic_handler(SERVICE, {"Process": method})


async def process(flow: Flow, context: "grpc.aio.ServicerContext[Any, Any]") -> None:
    """Serve one HTTP request, and answer it even after a fault of the picker's own."""
    try:
        await _process(flow, context)
    except Exception:
        # Were it raised, Envoy would send the request on as it came, with whatever a client put into it.
        log.exception("a request could not be processed")
        await context.write(_immediate(internal_error()))


async def _process(flow: Flow, context: "grpc.aio.ServicerContext[Any, Any]") -> None:
    """Serve one HTTP request: its headers, then its whole body if it has one that is no form."""
    message = await context.read()  # the end of the stream is false
    if not message or not message.HasField("request_headers"):
        return
    headers = _headers(message.request_headers)
    path = headers.get(":path", "")
    route_path = path.partition("?")[0]
    decides = route_path in DECISION_PATHS and headers.get(":method") == "POST"
    content_type = headers.get("content-type", "").lower()
    if message.request_headers.end_of_stream or (content_type.startswith(FORM_TYPE) and not decides):
        outcome = await flow.passed()
        await context.write(_response(outcome, part="request_headers"))
        return
    await context.write(_CONTINUE)
    message = await context.read()
    if not message or not message.HasField("request_body"):
        return
    incoming = Incoming(
        request_id=headers.get(names.HEADER_REQUEST_ID, ""),
        path=path,
        headers={name: value for name, value in headers.items() if name in PASSED_ON},
        body=message.request_body.body,
        kind=headers.get(names.HEADER_CLASS, ""),
        tenant=headers.get(names.HEADER_TENANT, ""),
    )
    if decides:
        outcome = await flow.decided(incoming, chat=route_path == CHAT_PATH)
    else:
        outcome = await flow.carried(incoming.body, is_json="json" in content_type or not content_type)
    await context.write(_response(outcome, part="request_body"))


def _headers(message: HttpHeaders) -> dict[str, str]:
    return {one.key: one.value or one.raw_value.decode("latin-1") for one in message.headers.headers}


def _response(outcome: Route | Reply, *, part: str) -> ProcessingResponse:
    if isinstance(outcome, Reply):
        return _immediate(outcome)
    changed = [(names.HEADER_DESTINATION, ",".join(outcome.hosts))]
    if outcome.body is not None:
        changed.append(("content-length", str(len(outcome.body))))
    if outcome.stream:
        changed.append((PER_TRY_TIMEOUT, str(ACKNOWLEDGED_MS)))
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
