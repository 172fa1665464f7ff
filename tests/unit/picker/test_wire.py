"""The prefill leg's HTTP: whole answers in every framing, and each way in which there is none."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable

import pytest

from swingpool.picker.wire import (
    KEEP_ALIVE_S,
    BrokenError,
    ConnectError,
    CutError,
    Errand,
    HttpPool,
    Response,
    _connect,
    _request,
)
from tests.support.wire import said

Script = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]
Serve = Callable[[Script], Awaitable[str]]
OK = b"HTTP/1.1 200 OK\r\ncontent-type: text/plain\r\n"
HELLO = (200, "text/plain", b"hello")


@pytest.fixture
async def serve() -> AsyncIterator[Serve]:
    """Starts servers that do to each connection what a script says, and ends them."""
    servers: list[asyncio.Server] = []

    async def start(script: Script) -> str:
        async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            try:
                await script(reader, writer)
            except (asyncio.IncompleteReadError, ConnectionError):
                pass
            finally:
                writer.close()

        server = await asyncio.start_server(connected, "127.0.0.1", 0)
        servers.append(server)
        return f"127.0.0.1:{server.sockets[0].getsockname()[1]}"

    yield start
    for server in servers:
        server.close()


async def request(reader: asyncio.StreamReader) -> bytes:
    head = await reader.readuntil(b"\r\n\r\n")
    length = next(int(line.split(b":")[1]) for line in head.split(b"\r\n") if line.startswith(b"content-length:"))
    return head + await reader.readexactly(length)


def answering(*pieces: bytes, close: bool = False) -> Script:
    async def script(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while True:
            await request(reader)
            for piece in pieces:
                writer.write(piece)
                await writer.drain()
                await asyncio.sleep(0)
            if close:
                return

    return script


async def post(address: str, pool: HttpPool | None = None, body: bytes = b"{}") -> Response:
    return await (pool or HttpPool()).post(address, "/v1/completions?a=b", body, {"x-request-id": "r"})


@pytest.mark.parametrize(
    ("pieces", "close"),
    [
        ((OK + b"content-length: 5\r\n\r\nhello",), False),
        ((OK + b"content-length: 5\r", b"\n\r\nhel", b"lo"), False),
        ((OK + b"transfer-encoding: chunked\r\n\r\n3;x=y\r\nhel\r\n2\r\nlo\r\n0\r\n\r\n",), False),
        ((OK + b"transfer-encoding: chunked\r\n\r\n", b"5\r", b"\nhello\r\n0\r\n", b"\r\n"), False),
        ((OK + b"\r\nhello",), True),
        ((b"HTTP/1.1 100 Continue\r\n\r\n", OK + b"content-length: 5\r\n\r\nhello"), False),
    ],
    ids=["counted", "in pieces", "chunked", "chunked in pieces", "until close", "continue"],
)
async def test_an_answer_in_any_framing(serve: Serve, pieces: tuple[bytes, ...], close: bool) -> None:
    address = await serve(answering(*pieces, close=close))
    assert said(await post(address)) == HELLO


async def test_one_connection_carries_many_and_big_requests(serve: Serve) -> None:
    connections: list[bytes] = []

    async def script(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        connections.append(b"")
        while True:
            sent = await request(reader)
            assert sent.startswith(b"POST /v1/completions?a=b HTTP/1.1\r\n")
            assert b"\r\nx-request-id: r\r\n" in sent
            body = sent.partition(b"\r\n\r\n")[2]
            writer.write(OK + b"content-length: %d\r\n\r\n" % len(body) + body)
            await writer.drain()

    address, pool = await serve(script), HttpPool()
    for size in (0, 10, 3_000_000):
        assert len((await post(address, pool, b"x" * size)).body) == size
    assert len(connections) == 1
    pool.keep_only([])
    await post(address, pool)
    assert len(connections) == 2


async def test_a_connection_that_was_closed_while_idle_is_replaced(serve: Serve) -> None:
    async def once(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await request(reader)
        writer.write(OK + b"content-length: 2\r\n\r\nok")
        await writer.drain()

    address, pool = await serve(once), HttpPool()
    for _ in range(5):
        assert (await post(address, pool)).body == b"ok"


@pytest.mark.parametrize(
    "answer",
    [
        b"",
        b"HTTP/1.1 200 OK\r\n",
        OK + b"content-length: 50\r\n\r\nshort",
        OK + b"transfer-encoding: chunked\r\n\r\n5\r\nhel",
        b"SSH-2.0-OpenSSH\r\n\r\n",
        OK + b"content-length: many\r\n\r\n",
        OK + b"content-length: -1\r\n\r\nx",
        OK + b"content-length: 99999999999999\r\n\r\nx",
        OK + b"transfer-encoding: chunked\r\n\r\nzz\r\n",
        b"\r\n\r\n",
    ],
)
async def test_half_answers_and_nonsense_are_told_as_broken(serve: Serve, answer: bytes) -> None:
    address = await serve(answering(answer, close=True))
    with pytest.raises(BrokenError):
        await post(address)


async def test_nobody_listens(serve: Serve) -> None:
    with pytest.raises(ConnectError, match="refused"):
        await post("127.0.0.1:1")


async def test_headers_cannot_smuggle_a_request(serve: Serve) -> None:
    address = await serve(answering(OK + b"content-length: 0\r\n\r\n"))
    with pytest.raises(BrokenError, match="line break"):
        await HttpPool().post(address, "/", b"", {"authorization": "x\r\nhost: evil"})


async def test_cancelling_closes_the_connection(serve: Serve) -> None:
    closed = asyncio.Event()
    asked = asyncio.Event()

    async def script(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await request(reader)
        asked.set()
        await reader.read()
        closed.set()

    asking = asyncio.create_task(post(await serve(script)))
    await asked.wait()
    asking.cancel()
    await asyncio.wait_for(closed.wait(), 10)
    assert asking.cancelled()


async def test_an_answer_that_was_on_its_way_when_nobody_waited_any_more_is_told(serve: Serve) -> None:
    """A server sees at once that the client has left; what it had just answered by then is heard."""
    asked, left = asyncio.Event(), asyncio.Event()

    async def script(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await request(reader)
        asked.set()
        assert await reader.read() == b"", "the client has left"
        left.set()
        writer.write(OK + b"content-length: 5\r\n\r\nhello")
        await writer.drain()

    address = await serve(script)
    told: asyncio.Queue[Response] = asyncio.Queue()
    asking = asyncio.create_task(
        HttpPool().post(address, "/", b"{}", {}, errand=Errand(told.put_nowait, lambda: False))
    )
    await asked.wait()
    asking.cancel()
    await asyncio.wait_for(left.wait(), 10)
    assert said(await asyncio.wait_for(told.get(), 10)) == HELLO
    assert asking.cancelled()


async def test_an_errand_that_is_cut_short_closes_the_connection_and_is_not_run_again(serve: Serve) -> None:
    asked: asyncio.Queue[None] = asyncio.Queue()
    closed = asyncio.Event()

    async def script(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await request(reader)
        writer.write(OK + b"content-length: 0\r\n\r\n")
        await writer.drain()
        await request(reader)
        asked.put_nowait(None)
        await reader.read()
        closed.set()

    address, pool = await serve(script), HttpPool()
    await post(address, pool)
    told: list[Response] = []
    errand = Errand(told.append, lambda: False)
    asking = asyncio.create_task(pool.post(address, "/", b"{}", {}, errand=errand))
    await asked.get()
    errand.cut("it hangs")
    errand.cut("it hangs still")
    with pytest.raises(CutError, match=r"^it hangs$"):
        await asking
    await asyncio.wait_for(closed.wait(), 10)
    assert asked.empty()
    assert not told


async def test_an_errand_that_is_cut_short_before_it_begins_never_does(serve: Serve) -> None:
    errand = Errand(lambda _: None, lambda: False)
    errand.cut("its pod is gone")
    with pytest.raises(CutError, match="its pod is gone"):
        await HttpPool().post(await serve(answering(OK)), "/", b"{}", {}, errand=errand)


async def test_an_answer_that_has_come_when_its_asker_is_cancelled_is_told(serve: Serve) -> None:
    address, told = await serve(answering(OK + b"content-length: 5\r\n\r\nhello")), list[Response]()
    connection = await _connect(address)
    asking = connection.exchange(_request(address, "/", b"{}", {}))
    answer = await asking
    connection.leave(Errand(told.append, lambda: True))
    assert told == [answer]
    assert said(answer) == HELLO


async def test_an_answer_that_comes_between_a_cancellation_and_its_effect_is_told(serve: Serve) -> None:
    connection, told = await _connect(await serve(answering())), list[Response]()
    asking = connection.exchange(b"POST / HTTP/1.1\r\ncontent-length:0\r\n\r\n")
    await asyncio.sleep(0)
    asking.cancel()
    connection.data_received(OK + b"content-length: 5\r\n\r\nhello")
    await asyncio.gather(asking, return_exceptions=True)
    connection.leave(Errand(told.append, lambda: True))
    assert [said(one) for one in told] == [HELLO]


async def test_connections_of_busier_times_are_closed(serve: Serve) -> None:
    address, pool = await serve(answering(OK + b"content-length: 0\r\n\r\n")), HttpPool()
    await asyncio.gather(*(post(address, pool) for _ in range(8)))
    assert len(pool._idle[address]) == 8
    for connection in list(pool._idle[address])[:7]:
        connection.idle_since_s -= KEEP_ALIVE_S
    await post(address, pool)
    assert len(pool._idle[address]) == 1
    pool.keep_only(())
