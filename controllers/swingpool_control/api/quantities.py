"""Durations and money as Kubernetes users write them: strings, parsed once, here."""

import re
from typing import Annotated

from pydantic import Field

DURATION_PATTERN = r"^([0-9]+(\.[0-9]+)?(ms|s|m|h))+$"
MONEY_PATTERN = r"^[0-9]+(\.[0-9]{1,6})?$"

Duration = Annotated[str, Field(pattern=DURATION_PATTERN, max_length=32)]
"""A Go duration made of h, m, s and ms, such as `500ms` or `1m30s`."""

Money = Annotated[str, Field(pattern=MONEY_PATTERN, max_length=24)]
"""A decimal amount of money, such as `2.95`."""

_SECONDS = {"h": 3600.0, "m": 60.0, "s": 1.0, "ms": 0.001}
_PART = re.compile(r"([0-9]+(?:\.[0-9]+)?)(ms|s|m|h)")


def seconds(duration: str) -> float:
    """Return a duration in seconds.

    Raises:
        ValueError: the text is no duration.
    """
    if not re.match(DURATION_PATTERN, duration):
        raise ValueError(f"{duration!r} is not a duration such as 500ms, 30s or 1m30s")
    return sum(float(number) * _SECONDS[unit] for number, unit in _PART.findall(duration))


def money(amount: str) -> float:
    """Return an amount of money.

    Raises:
        ValueError: the text is no amount.
    """
    if not re.match(MONEY_PATTERN, amount):
        raise ValueError(f"{amount!r} is not an amount such as 2.95")
    return float(amount)
