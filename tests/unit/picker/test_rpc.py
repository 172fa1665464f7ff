"""Our gRPC server against gRPC's own client, and against peers that are slower, ruder or stranger than that one."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import grpc
import grpc.aio
import hpack
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from swingpool.picker import http2
from swingpool.picker.header_blocks import HeaderBlocks
from swingpool.picker.http2 import PREFACE, Connection, frame
from swingpool.picker.rpc import Call, Method, Server

AIO: Any = grpc.aio  # its stubs know less than it has
ECHO = "/test.Service/Echo"
MOST_BYTES = 3_000_000
DATA, HEADERS, RESET, SETTINGS, PING, GOAWAY, WINDOW, CONTINUATION = 0, 1, 3, 4, 6, 7, 8, 9
END_STREAM, END_HEADERS = 0x1, 0x4


class Echo:
    """Sends each message back; ends with the peer, and breaks on `fault`."""

    def __init__(self, seen: list[str], call: Call) -> None:
        self.seen = seen
        self.call = call

    def message(self, data: bytes) -> None:
        if data == b"fault":
            raise ZeroDivisionError
        self.call.send(data)

    def ended(self) -> None:
        self.seen.append("ended")
        self.call.end()

    def gone(self) -> None:
        self.seen.append("gone")
        self.call.send(b"nobody hears it")
        self.call.end()


@asynccontextmanager
async def serving(method: Method) -> AsyncIterator[tuple[Server, Callable[[], Any]]]:
    server = Server({ECHO: method}, most_bytes=MOST_BYTES)
    await server.start("127.0.0.1", 0)
    options = [("grpc.max_receive_message_length", -1), ("grpc.max_send_message_length", -1)]
    async with AIO.insecure_channel(f"127.0.0.1:{server.port}", options=options) as channel:
        yield server, channel.stream_stream(ECHO)
        await server.stop(grace_s=5)


def echo(seen: list[str]) -> Method:
    return lambda call: Echo(seen, call)


async def test_messages_of_any_size_come_back_many_calls_at_a_time() -> None:
    seen: list[str] = []

    async def one(call: Any, number: int) -> None:
        sizes = [0, 1, 5, 16_383, 16_384, 16_385, 70_000, MOST_BYTES]
        sizes = sizes[number % 4 :]
        stream = call()
        for size in sizes:
            sent = bytes([number]) * size
            await stream.write(sent)
            assert await stream.read() == sent
        await stream.done_writing()
        assert await stream.read() is AIO.EOF
        assert await stream.code() is grpc.StatusCode.OK

    async with serving(echo(seen)) as (_, call):
        await asyncio.gather(*(one(call, number) for number in range(20)))
    assert seen == ["ended"] * 20


async def test_a_method_that_is_not_there() -> None:
    async with serving(echo([])) as (server, _), AIO.insecure_channel(f"127.0.0.1:{server.port}") as channel:
        stream = channel.stream_stream("/test.Service/Other")()
        assert await stream.code() is grpc.StatusCode.UNIMPLEMENTED


async def test_too_large_a_message_ends_its_call_alone() -> None:
    seen: list[str] = []
    async with serving(echo(seen)) as (_, call):
        other, stream = call(), call()
        await other.write(b"hello")
        assert await other.read() == b"hello"
        await stream.write(b"x" * (MOST_BYTES + 1))
        assert await stream.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
        await other.write(b"still there")
        assert await other.read() == b"still there"
        other.cancel()


async def test_a_fault_ends_its_call_alone(caplog: pytest.LogCaptureFixture) -> None:
    seen: list[str] = []
    async with serving(echo(seen)) as (_, call):
        other, stream = call(), call()
        await other.write(b"hello")
        assert await other.read() == b"hello"
        await stream.write(b"fault")
        assert await stream.code() is grpc.StatusCode.INTERNAL
        assert "ZeroDivisionError" in caplog.text
        await other.write(b"still there")
        assert await other.read() == b"still there"
        other.cancel()
    assert seen == ["gone", "gone"]


async def test_whoever_leaves_is_noticed() -> None:
    left = asyncio.Event()

    class Waits(Echo):
        def gone(self) -> None:
            super().gone()
            left.set()

    async with serving(lambda call: Waits([], call)) as (_, call):
        stream = call()
        await stream.write(b"hello")
        assert await stream.read() == b"hello"
        stream.cancel()
        await asyncio.wait_for(left.wait(), 10)


async def test_the_server_ends_after_its_calls_or_after_its_grace() -> None:
    seen: list[str] = []
    async with serving(echo(seen)) as (server, call):
        stream = call()
        await stream.write(b"hello")
        assert await stream.read() == b"hello"
        stopping = asyncio.create_task(server.stop(grace_s=30))
        await asyncio.sleep(0)
        await stream.write(b"once more")
        assert await stream.read() == b"once more"
        await stream.done_writing()
        assert await stream.code() is grpc.StatusCode.OK
        await asyncio.wait_for(stopping, 10)


class Pipe(asyncio.Transport):
    """What the server writes."""

    def __init__(self) -> None:
        super().__init__()
        self.written = b""
        self.closed = False

    def write(self, data: Any) -> None:
        self.written += data

    def close(self) -> None:
        self.closed = True

    def is_closing(self) -> bool:
        return self.closed

    def frames(self) -> list[tuple[int, int, int, bytes]]:
        """Return what was written since the last look: kind, flags, stream and payload of each frame."""
        found, data, self.written = [], self.written, b""
        while data:
            size = int.from_bytes(data[:3])
            found.append((data[3], data[4], int.from_bytes(data[5:9]), data[9 : 9 + size]))
            data = data[9 + size :]
        return found


class Peer:
    """A client frame by frame."""

    def __init__(self, method: Method) -> None:
        self.server = Server({ECHO: method}, most_bytes=MOST_BYTES)
        self.pipe = Pipe()
        self.encoder = hpack.Encoder()
        self.connection: Connection = self.server._connected()  # without a loop, everything is written at once
        self.connection.connection_made(self.pipe)

    def open(self, number: int, *, pieces: int = 1) -> bytes:
        """Return the frames that open a call, its header block in so many pieces."""
        headers = [(":method", "POST"), (":scheme", "http"), (":path", ECHO), ("te", "trailers")]
        block = self.encoder.encode(headers)
        size = -(-len(block) // pieces)
        parts = [block[at : at + size] for at in range(0, len(block), size)]
        last = len(parts) - 1
        return b"".join(
            frame(CONTINUATION if index else HEADERS, END_HEADERS if index == last else 0, number, part)
            for index, part in enumerate(parts)
        )

    @staticmethod
    def message(number: int, data: bytes) -> bytes:
        """Return the frames of a message."""
        data = b"\0" + len(data).to_bytes(4) + data
        return b"".join(frame(DATA, 0, number, data[at : at + 16_384]) for at in range(0, len(data), 16_384))


def window(initial: int) -> bytes:
    return frame(SETTINGS, 0, 0, (4).to_bytes(2) + initial.to_bytes(4))


def more(stream: int, size: int) -> bytes:
    return frame(WINDOW, 0, stream, size.to_bytes(4))


def test_nothing_is_sent_that_the_peer_has_no_room_for() -> None:
    peer = Peer(echo([]))
    take = peer.connection.data_received
    take(PREFACE + window(10) + peer.open(1) + peer.message(1, b"x" * 100) + frame(DATA, END_STREAM, 1, b""))
    sent = peer.pipe.frames()
    assert [(kind, len(data)) for kind, _, number, data in sent if number == 1 and kind == DATA] == [(DATA, 10)]
    assert not any(flags & END_STREAM for kind, flags, *_ in sent if kind in (DATA, HEADERS))
    take(more(1, 7))
    assert [len(data) for kind, _, _, data in peer.pipe.frames() if kind == DATA] == [7]
    take(window(20))
    assert [len(data) for kind, _, _, data in peer.pipe.frames() if kind == DATA] == [10]
    take(more(1, 1000))
    *data, last = peer.pipe.frames()
    assert [len(one[3]) for one in data] == [78]
    assert last[0] == HEADERS
    assert last[1] & END_STREAM
    assert not peer.connection.streams


def test_the_connections_room_counts_too() -> None:
    peer = Peer(echo([]))
    take = peer.connection.data_received
    take(PREFACE + window(2**31 - 1))
    for number in (1, 3):
        take(peer.open(number) + peer.message(number, b"x" * 40_000))
    sent = sum(len(data) for kind, _, _, data in peer.pipe.frames() if kind == DATA)
    assert sent == 65_535
    take(more(0, 2**20))
    assert sum(len(data) for kind, _, _, data in peer.pipe.frames() if kind == DATA) == 2 * 40_005 - sent


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_it_is_the_same_however_the_bytes_are_cut(data: st.DataObject) -> None:
    peer = Peer(echo([]))
    text = PREFACE + frame(SETTINGS, 0, 0, b"") + frame(PING, 0, 0, b"12345678")
    sizes = data.draw(st.lists(st.integers(0, 40_000), min_size=1, max_size=4))
    for index, size in enumerate(sizes):
        number = 2 * index + 1
        text += peer.open(number, pieces=data.draw(st.integers(1, 5)))
        text += peer.message(number, bytes([index]) * size) + frame(DATA, END_STREAM, number, b"")
    cuts = sorted(data.draw(st.lists(st.integers(0, len(text)), max_size=12)))
    for start, end in zip([0, *cuts], [*cuts, len(text)], strict=True):
        peer.connection.data_received(text[start:end])
    frames = peer.pipe.frames()
    assert (PING, 1, 0, b"12345678") in frames
    for index, size in enumerate(sizes):
        body = b"".join(one[3] for one in frames if one[0] == DATA and one[2] == 2 * index + 1)
        if sum(sizes) < 65_000:
            assert body == b"\0" + size.to_bytes(4) + bytes([index]) * size
            assert any(one[0] == HEADERS and one[1] & END_STREAM and one[2] == 2 * index + 1 for one in frames)
    assert not peer.pipe.closed


@settings(max_examples=300, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 12), st.integers(0, 255), st.integers(0, 9), st.binary(max_size=40))))
def test_no_frame_breaks_it(frames: list[tuple[int, int, int, bytes]]) -> None:
    """Whatever comes, the connection ends with a word or goes on; it does not raise, and forgets nobody."""
    seen: list[str] = []
    peer = Peer(echo(seen))
    peer.connection.data_received(PREFACE + peer.open(1))
    for kind, flags, number, payload in frames:
        if not peer.pipe.closed:
            peer.connection.data_received(frame(kind, flags, number, payload))
    if peer.pipe.closed:
        assert peer.pipe.frames()[-1][0] == GOAWAY
    peer.connection.connection_lost(None)
    assert not peer.connection.streams
    assert not peer.server._connections


@pytest.mark.parametrize(
    ("text", "code"),
    [
        (b"GET / HTTP/1.1\r\n\r\n", http2.PROTOCOL_ERROR),
        (PREFACE + b"\xff\xff\xff" + bytes(6), http2.FRAME_SIZE_ERROR),
        (PREFACE + frame(DATA, 0, 7, b"x"), http2.PROTOCOL_ERROR),
        (PREFACE + frame(HEADERS, END_HEADERS, 1, b"\xff\xff\xff\xff"), http2.COMPRESSION_ERROR),
        (PREFACE + frame(HEADERS, 0, 1, b"") + frame(PING, 0, 0, bytes(8)), http2.PROTOCOL_ERROR),
        (PREFACE + frame(HEADERS, END_HEADERS, 2, b""), http2.PROTOCOL_ERROR),
        (PREFACE + more(0, 2**31 - 1), http2.FLOW_CONTROL_ERROR),
    ],
)
def test_who_speaks_no_http2_is_told_so(text: bytes, code: int) -> None:
    peer = Peer(echo([]))
    peer.connection.data_received(text)
    kind, _, _, payload = peer.pipe.frames()[-1]
    assert (kind, payload[4:]) == (GOAWAY, code.to_bytes(4))
    assert peer.pipe.closed


@settings(max_examples=200, deadline=None)
@given(
    st.lists(
        st.tuples(
            st.lists(st.tuples(st.sampled_from("abcd"), st.sampled_from(["", "1", "2" * 30])), max_size=4),
            st.sampled_from([None, None, None, 0, 64, 4096]),
        ),
        max_size=30,
    )
)
def test_a_block_says_what_the_table_of_the_moment_makes_it_say(
    blocks: list[tuple[list[tuple[str, str]], int | None]],
) -> None:
    encoder, reader = hpack.Encoder(), HeaderBlocks()
    for headers, size in blocks:
        if size is not None:
            encoder.header_table_size = size
        read = reader.read(encoder.encode(headers))
        assert read == [(name.encode(), value.encode()) for name, value in headers]
