"""Workers that do nothing but keep what they are sent, and answer what they are told to."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import aiohttp
from aiohttp import web

from swingpool_control.resources.envoy import DECISION_PATHS
from tests.support.router_stand import Stand
from tests.support.waiting import until_async

KEPT = {"do_remote_prefill": True, "remote_host": "10.77.0.1", "remote_port": 5600, "remote_block_ids": [[1, 2]]}
"""What a leg's answer says of its KV cache."""


@dataclass(frozen=True)
class Request:
    """One request as a worker got it."""

    path: str
    headers: dict[str, str]
    raw: bytes

    @property
    def body(self) -> Any:
        """The body, read as laxly as any worker may."""
        return json.loads(self.raw)


@dataclass
class Recorder:
    """A prefill and a decode worker."""

    legs: list[Request] = field(default_factory=list)
    served: list[Request] = field(default_factory=list)
    leg_status: int = 200
    kept: dict[str, Any] | None = field(default_factory=lambda: dict(KEPT))
    answer: bytes = b'{"usage": {"prompt_tokens": 3, "completion_tokens": 2}, "choices": []}'
    pieces: tuple[bytes, ...] = ()
    """A streamed answer; each piece goes when the one before was let go."""
    go_on: asyncio.Event = field(default_factory=asyncio.Event)

    async def prefill(self, request: web.Request) -> web.StreamResponse:
        """Serve as prefill worker."""
        if request.path in ("/health", "/metrics"):
            return web.Response()
        if request.path not in DECISION_PATHS:
            return await self.decode(request)
        self.legs.append(await _kept(request))
        if request.method != "POST" or not self.legs[-1].raw:
            return web.json_response({"error": {"message": "this is no request"}}, status=400)
        if self.leg_status != 200:
            return web.json_response({"error": {"message": "10.77.0.1 says no"}}, status=self.leg_status)
        return web.json_response({"kv_transfer_params": self.kept, "usage": {"prompt_tokens": 3}})

    async def decode(self, request: web.Request) -> web.StreamResponse:
        """Serve as decode worker."""
        if request.path in ("/health", "/metrics"):
            return web.Response()
        self.served.append(await _kept(request))
        if not self.pieces:
            return web.Response(body=self.answer, content_type="application/json")
        response = web.StreamResponse(headers={"content-type": "text/event-stream"})
        await response.prepare(request)
        for piece in self.pieces:
            await response.write(piece)
            await self.go_on.wait()
            self.go_on.clear()
        return response

    def forget(self) -> None:
        """Forget what was recorded."""
        self.legs.clear()
        self.served.clear()


async def _kept(request: web.Request) -> Request:
    headers = {name.lower(): value for name, value in request.headers.items()}
    return Request(path=request.path_qs, headers=headers, raw=await request.read())


@asynccontextmanager
async def recording(stand: Stand, session: aiohttp.ClientSession) -> AsyncIterator[Recorder]:
    """Yield a prefill and a decode worker as the router's only ones."""
    recorder, runners, members = Recorder(), [], []
    for host, role, handler in (("127.0.0.1", "prefill", recorder.prefill), ("127.0.0.2", "decode", recorder.decode)):
        app = web.Application(client_max_size=2**28)
        app.router.add_route("*", "/{path:.*}", handler)
        runner = web.AppRunner(app)
        await runner.setup()
        await web.TCPSite(runner, host, 0).start()
        runners.append(runner)
        port = runner.addresses[0][1]
        members.append({"address": f"{host}:{port}", "role": role})
    stand.workers_file.write_text(json.dumps(members))
    wanted = {member["address"] for member in members}

    async def in_rotation() -> bool:
        workers = (await stand.state(session)).workers
        async with session.get(f"{stand.url}/v1/nothing") as response:
            there = {one.address for one in workers if one.in_rotation}
            return there == wanted and response.status == 200

    try:
        await until_async("the recorder is in rotation", in_rotation)
        recorder.forget()
        yield recorder
    finally:
        for runner in runners:
            await runner.cleanup()
