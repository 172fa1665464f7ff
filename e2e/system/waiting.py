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


def wait_until(
    what: str, look: Callable[[], T], holds: Callable[[T], bool], *, limit_s: float, every_s: float = 0.25
) -> T:
    """Look until what is seen `holds`, and return it.

    Args:
        what: what is awaited, for the error: "two swing workers in role prefill".
        look: takes a look; errors of transport count as "not yet".
        holds: judges what was seen.
        limit_s: how long to wait at most.
        every_s: pause between two looks.

    Raises:
        NotInTimeError: it did not come in time; the message says what was seen last.
    """
    end = time.monotonic() + limit_s
    while True:
        try:
            found = look()
            if holds(found):
                return found
            last = repr(found)
        except TRANSIENT as error:
            last = f"{type(error).__name__}: {error}"
        if time.monotonic() >= end:
            raise NotInTimeError(f"waited {limit_s:g} s for {what}; seen last: {last}")
        time.sleep(every_s)


def wait_for(what: str, look: Callable[[], T | None], *, limit_s: float, every_s: float = 0.25) -> T:
    """Look until something true is seen, and return it. See `wait_until`."""
    found = wait_until(what, look, bool, limit_s=limit_s, every_s=every_s)
    assert found is not None
    return found


def steadily(look: Callable[[], T], *, limit_s: float = 30.0) -> T:
    """Return the first look that no error of transport spoils: a busy machine may keep an API server waiting."""
    return wait_until("an answer", look, lambda found: True, limit_s=limit_s)
