"""Times as the API writes them (RFC 3339, UTC) and as decisions count them (Unix seconds)."""

from datetime import UTC, datetime

LAST_UNIX_S = 253_402_300_799.0
"""Begin of the last second of the year 9999, after which there is no RFC 3339 time."""


def is_time(unix_s: float) -> bool:
    """Tell whether a figure, which may come from a text that anybody can edit, is a Unix time that can be written."""
    return 0.0 <= unix_s < LAST_UNIX_S


def rfc3339(unix_s: float) -> str:
    """Return a Unix time as RFC 3339 in UTC with milliseconds."""
    return datetime.fromtimestamp(round(unix_s, 3), UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def unix_seconds(text: str) -> float:
    """Return an RFC 3339 time as Unix seconds.

    Raises:
        ValueError: the text is no RFC 3339 time with an offset.
    """
    moment = datetime.fromisoformat(text)
    if moment.tzinfo is None:
        raise ValueError(f"{text!r} has no offset from UTC")
    return moment.timestamp()
