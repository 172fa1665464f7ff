"""How Envoy asks the picker where a request goes, and does what that says.

A generation is told of in one message, its body, with what the picker needs of the headers beside it, as metadata; and
answered in one. Envoy takes no headers from such an answer, so the answer's metadata say where to, and become headers
here. Until the answer has come, the buffer filter keeps the headers from going on alone: they choose the worker.
Other requests are told of by their headers first, since many have no body, and a body that is too large to be kept
comes in pieces.
"""

from swingpool_control import names
from swingpool_control.resources.envoy_settings import (
    BUFFER_LIMIT_BYTES,
    READ_HEADERS,
    TOLD_HEADERS,
    TYPE,
    Config,
    picker_service,
    seconds,
)

PREFILL_TIMEOUT_S = 600

EXT_PROC = "envoy.filters.http.ext_proc"
NOTE = "envoy.filters.http.header_to_metadata"
BUFFER = "envoy.filters.http.buffer"

TOLD_BESIDE_BODY = (":path", *READ_HEADERS)
"""Headers that the picker is told beside a body; of one of 8 KiB or more Envoy makes no metadata."""

TOLD = "swingpool.told"
"""Namespace of the metadata in which they are, by their names."""

PLACED = "swingpool.placed"
"""Namespace of the metadata by which the picker answers."""
PLACED_TO = "to"
PLACED_SECOND_TRY_MS = "second_try_ms"

SECOND_TRY_AFTER = "x-envoy-upstream-rq-per-try-timeout-ms"
"""After what time without an answer Envoy asks another worker too; the first to answer counts."""


def exchange_filters() -> list[Config]:
    """Return the filters that ask, in their order."""
    return [_note(), _ext_proc(), _buffer(), _placement()]


def told_at_once(route: Config) -> Config:
    """Return a route whose requests have a body, and are told of in one message."""
    gathered = {"@type": f"{TYPE}.extensions.filters.http.buffer.v3.BufferPerRoute", "buffer": _most_bytes()}
    more = {NOTE: _told_beside_body(), BUFFER: gathered}
    return _with(route, ext_proc=_processing_mode(headers="SKIP", body="BUFFERED"), more=more)


def told_in_pieces(route: Config) -> Config:
    """Return a route whose bodies pass the picker as they come."""
    return _with(route, ext_proc=_processing_mode(headers="SEND", body="STREAMED"))


def told_without_body(route: Config) -> Config:
    """Return a route whose bodies the picker does not see."""
    return _with(route, ext_proc=_processing_mode(headers="SEND", body="NONE"))


def not_told(route: Config) -> Config:
    """Return a route whose requests the picker does not hear of."""
    return route | {"typed_per_filter_config": {EXT_PROC: _per_route({"disabled": True})}}


def _with(route: Config, *, ext_proc: Config, more: Config | None = None) -> Config:
    asked = {EXT_PROC: _per_route({"overrides": {"processing_mode": ext_proc}})}
    return route | {"typed_per_filter_config": asked | (more or {})}


def _per_route(override: Config) -> Config:
    return {"@type": f"{TYPE}.extensions.filters.http.ext_proc.v3.ExtProcPerRoute"} | override


def _note() -> Config:
    """Return what makes metadata of headers, on routes that ask for it."""
    return {"name": NOTE, "disabled": True, "typed_config": _told_beside_body()}


def _told_beside_body() -> Config:
    rules = [
        {"header": name, "on_header_present": {"metadata_namespace": TOLD, "key": name, "type": "STRING"}}
        for name in TOLD_BESIDE_BODY
    ]
    return {"@type": f"{TYPE}.extensions.filters.http.header_to_metadata.v3.Config", "request_rules": rules}


def _ext_proc() -> Config:
    return {
        "name": EXT_PROC,
        "typed_config": {
            "@type": f"{TYPE}.extensions.filters.http.ext_proc.v3.ExternalProcessor",
            "grpc_service": picker_service(PREFILL_TIMEOUT_S),
            "message_timeout": seconds(PREFILL_TIMEOUT_S),
            "failure_mode_allow": True,
            # The picker sets when a second worker is asked as well.
            "mutation_rules": {"allow_envoy": True},
            "processing_mode": _processing_mode(headers="SEND", body="BUFFERED"),
            "forward_rules": {"allowed_headers": {"patterns": [{"exact": header} for header in TOLD_HEADERS]}},
            "metadata_options": {
                "forwarding_namespaces": {"untyped": [TOLD]},
                "receiving_namespaces": {"untyped": [PLACED]},
            },
        },
    }


def _processing_mode(*, headers: str, body: str) -> Config:
    return {
        "request_header_mode": headers,
        "request_body_mode": body,
        "response_header_mode": "SKIP",
        "response_body_mode": "NONE",
        "request_trailer_mode": "SKIP",
        "response_trailer_mode": "SKIP",
    }


def _buffer() -> Config:
    """Return what holds headers back until their body has passed, on routes that ask for it, and tells its length."""
    return {
        "name": BUFFER,
        "disabled": True,
        "typed_config": {"@type": f"{TYPE}.extensions.filters.http.buffer.v3.Buffer"} | _most_bytes(),
    }


def _most_bytes() -> Config:
    return {"max_request_bytes": BUFFER_LIMIT_BYTES}


def _placement() -> Config:
    """Return what makes headers of the answer's metadata; where there are none, it sets none."""
    return {
        "name": "envoy.filters.http.header_mutation",
        "typed_config": {
            "@type": f"{TYPE}.extensions.filters.http.header_mutation.v3.HeaderMutation",
            "mutations": {
                "request_mutations": [
                    _set(names.HEADER_DESTINATION, PLACED_TO),
                    _set(SECOND_TRY_AFTER, PLACED_SECOND_TRY_MS),
                ]
            },
        },
    }


def _set(header: str, key: str) -> Config:
    return {
        "append": {
            "header": {"key": header, "value": f"%DYNAMIC_METADATA({PLACED}:{key})%"},
            "append_action": "OVERWRITE_IF_EXISTS_OR_ADD",
        }
    }
