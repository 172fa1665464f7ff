"""gRPC for the two services that Envoy calls: messages of a stream in and out, over our own HTTP/2."""

import asyncio
import contextlib
import logging
import ssl
import struct
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Protocol

from swingpool.picker.header_blocks import Headers
from swingpool.picker.http2 import Connection, Receiver, Stream

OK, RESOURCE_EXHAUSTED, UNIMPLEMENTED, INTERNAL = 0, 8, 12, 13

_PREFIX = struct.Struct(">BI")
# Header blocks without any state: `:status: 200` is HPACK's entry 8, `content-type` its 31, both never change.
_HEAD = b"\x88\x0f\x10\x10application/grpc"
_OK = b"\x00\x0bgrpc-status\x010"

log = logging.getLogger(__name__)


class Handler(Protocol):
    """Who serves one call."""

    def message(self, data: bytes) -> None:
        """Take a message, serialised; an exception ends the call."""

    def ended(self) -> None:
        """Take note that no further message comes."""

    def gone(self) -> None:
        """Take note that the peer does not wait for an answer any more; nothing comes after it."""


class Call:
    """One call of a method: what its handler answers by. Nothing of it does harm after the call's end."""

    __slots__ = ("_ended", "_headed", "_stream", "headers")

    def __init__(self, stream: Stream, headers: Headers) -> None:
        self.headers = headers
        """As they came."""
        self._stream = stream
        self._headed = False
        self._ended = False

    def send(self, message: bytes) -> None:
        """Send a message, serialised."""
        if self._ended:
            return
        if not self._headed:
            self._headed = True
            self._stream.head(_HEAD)
        self._stream.send(_PREFIX.pack(0, len(message)) + message)

    def end(self, status: int = OK) -> None:
        """End the call."""
        if self._ended:
            return
        self._ended = True
        trailers = _OK if status == OK else _trailers(status)
        self._stream.end(trailers if self._headed else _HEAD + trailers)

    def cancelled(self) -> None:
        """Take note that nobody waits for an answer any more."""
        self._ended = True


Method = Callable[[Call], Handler]
"""Called for each call of a method."""


class Server:
    """Listens and serves.

    Args:
        methods: by path, as `/package.Service/Method`.
        most_bytes: of one message.
    """

    def __init__(self, methods: Mapping[str, Method], *, most_bytes: int) -> None:
        self.port = 0
        """Where it listens, if not at a path."""
        self._methods = {path.encode(): method for path, method in methods.items()}
        self._most_bytes = most_bytes
        self._connections: set[Connection] = set()
        self._idle = asyncio.Event()
        self._soon: Callable[[Callable[[], None]], object] = _at_once
        self._server: asyncio.AbstractServer | None = None

    async def start(self, host: str, port: int, *, tls: ssl.SSLContext | None = None) -> None:
        """Listen on a port; 0 takes any.

        Args:
            host: where.
            port: its number.
            tls: with which certificate; None for none.

        Raises:
            OSError: the port is taken.
        """
        loop = asyncio.get_running_loop()
        self._soon = loop.call_soon
        # Untyped: the sockets of uvloop's are no tuple, as they should be, and compiled code minds.
        server: Any = await loop.create_server(self._connected, host, port, backlog=1024, ssl=tls)
        self._server, self.port = server, int(server.sockets[0].getsockname()[1])

    async def start_at(self, path: Path) -> None:
        """Listen on a Unix socket, in place of one that was left behind there.

        Raises:
            OSError: it cannot be made there.
        """
        loop = asyncio.get_running_loop()
        self._soon = loop.call_soon
        self._server = await loop.create_unix_server(self._connected, path, backlog=1024)

    async def stop(self, *, grace_s: float) -> None:
        """Listen no more, and end once the calls under way have ended, or after some time."""
        if self._server is not None:
            self._server.close()
        for connection in list(self._connections):
            connection.close()
        if self._connections:
            self._idle.clear()
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._idle.wait(), grace_s)
        for connection in list(self._connections):
            connection.abort()

    def _connected(self) -> Connection:
        connection = Connection(self._accept, self._lost, soon=self._soon)
        self._connections.add(connection)
        return connection

    def _lost(self, connection: Connection) -> None:
        self._connections.discard(connection)
        if not self._connections:
            self._idle.set()

    def _accept(self, stream: Stream, headers: Headers) -> Receiver:
        path = next((value for name, value in headers if name == b":path"), b"")
        method = self._methods.get(path)
        call = Call(stream, headers)
        if method is None:
            call.end(UNIMPLEMENTED)
            return _Nobody()
        return _Messages(stream, call, method(call), self._most_bytes)


def _at_once(function: Callable[[], None]) -> None:
    function()


class _Nobody:
    """Takes what comes on a stream that is over."""

    def data(self, data: bytes) -> None:
        pass

    def ended(self) -> None:
        pass

    def gone(self) -> None:
        pass


class _Messages:
    """Puts a stream's pieces together to messages, and hands them to the call's handler."""

    __slots__ = ("_call", "_handler", "_most_bytes", "_parts", "_size", "_stream")

    def __init__(self, stream: Stream, call: Call, handler: Handler, most_bytes: int) -> None:
        self._stream = stream
        self._call = call
        self._handler = handler
        self._most_bytes = most_bytes
        self._parts: list[bytes] = []
        self._size = 0

    def data(self, data: bytes) -> None:
        self._size += len(data)
        self._parts.append(data)
        if self._size < _PREFIX.size:
            return
        try:
            self._take()
        except Exception:
            log.exception("a call ends after a fault of the picker's")
            self._call.end(INTERNAL)
            self._handler.gone()

    def _take(self) -> None:
        """Hand on the messages that are whole."""
        while self._size >= _PREFIX.size:
            if len(self._parts[0]) < _PREFIX.size:
                self._parts = [b"".join(self._parts)]
            compressed, size = _PREFIX.unpack_from(self._parts[0])
            if compressed or size > self._most_bytes:
                self._call.end(UNIMPLEMENTED if compressed else RESOURCE_EXHAUSTED)
                self._handler.gone()
                return
            end = _PREFIX.size + size
            if self._size < end:
                return
            whole = self._parts[0] if len(self._parts) == 1 else b"".join(self._parts)
            rest = whole[end:]
            self._parts = [rest] if rest else []
            self._size = len(rest)
            self._handler.message(whole[_PREFIX.size : end])

    def ended(self) -> None:
        self._handler.ended()

    def gone(self) -> None:
        self._call.cancelled()
        self._handler.gone()


def _trailers(status: int) -> bytes:
    text = str(status).encode()
    return b"\x00\x0bgrpc-status" + bytes((len(text),)) + text
