"""Durations, money and names as Kubernetes users write them: strings, checked and parsed once, here."""

import re
from typing import Annotated

from pydantic import Field

from swingpool_control.api.rules import Rule, matches

DURATION_PATTERN = r"^([0-9]{1,6}(\.[0-9]{1,6})?(ms|s|m|h)){1,4}$"
DECIMAL_PATTERN = r"^[0-9]{1,12}(\.[0-9]{1,6})?$"
OBJECT_NAME_PATTERN = r"^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$"
LABEL_VALUE_PATTERN = r"^[A-Za-z0-9]([A-Za-z0-9._-]{0,61}[A-Za-z0-9])?$"
LABEL_KEY_PATTERN = r"^([a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?/)?[A-Za-z0-9]([A-Za-z0-9._-]{0,61}[A-Za-z0-9])?$"
RESOURCE_PATTERN = r"^(cpu|[a-z0-9]([a-z0-9.-]{0,187}[a-z0-9])?/[A-Za-z0-9]([A-Za-z0-9._-]{0,61}[A-Za-z0-9])?)$"
ARGUMENT_PATTERN = r"^[!-,.-~][!-~]*$"


def is_duration(cel: str) -> str:
    """Return CEL that tells whether a text is a duration; rules that compute with it ask first."""
    return f"{cel}.matches(r'{DURATION_PATTERN}')"


Duration = Annotated[
    str,
    Field(pattern=DURATION_PATTERN, max_length=32),
    matches(DURATION_PATTERN, message="must be a duration such as 500ms, 30s or 1m30s; units are h, m, s and ms"),
    Rule(cel=f"!{is_duration('self')} || duration(self) <= duration('24h')", message="must be at most 24h"),
]
"""A Go duration made of h, m, s and ms, such as `500ms` or `1m30s`; zero is one."""

PositiveDuration = Annotated[
    Duration,
    Rule(
        cel=f"!{is_duration('self')} || duration(self) > duration('0s')",
        message="must be longer than zero, such as 500ms or 30s",
    ),
]
"""A `Duration` longer than zero."""

DecimalText = Annotated[str, Field(pattern=DECIMAL_PATTERN, max_length=24)]
"""A decimal, as each quantity that is one narrows it and says what it must be."""

Money = Annotated[
    DecimalText,
    matches(DECIMAL_PATTERN, message="must be an amount such as '2.95': digits and at most six decimals, no currency"),
]
"""A decimal amount of money, such as `2.95`."""

Factor = Annotated[
    DecimalText,
    matches(DECIMAL_PATTERN, message="must be a factor such as '10' or '2.5'"),
    Rule(
        cel=f"!self.matches(r'{DECIMAL_PATTERN}') || double(self) > 0.0",
        message="must be more than zero, such as '10'; '1' is as fast as the profile",
    ),
]
"""A decimal factor more than zero."""

ObjectName = Annotated[
    str,
    Field(min_length=1, max_length=253, pattern=OBJECT_NAME_PATTERN),
    matches(OBJECT_NAME_PATTERN, message="must be an object's name: lower-case letters, digits, dashes and dots"),
]
"""Name of another object in the cluster's namespace."""

DnsName = Annotated[
    str,
    Field(min_length=1, max_length=253, pattern=OBJECT_NAME_PATTERN),
    matches(OBJECT_NAME_PATTERN, message="must be a DNS name: lower-case letters, digits, dashes and dots"),
]
"""A DNS name."""

LabelKey = Annotated[
    str,
    Field(min_length=1, max_length=317, pattern=LABEL_KEY_PATTERN),
    matches(LABEL_KEY_PATTERN, message="must be a label key such as nvidia.com/gpu.product or example.com/role"),
]
"""Key of a label, with or without a prefix."""

LabelValue = Annotated[
    str,
    Field(min_length=1, max_length=63, pattern=LABEL_VALUE_PATTERN),
    matches(LABEL_VALUE_PATTERN, message="must be a label's value: letters, digits, dashes, dots and underscores"),
]
"""Value of a label."""

ResourceName = Annotated[
    str,
    Field(min_length=1, max_length=253, pattern=RESOURCE_PATTERN),
    matches(RESOURCE_PATTERN, message="must be an extended resource with its domain, such as nvidia.com/gpu, or cpu"),
    Rule(
        cel="!self.startsWith('kubernetes.io/') && !self.startsWith('requests.')",
        message="must be a device plugin's resource, such as nvidia.com/gpu, not one of Kubernetes' own",
    ),
]
"""Extended resource that a device plugin offers, or `cpu`."""

Argument = Annotated[
    str,
    Field(min_length=1, pattern=ARGUMENT_PATTERN),
    matches(ARGUMENT_PATTERN, message="must have no spaces and no leading dash: it becomes one argument of the engine"),
]
"""Text that becomes one argument of a command line."""

_SECONDS = {"h": 3600.0, "m": 60.0, "s": 1.0, "ms": 0.001}
_PART = re.compile(r"([0-9]+(?:\.[0-9]+)?)(ms|s|m|h)")


def seconds(duration: str) -> float:
    """Return a duration in seconds.

    Raises:
        ValueError: the text is no duration.
    """
    if not re.fullmatch(DURATION_PATTERN, duration):
        raise ValueError(f"{duration!r} is not a duration such as 500ms, 30s or 1m30s")
    return sum(float(number) * _SECONDS[unit] for number, unit in _PART.findall(duration))


def money(amount: str) -> float:
    """Return an amount of money.

    Raises:
        ValueError: the text is no amount.
    """
    if not re.fullmatch(DECIMAL_PATTERN, amount):
        raise ValueError(f"{amount!r} is not an amount such as 2.95")
    return float(amount)


_BYTES = {"Ki": 2**10, "Mi": 2**20, "Gi": 2**30, "Ti": 2**40, "Pi": 2**50, "k": 1e3, "M": 1e6, "G": 1e9, "T": 1e12}


def quantity_bytes(size: str) -> int:
    """Return a size such as `64Gi` in bytes, rounded down.

    Raises:
        ValueError: it is no size; the API server refuses such a one.
    """
    unit = next((unit for unit in _BYTES if size.endswith(unit)), "")
    return int(float(size.removesuffix(unit)) * _BYTES.get(unit, 1))
