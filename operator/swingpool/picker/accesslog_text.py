"""Access-log messages whose texts are no UTF-8.

Envoy logs paths as clients send them, and a protobuf with such a text cannot be read at all. One client's odd path must
not make the picker deaf to the ends of all other requests.
"""

from collections.abc import Iterator

from swingpool.telemetry.varint import varint

_HTTP_LOGS, _LOG_ENTRY, _REQUEST = 2, 1, 3
"""Fields that lead from a StreamAccessLogsMessage to what an entry tells of a request."""

_REQUEST_ID = 9
_TEXTS = {3, 5, 6, 7, 8, 10}
"""Authority, path, user agent, referer, forwarded for, original path: clients' words, none of which is read."""

_VARINT, _SIZED = 0, 2
_FIXED = {1: 8, 5: 4}
"""Wire types; of those of fixed size, the size in bytes."""


def without_texts(data: bytes) -> bytes:
    """Return a serialised StreamAccessLogsMessage without the texts that clients choose and nobody reads.

    An id that is no UTF-8 goes too: nobody hears of that request's end.

    Raises:
        ValueError: it is no protobuf.
    """
    return _within(data, (_HTTP_LOGS, _LOG_ENTRY, _REQUEST))


def _within(data: bytes, path: tuple[int, ...]) -> bytes:
    """Return a message with what lies at the end of the path shorn of texts."""
    kept = []
    for number, field, value in _fields(data):
        if not path:
            if not _is_odd(number, value):
                kept.append(field)
        elif number == path[0] and value is not None:
            inner = _within(value, path[1:])
            kept.append(varint(number << 3 | _SIZED) + varint(len(inner)) + inner)
        else:
            kept.append(field)
    return b"".join(kept)


def _is_odd(number: int, value: bytes | None) -> bool:
    if value is None or number != _REQUEST_ID:
        return number in _TEXTS
    try:
        value.decode()
    except UnicodeDecodeError:
        return True
    return False


def _fields(data: bytes) -> Iterator[tuple[int, bytes, bytes | None]]:
    """Yield each field's number, all its bytes, and its value if that is one of a given size."""
    at = 0
    while at < len(data):
        start = at
        tag, at = _read_varint(data, at)
        value = None
        wire = tag & 7
        if wire == _VARINT:
            _, at = _read_varint(data, at)
        elif wire == _SIZED:
            size, at = _read_varint(data, at)
            value = data[at : at + size]
            at += size
        elif wire in _FIXED:
            at += _FIXED[wire]
        else:
            raise ValueError(f"wire type {wire}")
        if at > len(data):
            raise ValueError("it ends amid a field")
        yield tag >> 3, data[start:at], value


def _read_varint(data: bytes, at: int) -> tuple[int, int]:
    value, shift = 0, 0
    while True:
        if at >= len(data) or shift > 63:
            raise ValueError("it ends amid a number")
        value |= (data[at] & 0x7F) << shift
        at += 1
        if data[at - 1] < 0x80:
            return value, at
        shift += 7
