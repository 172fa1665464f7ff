"""The calls by which an engine is put to sleep and woken, as vLLM answers them in its development mode.

Asleep it is healthy, takes requests and computes none of them; what it had cached is gone. Waking takes as long as the
worker was told, which stands for the way of the weights from the host's memory.
"""

import asyncio
from typing import Any

import orjson
from aiohttp import web

from swingpool.worker import protocol
from swingpool.worker.driver import Driver

LOOK_S = 0.02
"""Between two looks whether what runs has ended."""

LEVELS = ("0", "1", "2")


class Sleeping:
    """Handlers of the calls.

    Args:
        driver: what sleeps.
        wake_s: how long waking takes from a sleep that gave memory back.
    """

    def __init__(self, driver: Driver, *, wake_s: float) -> None:
        self._driver = driver
        self._wake_s = wake_s
        self._level = 0
        self._waking = asyncio.Lock()

    def attach(self, app: web.Application) -> None:
        """Add the routes."""
        app.router.add_post("/sleep", self._sleep)
        app.router.add_post("/wake_up", self._wake_up)
        app.router.add_get("/is_sleeping", self._is_sleeping)
        app.router.add_post("/reset_prefix_cache", self._reset)

    async def _sleep(self, request: web.Request) -> web.Response:
        level = request.query.get("level", "1")
        if level not in LEVELS:
            raise protocol.bad_request(f"level must be one of {', '.join(LEVELS)}, not {level!r}")
        while request.query.get("mode") == "wait" and self._driver.jobs:  # noqa: ASYNC110 - rare, and simpler than to be told
            await asyncio.sleep(LOOK_S)
        self._level = int(level)
        self._driver.sleep(forget=self._level >= 1)
        return _json({"status": "sleeping", "level": self._level})

    async def _wake_up(self, request: web.Request) -> web.Response:
        del request
        async with self._waking:
            if self._driver.asleep and self._level >= 1:
                await asyncio.sleep(self._wake_s)
            self._driver.wake()
        return _json({"status": "awake", "tags": None})

    async def _reset(self, request: web.Request) -> web.Response:
        del request
        return web.Response(status=200 if self._driver.forget_cache() else 503)

    async def _is_sleeping(self, request: web.Request) -> web.Response:
        del request
        return _json({"is_sleeping": self._driver.asleep})


def _json(body: dict[str, Any]) -> web.Response:
    return web.Response(body=orjson.dumps(body), content_type="application/json")
