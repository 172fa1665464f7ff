"""A request's body, read so that no worker finds in it what the picker did not.

Workers' readers are laxer: Python's takes UTF-16, NaN and half surrogates too. A body that only they understand could
carry parameters that clients may not set, so it is refused; it is no JSON by the standard anyway.
"""

from typing import Any

import orjson

from swingpool.picker.replies import Reply, bad_request

_SURELY_WRITABLE_DEPTH = 250
"""What is nested deeper can be read, but not be written again."""


def read(raw: bytes) -> Any:
    """Return the JSON value in a body, or the Reply that refuses it."""
    try:
        value = orjson.loads(raw)
    except orjson.JSONDecodeError as error:
        return bad_request(f"the body is not JSON in UTF-8: {error}")
    if raw.count(b"{") + raw.count(b"[") > _SURELY_WRITABLE_DEPTH and not _is_writable(value):
        return bad_request(f"the body is nested deeper than {_SURELY_WRITABLE_DEPTH} levels")
    return value


def read_object(raw: bytes) -> dict[str, Any] | Reply:
    """Return the JSON object in a body, or the Reply that refuses it."""
    value = read(raw)
    if isinstance(value, dict | Reply):
        return value
    return bad_request("the body is not a JSON object")


def _is_writable(value: object) -> bool:
    try:
        orjson.dumps(value)
    except orjson.JSONEncodeError:
        return False
    return True
