"""HTTP/2 as a server needs it for gRPC from a proxy beside it: frames, header blocks, flow control, and nothing more.

Every request costs two messages in and two out, and a general gRPC server takes more processor time for those than the
rest of the picker takes for all of its work. So this one has no threads, tasks or futures: what comes is handed on in
the call in which it was read, and what is sent is written by the end of the event loop's turn, with all other answers.
"""

import asyncio
import logging
import struct
from collections import deque
from collections.abc import Callable
from typing import Protocol, cast

from swingpool.picker.header_blocks import HeaderBlocks, Headers, UnreadableBlockError

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
MOST_FRAME_BYTES = 16_384
"""What a peer may put into one frame; HTTP/2's default, and its least."""
MOST_HEADER_BYTES = 64 * 1024
STREAM_WINDOW_BYTES = 16 * 1024 * 1024
"""How far a peer may be ahead of us on one stream; what was read is given back at once, by halves."""
_CONNECTION_WINDOW_BYTES = 2**31 - 1
_DEFAULT_WINDOW_BYTES = 65_535

_DATA, _HEADERS, _RESET, _SETTINGS, _PUSH, _PING, _GOAWAY, _WINDOW, _CONTINUATION = 0, 1, 3, 4, 5, 6, 7, 8, 9
_END_STREAM, _ACK, _END_HEADERS, _PADDED, _PRIORITY = 0x1, 0x1, 0x4, 0x8, 0x20
_INITIAL_WINDOW, _MAX_FRAME = 4, 5

NO_ERROR, PROTOCOL_ERROR, INTERNAL_ERROR, FLOW_CONTROL_ERROR = 0, 1, 2, 3
FRAME_SIZE_ERROR, COMPRESSION_ERROR, ENHANCE_YOUR_CALM = 6, 9, 11

_FRAME = struct.Struct(">HBBBI")  # the length has 24 bits
_SETTING = struct.Struct(">HI")
_WORD = struct.Struct(">I")

log = logging.getLogger(__name__)


class Http2Error(Exception):
    """The peer broke the protocol; the connection ends."""

    def __init__(self, code: int, why: str) -> None:
        super().__init__(why)
        self.code = code


class Receiver(Protocol):
    """Who is told what comes on one stream; nothing comes after `gone`."""

    def data(self, data: bytes) -> None:
        """Take a piece of the request's body, of any size."""

    def ended(self) -> None:
        """Take note that the request is whole."""

    def gone(self) -> None:
        """Take note that the peer does not wait for an answer any more."""


Accept = Callable[["Stream", Headers], Receiver]
"""Called for each new stream with the headers of its request."""


class Stream:
    """One request and its answer."""

    __slots__ = ("_connection", "_last", "_unsent", "number", "receiver", "taken", "window")

    def __init__(self, connection: "Connection", number: int, window: int) -> None:
        self.number = number
        self.window = window
        """Bytes that the peer takes yet."""
        self.taken = 0
        """Bytes that have come since the peer was told last."""
        self.receiver: Receiver | None = None
        self._connection = connection
        self._unsent: deque[memoryview] = deque()
        self._last: bytes | None = None
        """The header block that ends the answer once all is sent."""

    def head(self, block: bytes) -> None:
        """Send the answer's headers, encoded."""
        self._connection.write(frame(_HEADERS, _END_HEADERS, self.number, block))

    def send(self, data: bytes) -> None:
        """Send a piece of the answer's body, now or when the peer has room."""
        connection, size = self._connection, len(data)
        if not self._unsent and size <= self.window and size <= connection.window and size <= connection.frame_bytes:
            self.window -= size
            connection.window -= size
            connection.write(frame(_DATA, 0, self.number, data))
        else:
            self._unsent.append(memoryview(data))
            self.pump()

    def end(self, block: bytes) -> None:
        """End the answer with trailers, encoded, after all that was sent."""
        self._last = block
        self.pump()

    def reset(self, code: int) -> None:
        """Break the stream off."""
        self._connection.write(frame(_RESET, 0, self.number, _WORD.pack(code)))
        self._connection.close_stream(self)

    def pump(self) -> None:
        """Send what has waited for room, as far as there is some."""
        connection, unsent = self._connection, self._unsent
        while unsent:
            data = unsent[0]
            size = min(len(data), self.window, connection.window, connection.frame_bytes)
            if size <= 0 < len(data):
                connection.blocked.add(self)
                return
            self.window -= size
            connection.window -= size
            connection.write(frame(_DATA, 0, self.number, data[:size]))
            if size == len(data):
                unsent.popleft()
            else:
                unsent[0] = data[size:]
        connection.blocked.discard(self)
        if self._last is not None:
            connection.write(frame(_HEADERS, _END_HEADERS | _END_STREAM, self.number, self._last))
            connection.close_stream(self)


def frame(kind: int, flags: int, stream: int, payload: bytes | memoryview) -> bytes:
    """Return a frame."""
    size = len(payload)
    return _FRAME.pack(size >> 8, size & 0xFF, kind, flags, stream) + payload


