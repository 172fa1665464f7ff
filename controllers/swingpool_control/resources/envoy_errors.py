"""Errors of Envoy's own, worded like the API's: a client needs one way to read errors, whoever they come from."""

from swingpool_control.resources.envoy_authorizer import DENIED, UNANSWERED
from swingpool_control.resources.envoy_settings import BUFFER_LIMIT_BYTES, TYPE, Config

_NO_PATH = "there is no such path; the API lives under /v1"
_UNREAD = "kv_transfer_params are the router's own, and bodies must be JSON in UTF-8 that says so"
_NO_KEY = "a valid API key is needed: Authorization: Bearer KEY"
_UNANSWERED = "whether the request is allowed is not known at the moment; try again later"
_LOCAL_ERRORS: tuple[tuple[tuple[str, ...], int, str], ...] = (
    (("OM",), 503, "the router is overloaded; try again later"),
    (("UH", "UF", "UC", "UR", "URX", "LH", "UO"), 503, "no worker could serve the request"),
    (("UT", "SI", "DT", "UMSDR"), 504, "the request took longer than the router waits"),
    (("UPE",), 502, "a worker's answer was no valid HTTP"),
    (("DPE", "IH"), 400, "the request is no valid HTTP"),
)
"""Envoy's response flags, the status that clients get, and what it means to them."""


def local_replies() -> Config:
    """Errors of Envoy's own read like the API's. What the picker answers is one already and stays as it is."""
    outside = {"header_filter": {"header": {"name": ":path", "string_match": {"prefix": "/v1/"}, "invert_match": True}}}
    mappers = [
        # What an authorizer says is its own word: status, body and type go to the client as they are.
        {"filter": _because(DENIED)},
        _mapper(_because(UNANSWERED), 503, _UNANSWERED),
        _mapper({"and_filter": {"filters": [_status_is(404), outside]}}, 404, _NO_PATH),
        _mapper(_status_is(401), 401, _NO_KEY),
        _mapper(_status_is(403), 403, _UNREAD),
        _mapper(_because("local_rate_limited"), 429, "too many requests; try again later"),
        _mapper(_status_is(413), 413, f"the body is larger than {BUFFER_LIMIT_BYTES} bytes"),
    ]
    for flags, status, message in _LOCAL_ERRORS:
        mappers.append(_mapper({"response_flag_filter": {"flags": list(flags)}}, status, message))
    return {"mappers": mappers}


def _mapper(when: Config, status: int, message: str) -> Config:
    return {
        "filter": when,
        "status_code": status,
        "body_format_override": {
            "content_type": "application/json",
            "json_format": {
                "error": {
                    "message": f"{message} (request %REQ(X-REQUEST-ID)%)",
                    "type": "server_error" if status >= 500 else "invalid_request_error",
                    "param": None,
                    "code": status,
                }
            },
        },
    }


def _because(detail: str) -> Config:
    """Tell what a filter of Envoy's refused from what the picker refused with the same status."""
    return {
        "extension_filter": {
            "name": "envoy.access_loggers.extension_filters.cel",
            "typed_config": {
                "@type": f"{TYPE}.extensions.access_loggers.filters.cel.v3.ExpressionFilter",
                "expression": f"response.code_details == '{detail}'",
            },
        }
    }


def _status_is(status: int) -> Config:
    value = {"default_value": status, "runtime_key": f"swingpool.status_{status}"}
    return {"status_code_filter": {"comparison": {"op": "EQ", "value": value}}}
