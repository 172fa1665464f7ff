"""Requests that are odd or hostile: what clients may not say reaches no worker, whatever form it takes."""

import asyncio
import gzip
import json
from collections.abc import AsyncIterator
from typing import Any

import aiohttp
import pytest
from aiohttp import web

from tests.support.router_client import ask, completion
from tests.support.router_stand import Stand
from tests.support.waiting import until_async

JSON = {"content-type": "application/json"}
STOLEN = {"do_remote_prefill": True, "remote_host": "127.0.0.1", "remote_port": 9, "remote_block_ids": [1]}
HOSTILE = json.dumps(completion(kv_transfer_params=STOLEN))
ENDED = 'swingpool_router_requests_total{code="200"}'


@pytest.mark.parametrize(
    "raw",
    [
        pytest.param(HOSTILE.encode("utf-16"), id="utf-16"),
        pytest.param(b"\xef\xbb\xbf" + HOSTILE.encode(), id="byte-order-mark"),
        pytest.param(HOSTILE[:-1].encode() + b', "x": NaN}', id="nan"),
        pytest.param(HOSTILE[:-1].encode() + b', "x": "\\ud800"}', id="half-surrogate"),
        pytest.param(HOSTILE[:-1].encode() + b', "x": ' + b"[" * 300 + b"]" * 300 + b"}", id="deep"),
        pytest.param(gzip.compress(HOSTILE.encode()), id="gzip"),
    ],
)
@pytest.mark.parametrize("path", ["/v1/completions", "/v1/responses"])
async def test_what_only_workers_could_read_is_refused(
    stand: Stand, session: aiohttp.ClientSession, raw: bytes, path: str
) -> None:
    async with session.post(stand.url + path, data=raw, headers=JSON) as response:
        error = (await response.json())["error"]
    assert (response.status, error["type"], error["code"]) == (400, "invalid_request_error", 400)
    assert error["message"].startswith("the body is n")


class Echo:
    """A worker that answers with what it got."""

    def __init__(self) -> None:
        self.statuses: list[int] = []
        """What requests are answered with, one after another; 200 once there are none."""

    async def serve(self, request: web.Request) -> web.Response:
        """Answer with the body."""
        body = await request.read()
        if request.path == "/health":
            return web.Response()
        status = self.statuses.pop(0) if self.statuses else 200
        return web.Response(status=status, body=body, headers={"x-length": request.headers.get("content-length", "")})


@pytest.fixture
async def echo(stand: Stand, session: aiohttp.ClientSession) -> AsyncIterator[Echo]:
    """Two names of one echoing worker, as the router's only ones."""
    worker = Echo()
    app = web.Application(client_max_size=2**26)
    app.router.add_route("*", "/{path:.*}", worker.serve)
    runner = web.AppRunner(app)
    await runner.setup()
    addresses = ("127.0.0.1", "127.0.0.2")
    ports = []
    for address in addresses:
        site = web.TCPSite(runner, address, 0)
        await site.start()
        assert site._server is not None
        ports.append(site._server.sockets[0].getsockname()[1])  # type: ignore[attr-defined]
    members = [{"address": f"{host}:{port}", "role": "decode"} for host, port in zip(addresses, ports, strict=True)]
    stand.workers_file.write_text(json.dumps(members))

    async def in_rotation() -> bool:
        workers = (await stand.state(session)).workers
        async with session.get(f"{stand.url}/v1/nothing") as response:
            return len(workers) == 2 and all(one.in_rotation for one in workers) and response.status == 200

    await until_async("the echo is in rotation", in_rotation)
    yield worker
    await runner.cleanup()


async def test_parameters_of_transfers_reach_no_worker_on_any_path(
    stand: Stand, session: aiohttp.ClientSession, echo: Echo
) -> None:
    async def in_pieces() -> AsyncIterator[bytes]:
        for piece in (HOSTILE[:20], HOSTILE[20:]):
            yield piece.encode()

    for path in ("/v1/completions", "/v1/completions/", "/v1/%63ompletions", "/v1/responses", "/v1/messages?beta=true"):
        for data in (HOSTILE.encode(), in_pieces()):
            async with session.post(stand.url + path, data=data, headers=JSON) as response:
                body = await response.read()
            assert json.loads(body) == completion(), path
            assert int(response.headers["x-length"]) == len(body)


@pytest.mark.parametrize(
    ("content_type", "raw"),
    [
        ("application/json", b'{"input": [1, 2.50, "\xc3\xa9"]}'),
        ("application/json", b'[{"a": 1}]'),
        ("application/octet-stream", bytes(range(256))),
        ("multipart/form-data; boundary=x", b"--x\r\n\r\n\xff\r\n--x--"),
        ("Multipart/Form-Data; boundary=x", HOSTILE.encode()),
    ],
)
async def test_other_bodies_pass_as_they_are(
    stand: Stand, session: aiohttp.ClientSession, echo: Echo, content_type: str, raw: bytes
) -> None:
    async with session.post(f"{stand.url}/v1/other", data=raw, headers={"content-type": content_type}) as response:
        assert (response.status, await response.read()) == (200, raw)


