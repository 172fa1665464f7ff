"""A worker's address that lets a test act between a prefill leg's answer and the router's receipt of it."""

import asyncio
from collections.abc import Callable

import aiohttp
from aiohttp import web

_HOP_HEADERS = ("content-length", "transfer-encoding", "connection", "content-encoding")


class Gate:
    """Passes requests on to a worker. Armed, it holds so many answers to POST, acts once, then lets them go."""

    def __init__(self, target: str, port: int) -> None:
        self.address = f"127.0.0.1:{port}"
        self._target = target
        self._port = port
        self._runner: web.AppRunner | None = None
        self._session: aiohttp.ClientSession | None = None
        self._missing = 0
        self._act: Callable[[], None] | None = None
        self._opened = asyncio.Event()

    async def __aenter__(self) -> "Gate":
        self._session = aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=60), auto_decompress=False)
        app = web.Application(client_max_size=1 << 26)
        app.router.add_route("*", "/{path:.*}", self._pass)
        self._runner = web.AppRunner(app, access_log=None)
        await self._runner.setup()
        await web.TCPSite(self._runner, "127.0.0.1", self._port).start()
        return self

    async def __aexit__(self, *exception: object) -> None:
        if self._runner:
            await self._runner.cleanup()
        if self._session:
            await self._session.close()

    def arm(self, answers: int, act: Callable[[], None]) -> None:
        """Hold the next answers to POST until there are so many, then call `act`, then release them."""
        self._missing, self._act, self._opened = answers, act, asyncio.Event()

    async def _pass(self, request: web.Request) -> web.Response:
        assert self._session is not None
        body = await request.read()
        headers = {key: value for key, value in request.headers.items() if key.lower() not in ("host", *_HOP_HEADERS)}
        try:
            async with self._session.request(
                request.method, f"http://{self._target}{request.path_qs}", data=body, headers=headers
            ) as response:
                answer = await response.read()
                status, kind = response.status, response.content_type
        except (aiohttp.ClientError, OSError, TimeoutError):
            return web.Response(status=503)  # the worker behind is dead
        if request.method == "POST" and self._act is not None:
            await self._hold()
        return web.Response(status=status, body=answer, content_type=kind)

    async def _hold(self) -> None:
        self._missing -= 1
        if self._missing <= 0 and self._act is not None:
            act, self._act = self._act, None
            act()
            self._opened.set()
        await self._opened.wait()
