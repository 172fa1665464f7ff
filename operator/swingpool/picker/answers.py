"""The picker's answers, as Envoy reads them.

Where a request goes is said once for each of them, and always in the same few fields: what changes is put between what
never does, since to build the message object by object costs as much as to decide what it says. It is said as headers
where Envoy takes them, else as metadata, of which it makes the same headers.
"""

import math
from functools import lru_cache
from typing import Any

from envoy.config.core.v3.base_pb2 import HeaderValue, HeaderValueOption
from envoy.service.ext_proc.v3.external_processor_pb2 import (
    BodyMutation,
    BodyResponse,
    CommonResponse,
    HeaderMutation,
    HeadersResponse,
    ImmediateResponse,
    ProcessingResponse,
)
from envoy.type.v3.http_status_pb2 import HttpStatus
from google.protobuf.struct_pb2 import Struct, Value

from swingpool.picker.handover import Route
from swingpool.picker.replies import Reply
from swingpool_control import names
from swingpool_control.resources.envoy_exchange import PLACED, PLACED_SECOND_TRY_MS, PLACED_TO, SECOND_TRY_AFTER

CONTINUE: bytes = ProcessingResponse(request_headers=HeadersResponse()).SerializeToString()
"""Let the headers wait for the body."""

NEXT: bytes = ProcessingResponse(request_body=BodyResponse()).SerializeToString()
"""Let a piece of the body pass."""

_OVERWRITE = HeaderValueOption.HeaderAppendAction.OVERWRITE_IF_EXISTS_OR_ADD


def _number(message: Any, field: str) -> int:
    return int(message.DESCRIPTOR.fields_by_name[field].number)


_TO_HEADERS = _number(ProcessingResponse, "request_headers")
_TO_BODY = _number(ProcessingResponse, "request_body")
_COMMON = _number(BodyResponse, "response")
_HEADERS = _number(CommonResponse, "header_mutation")
_MUTATION = _number(CommonResponse, "body_mutation")
_BODY = _number(BodyMutation, "body")
_METADATA = _number(ProcessingResponse, "dynamic_metadata")
_STRUCT = _number(Value, "struct_value")


def placed(route: Route) -> bytes:
    """Return the answer to a generation's body, by whose metadata it goes on."""
    common = b"" if route.body is None else _field(_COMMON, _field(_MUTATION, _field(_BODY, route.body)))
    where = _entry(PLACED_TO, ",".join(route.hosts))
    if route.second_try_after_s > 0:
        where += _entry(PLACED_SECOND_TRY_MS, str(math.ceil(1000 * route.second_try_after_s)))
    return _field(_TO_BODY, common) + _field(_METADATA, _field(1, _PLACED + _field(2, _field(_STRUCT, where))))


def answer(route: Route, *, to_headers: bool) -> bytes:
    """Return the answer that carries out what was decided.

    Args:
        route: what was decided.
        to_headers: whether it answers the request's headers rather than its body.
    """
    headers = _set(names.HEADER_DESTINATION, ",".join(route.hosts))
    if route.body is not None:
        headers += _set("content-length", str(len(route.body)))
    if route.second_try_after_s > 0:
        headers += _set(SECOND_TRY_AFTER, str(math.ceil(1000 * route.second_try_after_s)))
    common = _field(_HEADERS, headers)
    if route.body is not None:
        common += _field(_MUTATION, _field(_BODY, route.body))
    return _field(_TO_HEADERS if to_headers else _TO_BODY, _field(_COMMON, common))


def reply(said: Reply) -> bytes:
    """Return the answer by which the client is answered at once."""
    headers = b"".join(_set(key, value) for key, value in (("content-type", said.content_type), *said.headers))
    immediate = ImmediateResponse(
        status=HttpStatus(code=said.status),
        headers=HeaderMutation.FromString(headers),
        body=said.body,
        details="picker",
    )
    return bytes(ProcessingResponse(immediate_response=immediate).SerializeToString())


@lru_cache(maxsize=4096)
def _set(key: str, value: str) -> bytes:
    """Return a serialised HeaderMutation that sets a header; two of them after one another set both."""
    option = HeaderValueOption(header=HeaderValue(key=key, raw_value=value.encode()), append_action=_OVERWRITE)
    return bytes(HeaderMutation(set_headers=[option]).SerializeToString())


@lru_cache(maxsize=4096)
def _entry(key: str, value: str) -> bytes:
    """Return a serialised Struct that says one thing; two of them after one another say both."""
    return bytes(Struct(fields={key: Value(string_value=value)}).SerializeToString())


def _field(number: int, payload: bytes) -> bytes:
    """Return a serialised field that holds a message, or bytes; all numbers here are below 16."""
    size = len(payload)
    if size < 0x80:
        return bytes((number << 3 | 2, size)) + payload
    head = bytearray((number << 3 | 2,))
    while size > 0x7F:
        head.append(size & 0x7F | 0x80)
        size >>= 7
    head.append(size)
    return bytes(head) + payload


_PLACED = _field(1, PLACED.encode())
"""The key of a Struct's entry, before its value."""
