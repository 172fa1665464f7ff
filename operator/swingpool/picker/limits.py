"""What the swing controller lets placement do, as the manager sends it: JSON with the fields of `DeflectionLimits`."""

from dataclasses import fields

import orjson

from swingpool_control.placement.limits import DeflectionLimits


class BadLimitsError(ValueError):
    """The text holds no limits."""


def decode(text: bytes) -> DeflectionLimits:
    """Return the limits that JSON text holds; fields of a later release are left out.

    Raises:
        BadLimitsError: the text is not JSON, not an object, or a limit is missing or out of its range.
    """
    try:
        raw = orjson.loads(text)
    except orjson.JSONDecodeError as error:
        raise BadLimitsError(f"the limits are not JSON: {error}") from error
    if not isinstance(raw, dict):
        raise BadLimitsError(f"the limits are not an object but {type(raw).__name__}")
    known = {field.name for field in fields(DeflectionLimits)}
    given = {name: value for name, value in raw.items() if name in known}
    wrong = [name for name, value in given.items() if not _is_right(name, value)]
    if wrong:
        raise BadLimitsError(f"{', '.join(sorted(wrong))}: of the wrong type")
    try:
        return DeflectionLimits(**given)
    except (TypeError, ValueError) as error:
        raise BadLimitsError(str(error)) from error


def _is_right(name: str, value: object) -> bool:
    if name == "prefill_keeps":
        return isinstance(value, bool)
    return isinstance(value, int if name == "most_tokens" else (int, float)) and not isinstance(value, bool)