class Connection(asyncio.Protocol):
    """One connection of a peer.

    Args:
        accept: called for each stream.
        lost: called once the connection is gone.
        soon: calls a function once all that has come is dealt with, so that its answers go out together: each write
            costs more than all that leads to it.
    """

    def __init__(
        self, accept: Accept, lost: "Callable[[Connection], None]", *, soon: Callable[[Callable[[], None]], object]
    ) -> None:
        self.window = _DEFAULT_WINDOW_BYTES
        """Bytes that the peer takes yet, over all streams."""
        self.frame_bytes = MOST_FRAME_BYTES
        """What the peer takes in one frame."""
        self.blocked: set[Stream] = set()
        self.streams: dict[int, Stream] = {}
        self._accept = accept
        self._lost = lost
        self._soon = soon
        self._unwritten: list[bytes] = []
        self._transport: asyncio.Transport | None = None
        self._rest = b""
        self._greeted = False
        self._stream_window = _DEFAULT_WINDOW_BYTES
        self._taken = 0
        self._last_number = 0
        self._closing = False
        self._blocks = HeaderBlocks()
        self._open: tuple[int, int, bytes] | None = None
        """Number, flags and beginning of a header block that goes on in further frames."""

    # The transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Tell the peer what it may send."""
        self._transport = cast(asyncio.Transport, transport)  # uvloop's own does not inherit from asyncio's
        settings = _SETTING.pack(_INITIAL_WINDOW, STREAM_WINDOW_BYTES)
        more = _WORD.pack(_CONNECTION_WINDOW_BYTES - _DEFAULT_WINDOW_BYTES)
        self.write(frame(_SETTINGS, 0, 0, settings) + frame(_WINDOW, 0, 0, more))

    def connection_lost(self, exc: Exception | None) -> None:
        """Tell all streams."""
        self._transport = None
        self._closing = True
        for stream in list(self.streams.values()):
            self._gone(stream)
        self._lost(self)

    def data_received(self, data: bytes) -> None:
        """Take in the frames that are whole."""
        if self._rest:
            data = self._rest + data
        try:
            self._rest = data[self._frames(data) :]
        except Http2Error as error:
            log.warning("a connection is closed: %s", error)
            self._fail(error.code)
        except Exception:
            log.exception("a connection is closed after a fault of the picker's")
            self._fail(INTERNAL_ERROR)

    def write(self, data: bytes) -> None:
        """Send bytes soon."""
        self._unwritten.append(data)
        if len(self._unwritten) == 1:
            self._soon(self.flush)

    def flush(self) -> None:
        """Send what has gathered, unless nobody is there any more."""
        data = b"".join(self._unwritten)
        self._unwritten.clear()
        if data and self._transport is not None and not self._transport.is_closing():
            self._transport.write(data)

    def close(self) -> None:
        """Take no further streams; the connection ends with those that it has."""
        if not self._closing:
            self._closing = True
            self.write(frame(_GOAWAY, 0, 0, _WORD.pack(self._last_number) + _WORD.pack(NO_ERROR)))
            self._end_if_idle()

    def abort(self) -> None:
        """End it now."""
        if self._transport is not None:
            self._transport.abort()

    def close_stream(self, stream: Stream) -> None:
        """Forget a stream that is over."""
        self.streams.pop(stream.number, None)
        self.blocked.discard(stream)
        stream.receiver = None
        self._end_if_idle()

    def _end_if_idle(self) -> None:
        if self._closing and not self.streams and self._transport is not None:
            self.flush()
            self._transport.close()

    def _fail(self, code: int) -> None:
        self._closing = True
        self._rest = b""
        self.write(frame(_GOAWAY, 0, 0, _WORD.pack(self._last_number) + _WORD.pack(code)))
        self.flush()
        if self._transport is not None:
            self._transport.close()

    def _gone(self, stream: Stream) -> None:
        receiver = stream.receiver
        self.close_stream(stream)
        if receiver is not None:
            receiver.gone()

    # Frames

    def _frames(self, data: bytes) -> int:
        """Handle all whole frames; return where the rest begins."""
        at, end = 0, len(data)
        if not self._greeted:
            if not PREFACE.startswith(data[: len(PREFACE)]):
                raise Http2Error(PROTOCOL_ERROR, "it does not begin as HTTP/2 does")
            if end < len(PREFACE):
                return 0
            self._greeted, at = True, len(PREFACE)
        while end - at >= _FRAME.size:
            high, low, kind, flags, number = _FRAME.unpack_from(data, at)
            size = high << 8 | low
            if size > MOST_FRAME_BYTES:
                raise Http2Error(FRAME_SIZE_ERROR, f"a frame of {size} bytes")
            last = at + _FRAME.size + size
            if last > end:
                break
            self._frame(kind, flags, number & 0x7FFFFFFF, data[at + _FRAME.size : last])
            at = last
        return at

    def _frame(self, kind: int, flags: int, number: int, payload: bytes) -> None:
        if self._open is not None and (kind != _CONTINUATION or number != self._open[0]):
            raise Http2Error(PROTOCOL_ERROR, "a header block is interrupted")
        if kind == _DATA:
            self._on_data(flags, number, payload)
        elif kind == _HEADERS:
            start = 5 if flags & _PRIORITY else 0
            self._header_block(flags, number, _unpadded(flags, payload)[start:])
        elif kind == _WINDOW:
            self._on_window(number, payload)
        elif kind == _RESET:
            stream = self.streams.get(number)
            if stream is not None:
                self._gone(stream)
        else:
            self._rare_frame(kind, flags, number, payload)

    def _rare_frame(self, kind: int, flags: int, number: int, payload: bytes) -> None:
        if kind == _CONTINUATION:
            if self._open is None:
                raise Http2Error(PROTOCOL_ERROR, "a header block goes on that never began")
            self._header_block(flags | (self._open[1] & _END_STREAM), number, self._open[2] + payload)
        elif kind == _SETTINGS:
            self._on_settings(flags, payload)
        elif kind == _PING and not flags & _ACK:
            self.write(frame(_PING, _ACK, 0, payload))
        elif kind == _PUSH:
            raise Http2Error(PROTOCOL_ERROR, "a client pushes")

    def _on_data(self, flags: int, number: int, payload: bytes) -> None:
        size = len(payload)
        self._taken += size
        if self._taken > _CONNECTION_WINDOW_BYTES // 2:
            self.write(frame(_WINDOW, 0, 0, _WORD.pack(self._taken)))
            self._taken = 0
        stream = self.streams.get(number)
        if stream is None or stream.receiver is None:
            if not 0 < number <= self._last_number:
                raise Http2Error(PROTOCOL_ERROR, f"data on stream {number}, which was never opened")
            return  # it is over here already
        stream.taken += size
        if stream.taken > STREAM_WINDOW_BYTES // 2:
            self.write(frame(_WINDOW, 0, number, _WORD.pack(stream.taken)))
            stream.taken = 0
        stream.receiver.data(_unpadded(flags, payload))
        if flags & _END_STREAM and stream.receiver is not None:
            stream.receiver.ended()

    def _header_block(self, flags: int, number: int, block: bytes) -> None:
        if len(block) > MOST_HEADER_BYTES:
            raise Http2Error(ENHANCE_YOUR_CALM, "a header block without an end")
        if not flags & _END_HEADERS:
            self._open = number, flags, block
            return
        self._open = None
        try:
            headers = self._blocks.read(block)
        except UnreadableBlockError as error:
            raise Http2Error(COMPRESSION_ERROR, f"a header block cannot be read: {error}") from error
        stream = self.streams.get(number)
        if stream is None:
            self._open_stream(flags, number, headers)
        elif stream.receiver is not None and flags & _END_STREAM:  # trailers
            stream.receiver.ended()

    def _open_stream(self, flags: int, number: int, headers: Headers) -> None:
        if number % 2 == 0:
            raise Http2Error(PROTOCOL_ERROR, f"a client opens stream {number}")
        if number <= self._last_number or self._closing:
            return  # trailers of one that is over here; or it was told, and will try elsewhere
        self._last_number = number
        stream = self.streams[number] = Stream(self, number, self._stream_window)
        stream.receiver = receiver = self._accept(stream, headers)
        if number not in self.streams:
            stream.receiver = None  # it was answered already
        elif flags & _END_STREAM:
            receiver.ended()

    def _on_window(self, number: int, payload: bytes) -> None:
        if len(payload) != 4:
            raise Http2Error(FRAME_SIZE_ERROR, "a window update of another size")
        more = int(_WORD.unpack(payload)[0]) & 0x7FFFFFFF
        if number == 0:
            self.window += more
            if self.window > _CONNECTION_WINDOW_BYTES:
                raise Http2Error(FLOW_CONTROL_ERROR, "a window without bounds")
            for blocked in list(self.blocked):
                blocked.pump()
            return
        stream = self.streams.get(number)
        if stream is not None:
            stream.window += more
            stream.pump()

    def _on_settings(self, flags: int, payload: bytes) -> None:
        if flags & _ACK:
            return
        if len(payload) % _SETTING.size:
            raise Http2Error(FRAME_SIZE_ERROR, "settings of another size")
        for name, value in _SETTING.iter_unpack(payload):
            if name == _INITIAL_WINDOW:
                grown, self._stream_window = value - self._stream_window, value
                for stream in list(self.streams.values()):
                    stream.window += grown
                    stream.pump()
            elif name == _MAX_FRAME:
                self.frame_bytes = value
        self.write(frame(_SETTINGS, _ACK, 0, b""))


def _unpadded(flags: int, payload: bytes) -> bytes:
    if not flags & _PADDED:
        return payload
    if not payload or payload[0] >= len(payload):
        raise Http2Error(PROTOCOL_ERROR, "padding longer than its frame")
    return payload[1 : len(payload) - payload[0]]
