"""External authorizers, by HTTP and by gRPC, as small as can be: they know keys, and keep what they were asked."""

import asyncio
import ssl
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from aiohttp import web
from envoy.service.auth.v3.external_auth_pb2 import CheckRequest, CheckResponse

from swingpool.picker.rpc import Call, Server
from swingpool_control import names

CHECK = "/envoy.service.auth.v3.Authorization/Check"
DENIED = 7
"""gRPC's status of what is not permitted."""

ELSEWHERE = "203.0.113.9:80"


@dataclass(frozen=True)
class Question:
    """What an authorizer was asked."""

    method: str
    path: str
    headers: dict[str, str]
    body: bytes


@dataclass
class Authorizer:
    """Who is let in, by the whole text of `authorization` or `x-api-key`."""

    clients: Mapping[str, str]
    asked: list[Question] = field(default_factory=list)
    hangs: bool = False
    status: int = 0
    """Answer with this one whatever is asked; 0 to look."""

    def client(self, question: Question) -> str | None:
        """Keep a question; return whose it is, None if nobody's."""
        self.asked.append(question)
        key = question.headers.get("authorization") or question.headers.get("x-api-key", "")
        return self.clients.get(key)

    @property
    def says(self) -> dict[str, str]:
        """What it would have Envoy set besides, and may not."""
        return {names.HEADER_DESTINATION: ELSEWHERE, "x-worker-flag": "1"}


@asynccontextmanager
async def by_http(authorizer: Authorizer, port: int, *, tls: ssl.SSLContext | None = None) -> AsyncIterator[Authorizer]:
    """Serve by HTTP."""

    async def check(request: web.Request) -> web.Response:
        headers = {name.lower(): value for name, value in request.headers.items()}
        client = authorizer.client(Question(request.method, request.path_qs, headers, await request.read()))
        if authorizer.hangs:
            await asyncio.Event().wait()
        if authorizer.status:
            return web.Response(status=authorizer.status)
        if client is None:
            told = {"www-authenticate": "Bearer", "x-internal": "db-3"}
            return web.json_response({"error": {"message": "ask the platform team"}}, status=401, headers=told)
        return web.Response(headers={names.HEADER_TENANT: client, **authorizer.says})

    app = web.Application()
    app.router.add_route("*", "/{path:.*}", check)
    runner = web.AppRunner(app)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", port, ssl_context=tls).start()
    try:
        yield authorizer
    finally:
        await runner.cleanup()


class _Check:
    """One call of the gRPC service."""

    def __init__(self, authorizer: Authorizer, call: Call) -> None:
        self._authorizer = authorizer
        self._call = call

    def message(self, data: bytes) -> None:
        http = CheckRequest.FromString(data).attributes.request.http
        headers = dict(http.headers)
        client = self._authorizer.client(Question(http.method, http.path, headers, http.raw_body or http.body.encode()))
        answer = CheckResponse()
        if client is None:
            answer.status.code = DENIED
            answer.denied_response.status.code = 403
            answer.denied_response.body = "not yours"
        else:
            for name, value in {names.HEADER_TENANT: client, **self._authorizer.says}.items():
                option = answer.ok_response.headers.add()
                option.header.key, option.header.value = name, value
        self._call.send(answer.SerializeToString())
        self._call.end()

    def ended(self) -> None:
        pass

    def gone(self) -> None:
        pass


@asynccontextmanager
async def by_grpc(authorizer: Authorizer, port: int, *, tls: ssl.SSLContext | None = None) -> AsyncIterator[Authorizer]:
    """Serve by gRPC."""
    server = Server({CHECK: lambda call: _Check(authorizer, call)}, most_bytes=2**20)
    await server.start("127.0.0.1", port, tls=tls)
    try:
        yield authorizer
    finally:
        await server.stop(grace_s=0.1)
