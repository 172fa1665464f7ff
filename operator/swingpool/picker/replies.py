"""What the picker answers itself, instead of sending a request on: errors, worded like the API's."""

from dataclasses import dataclass

import orjson

from swingpool_control.placement.openai import error_body

RETRY_AFTER_S = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class Reply:
    """Answer the client at once."""

    status: int
    body: bytes
    content_type: str = "application/json"
    headers: tuple[tuple[str, str], ...] = ()


def bad_request(message: str) -> Reply:
    """Return the answer to a request that no worker should see."""
    return _error(400, message, kind="invalid_request_error")


def unavailable(message: str) -> Reply:
    """Return the answer to a request that may succeed later."""
    return _error(503, message, kind="server_error", headers=(("retry-after", str(RETRY_AFTER_S)),))


def overloaded(message: str, *, retry_after_s: int) -> Reply:
    """Return the answer to a request for which there is no time now."""
    return _error(429, message, kind="rate_limit_error", headers=(("retry-after", str(retry_after_s)),))


def not_found(message: str) -> Reply:
    """Return the answer to a request that is for nobody here."""
    return _error(404, message, kind="invalid_request_error")


def too_large(most_bytes: int) -> Reply:
    """Return the answer to a body that is not kept."""
    return _error(413, f"the body is larger than {most_bytes} bytes", kind="invalid_request_error")


def internal_error() -> Reply:
    """Return the answer to a request that met a fault of the picker's."""
    return _error(500, "the router failed; its log says why", kind="server_error")


def _error(status: int, message: str, *, kind: str, headers: tuple[tuple[str, str], ...] = ()) -> Reply:
    return Reply(status=status, body=orjson.dumps(error_body(message, kind=kind, code=status)), headers=headers)