async def test_a_generation_that_a_worker_refuses_with_500_goes_to_another(
    stand: Stand, session: aiohttp.ClientSession, echo: Echo
) -> None:
    echo.statuses = [500]
    async with session.post(f"{stand.url}/v1/completions", json=completion()) as response:
        assert (response.status, await response.json(content_type=None)) == (200, completion())
    echo.statuses = [500]
    async with session.post(f"{stand.url}/v1/other", json={}) as response:
        assert response.status == 500, "nobody knows what that worker has done"


async def test_a_decode_worker_that_shuts_down_costs_no_request(stand: Stand, session: aiohttp.ClientSession) -> None:
    await stand.fault(session, "d0", kind="error", status=500)
    try:
        bodies: list[dict[str, Any]] = [completion(f"{i} two three", stream=i % 2 == 0) for i in range(8)]
        answers = await asyncio.gather(*(ask(session, stand.url, body) for body in bodies))
        assert [answer.status for answer in answers] == [200] * 8
    finally:
        await stand.fault(session, "d0")


@pytest.mark.parametrize("head", [b"HTTP/1.0", b"HTTP/1.1\r\nhost: a\r\nexpect: 100-continue"])
async def test_older_ways_of_asking(stand: Stand, head: bytes) -> None:
    body = json.dumps(completion()).encode()
    tail = b"content-type: application/json\r\ncontent-length: %d\r\nconnection: close\r\n\r\n" % len(body)
    answer = await exchange(stand, b"POST /v1/completions " + head + b"\r\n" + tail + body)
    assert b" 200 OK\r\n" in answer
    assert b'"text_completion"' in answer


async def test_an_id_that_is_no_text_blinds_nobody(stand: Stand, session: aiohttp.ClientSession) -> None:
    before = await stand.metric(session, ENDED)
    odd = b"GET /v1/models HTTP/1.1\r\nhost: a\r\nx-request-id: \xff\xfe\r\nconnection: close\r\n\r\n"
    answers = await asyncio.gather(exchange(stand, odd), *(ask(session, stand.url, completion()) for _ in range(4)))
    assert len(answers) == 5

    async def told() -> bool:
        return await stand.metric(session, ENDED) == before + 4

    await until_async("every other request is told of", told)
    assert "DecodeError" not in stand.log("picker")


async def exchange(stand: Stand, request: bytes) -> bytes:
    reader, writer = await asyncio.open_connection("127.0.0.1", stand.router_port)
    writer.write(request)
    await writer.drain()
    try:
        return await reader.read(-1)
    finally:
        writer.close()


@pytest.mark.parametrize("length", [b"content-length: 0\r\n", b""])
async def test_a_generation_without_a_body_is_refused(stand: Stand, length: bytes) -> None:
    """By a worker: the picker is asked by bodies."""
    head = b"POST /v1/completions HTTP/1.1\r\nhost: a\r\ncontent-type: application/json\r\nconnection: close\r\n"

    async def refused() -> bool:  # once Envoy finds workers alive again, which went by turns in other tests
        answer = await exchange(stand, head + length + b"\r\n")
        return b" 400 Bad Request\r\n" in answer and b'"error"' in answer

    await until_async("a worker refuses it", refused)


async def test_trailers_after_a_generations_body(stand: Stand) -> None:
    body = json.dumps(completion()).encode()
    head = b"POST /v1/completions HTTP/1.1\r\nhost: a\r\ncontent-type: application/json\r\nconnection: close\r\n"
    chunked = b"%x\r\n%s\r\n0\r\nx-trailer: t\r\n\r\n" % (len(body), body)
    answer = await exchange(stand, head + b"transfer-encoding: chunked\r\ntrailer: x-trailer\r\n\r\n" + chunked)
    assert b" 200 OK\r\n" in answer
    assert b'"text_completion"' in answer


async def test_a_header_that_is_no_text_is_refused(stand: Stand) -> None:
    body = json.dumps(completion()).encode()
    head = b"POST /v1/completions HTTP/1.1\r\nhost: a\r\nx-request-id: \xff\xfe\r\nconnection: close\r\n"
    answer = await exchange(stand, head + b"content-length: %d\r\n\r\n" % len(body) + body)
    assert b" 400 Bad Request\r\n" in answer
    assert b"not in UTF-8" in answer


@pytest.mark.parametrize(
    ("header", "status", "said"),
    [
        ("authorization", b" 200 OK", b'"text_completion"'),
        ("path", b" 200 OK", b'"text_completion"'),
        ("x-request-id", b" 400 Bad Request", b"x-request-id must be shorter than 8 KiB"),
    ],
)
async def test_a_header_too_long_to_be_told_beside_a_body(
    stand: Stand, header: str, status: bytes, said: bytes
) -> None:
    long = b"a" * 9000
    body = json.dumps(completion()).encode()
    first = b"POST /v1/completions%s HTTP/1.1\r\n" % (b"?q=" + long if header == "path" else b"")
    more = b"" if header == "path" else header.encode() + b": " + long + b"\r\n"
    head = b"host: a\r\ncontent-type: application/json\r\nconnection: close\r\ncontent-length: %d\r\n" % len(body)
    answer = await exchange(stand, first + head + more + b"\r\n" + body)
    assert status in answer
    assert said in answer
