"""Waiting for a condition, always with a bound, and always with something to say when it did not come."""

import time
from collections.abc import Callable
from typing import TypeVar

import httpx2

T = TypeVar("T")

TRANSIENT = (httpx2.HTTPError, OSError)
"""What a check may raise while an API server or a router is away; the wait goes on."""


class NotInTimeError(AssertionError):
    """What was awaited did not come."""


def wait_for(what: str, check: Callable[[], T | None], *, limit_s: float, every_s: float = 0.25) -> T:
    """Call `check` until it returns something true, and return that.

    Args:
        what: what is awaited, for the error: "two swing workers in role prefill".
        check: returns None, False or an empty value for "not yet"; errors of transport count as that, too.
        limit_s: how long to wait at most.
        every_s: pause between two calls.

    Raises:
        NotInTimeError: it did not come in time; the message says what the last check found.
    """
    end = time.monotonic() + limit_s
    last: object = None
    while True:
        try:
            found = check()
            if found:
                return found
            last = found
        except TRANSIENT as error:
            last = f"{type(error).__name__}: {error}"
        if time.monotonic() >= end:
            raise NotInTimeError(f"waited {limit_s:g} s for {what}; the last look found {last!r}")
        time.sleep(every_s)
