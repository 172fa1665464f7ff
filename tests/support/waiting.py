"""Waiting for what a test needs, as long as a busy machine may take and no longer."""

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import TypeVar

import aiohttp

from e2e.system.waiting import wait_for

T = TypeVar("T")

ENOUGH_S = 60.0
"""How long anything may take to come true on a busy machine."""


def until(what: str, look: Callable[[], T | None], *, limit_s: float = ENOUGH_S) -> T:
    """Return what `look` finds once it is true; fail with `what` if that takes too long."""
    return wait_for(what, look, limit_s=limit_s, every_s=0.1)


async def until_async(what: str, holds: Callable[[], Awaitable[bool]], *, limit_s: float = ENOUGH_S) -> float:
    """Wait until something holds and return the seconds that took; whoever cannot be asked yet has not answered."""
    started_s = time.monotonic()
    while True:
        try:
            if await holds():
                return time.monotonic() - started_s
        except (aiohttp.ClientError, OSError):
            pass
        if time.monotonic() - started_s > limit_s:
            raise AssertionError(f"not within {limit_s:g} s: {what}")
        await asyncio.sleep(0.05)
