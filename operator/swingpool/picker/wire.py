"""HTTP/1.1 for the prefill leg, and nothing more: one POST, one whole answer, kept connections.

The leg is on every request's way, and a general client costs more than all the rest of the picker's work for it.
"""

import asyncio
import os
import ssl
import time
from collections import deque
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Any, cast

KEEP_ALIVE_S = 4.0
"""Below the 5 s after which vLLM's server closes an idle connection."""

CONNECT_TIMEOUT_S = 1.0
PATIENCE_S = 10.0
"""How long a worker may go on with what is nearly done: only of what it tells can the blocks be freed."""

LINGER_S = 5.0
"""How long it is listened to after it was told to stop."""

MOST_HEAD_BYTES = 64 * 1024
MOST_BODY_BYTES = 64 * 1024 * 1024


class ConnectError(Exception):
    """No connection could be made: the worker has not seen the request."""


class BrokenError(Exception):
    """The connection broke, or what came over it was no HTTP; the worker may have seen the request."""


class CutError(BrokenError):
    """The exchange was cut short from here."""


class Response:
    """A whole answer."""

    __slots__ = ("body", "content_type", "status")

    def __init__(self, status: int, content_type: str, body: bytes) -> None:
        self.status = status
        self.content_type = content_type
        self.body = body


@dataclass(frozen=True, slots=True)
class Tls:
    """How a worker is spoken to over TLS."""

    context: ssl.SSLContext
    server_name: str
    """What its certificate must be for."""


class Errand:
    """One exchange as whoever asked for it holds it: it can be cut short, and be answered after they have left.

    Args:
        told: told the answer, if it comes after they have left.
        soon: whether it should come soon, so that its server is let finish.
    """

    __slots__ = ("_waiter", "_why", "began_s", "soon", "told")

    def __init__(self, told: Callable[[Response], None], soon: Callable[[], bool]) -> None:
        self.told = told
        self.soon = soon
        self.began_s = time.monotonic()
        self._why = ""
        self._waiter: asyncio.Future[Response] | None = None

    def begins(self, waiter: "asyncio.Future[Response]") -> None:
        """Take note of who waits for the answer.

        Raises:
            CutError: it was cut before it began.
        """
        if self._why:
            raise CutError(self._why)
        self._waiter = waiter

    def cut(self, why: str) -> None:
        """Cut it short: whoever waits for the answer gets a CutError."""
        self._why = why
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_exception(CutError(why))


class HttpPool:
    """Connections to workers by address."""

    def __init__(self) -> None:
        self._idle: dict[str, deque[_Connection]] = {}

    async def post(
        self,
        address: str,
        path: str,
        body: bytes,
        headers: Mapping[str, str],
        *,
        errand: Errand | None = None,
        tls: Tls | None = None,
    ) -> Response:
        """Send a body and return the answer; cancelling it closes the connection, and so does cutting it short.

        Args:
            address: `host:port`.
            path: path and query.
            body: what to send.
            headers: beside those that HTTP itself needs.
            errand: by which it is cut short, and told an answer that was already on its way then.
            tls: how the address is spoken to over TLS; None for plain text.

        Raises:
            ConnectError: nobody listens at the address, or it cannot be reached.
            BrokenError: the connection broke before the answer was whole, or the errand was cut short.
        """
        request = _request(address, path, body, headers)
        connection = self._kept(address)
        while True:
            kept = connection is not None
            if connection is None:
                connection = await _connect(address, tls)
            try:
                response = await connection.exchange(request, errand)
            except (asyncio.CancelledError, CutError):
                connection.leave(errand)
                raise
            except BrokenError:
                connection.close()
                if not kept or connection.heard:
                    raise
                connection = None  # closed by the worker while it was idle, most likely: a new one tells
                continue
            except BaseException:
                connection.close()
                raise
            if connection.reusable:
                self._keep(address, connection)
            else:
                connection.close()
            return response

    def _keep(self, address: str, connection: "_Connection") -> None:
        now_s = asyncio.get_running_loop().time()
        idle = self._idle.setdefault(address, deque())
        while idle and idle[0].idle_since_s <= now_s - KEEP_ALIVE_S:  # left over from busier times
            idle.popleft().close()
        connection.idle_since_s = now_s
        idle.append(connection)

    def _kept(self, address: str) -> "_Connection | None":
        idle = self._idle.get(address)
        youngest_s = asyncio.get_running_loop().time() - KEEP_ALIVE_S
        while idle:
            connection = idle.pop()
            if connection.reusable and connection.idle_since_s > youngest_s:
                return connection
            connection.close()
        self._idle.pop(address, None)
        return None

    def keep_only(self, addresses: Collection[str]) -> None:
        """Close the idle connections to all other addresses: their workers are gone."""
        for address in self._idle.keys() - set(addresses):
            for connection in self._idle.pop(address):
                connection.close()


class _Connection(asyncio.Protocol):
    """One connection, which carries one exchange at a time."""

    def __init__(self) -> None:
        self.reusable = True
        self.heard = False
        """Whether anything of the present answer has come."""
        self.idle_since_s = 0.0
        self._transport: asyncio.Transport | None = None
        self._waiter: asyncio.Future[Response] | None = None
        self._received = bytearray()
        self._head: _Head | None = None
        self._answer: Response | None = None
        self._late: Errand | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # uvloop's own does not inherit from asyncio's

    def data_received(self, data: bytes) -> None:
        self.heard = True
        self._received += data
        try:
            self._advance()
        except ValueError as error:
            self._fail(f"an answer that is no HTTP: {error}")

    def connection_lost(self, exc: Exception | None) -> None:
        self.reusable = False
        if self._head is not None and self._head.until_close and exc is None:
            self._finish(bytes(self._received))
        else:
            self._fail(f"the connection broke{f': {exc}' if exc else ''}")

    def close(self) -> None:
        self.reusable = False
        if self._transport is not None:
            self._transport.abort()

    def leave(self, late: Errand | None) -> None:
        """Stop waiting for the answer: the server is told that nothing more comes from here, on which it stops.

        Not at once if it is nearly done: what it has computed and not told would be kept for somebody who does not know
        of it.
        """
        if late is not None and self._answer is not None:
            self.close()
            late.told(self._answer)
        elif late is None or self._transport is None or self._transport.is_closing():
            self.close()
        else:
            self.reusable = False
            self._late = late
            asyncio.get_running_loop().call_later(PATIENCE_S if late.soon() else 0.0, self._say_goodbye)

    def _say_goodbye(self) -> None:
        if self._transport is not None and not self._transport.is_closing():
            if not self._transport.can_write_eof():  # over TLS one side cannot end alone
                self.close()
                return
            self._transport.write_eof()
            asyncio.get_running_loop().call_later(LINGER_S, self.close)

    def exchange(self, request: bytes, errand: Errand | None = None) -> "asyncio.Future[Response]":
        """Send a request; its answer is the future's, which is a coroutine less on every request's way."""
        if self._transport is None or self._transport.is_closing():
            raise BrokenError("the connection broke")
        self.heard = False
        self._head = None
        self._answer = None
        self._received.clear()
        self._waiter = asyncio.get_running_loop().create_future()
        if errand is not None:
            errand.begins(self._waiter)
        self._transport.write(request)
        return self._waiter

    def _advance(self) -> None:
        """Take in what has come; finish the exchange once the answer is whole."""
        if self._head is None:
            end = self._received.find(b"\r\n\r\n")
            if end < 0:
                if len(self._received) > MOST_HEAD_BYTES:
                    raise ValueError(f"its head is longer than {MOST_HEAD_BYTES} bytes")
                return
            self._head = _parse_head(bytes(self._received[:end]))
            del self._received[: end + 4]
            if self._head.status < 200:  # 100 Continue and the like: the answer is yet to come
                self._head = None
                self._advance()
                return
        if len(self._received) > MOST_BODY_BYTES:
            raise ValueError(f"its body is longer than {MOST_BODY_BYTES} bytes")
        body = _dechunked(self._received) if self._head.chunked else self._counted(self._head)
        if body is not None:
            self._finish(body)

    def _counted(self, head: "_Head") -> bytes | None:
        if head.until_close or len(self._received) < head.length:
            return None
        return bytes(self._received[: head.length])

    def _finish(self, body: bytes) -> None:
        head, waiter = self._head, self._waiter
        if head is None or waiter is None or self._answer is not None:  # nobody has asked
            self.close()
            return
        self._answer = Response(head.status, head.content_type, body)
        if not waiter.done():
            self.reusable = self.reusable and head.keep and not head.until_close
            waiter.set_result(self._answer)
        elif self._late is not None:
            self.close()
            self._late.told(self._answer)

    def _fail(self, why: str) -> None:
        self.close()
        waiter = self._waiter
        if waiter is not None and not waiter.done():
            waiter.set_exception(BrokenError(why))


class _Head:
    __slots__ = ("chunked", "content_type", "keep", "length", "status", "until_close")

    def __init__(self, status: int, content_type: str, *, length: int | None, chunked: bool, keep: bool) -> None:
        self.status = status
        self.content_type = content_type
        self.length = length or 0
        self.chunked = chunked
        self.keep = keep
        self.until_close = not chunked and length is None


def _request(address: str, path: str, body: bytes, headers: Mapping[str, str]) -> bytes:
    lines = [f"POST {path} HTTP/1.1", f"host: {address}", f"content-length: {len(body)}"]
    lines += [f"{name}: {value}" for name, value in headers.items()]
    if any("\r" in line or "\n" in line for line in lines):
        raise BrokenError("a header with a line break")
    return "\r\n".join(lines).encode("latin-1", "replace") + b"\r\n\r\n" + body


def _parse_head(head: bytes) -> _Head:
    first, *rest = head.split(b"\r\n")
    version, status, *_ = first.split(b" ", 2)
    if not version.startswith(b"HTTP/1."):
        raise ValueError(f"it begins with {first[:20]!r}")
    fields: dict[bytes, bytes] = {}
    for line in rest:
        name, _, value = line.partition(b":")
        fields[name.strip().lower()] = value.strip()
    chunked = fields.get(b"transfer-encoding", b"").lower() == b"chunked"
    code = int(status)
    length = fields.get(b"content-length", b"0" if code in (204, 304) else None)
    if length is not None and not (length.isdigit() and int(length) <= MOST_BODY_BYTES):
        raise ValueError(f"a length of {length[:30]!r}")
    keep = fields.get(b"connection", b"close" if version == b"HTTP/1.0" else b"keep-alive").lower() != b"close"
    content_type = fields.get(b"content-type", b"application/json").decode("latin-1")
    return _Head(code, content_type, length=None if length is None else int(length), chunked=chunked, keep=keep)


def _dechunked(received: bytearray) -> bytes | None:
    """Return the body if all of its chunks have come, else None."""
    parts: list[bytes] = []
    at = 0
    while True:
        end = received.find(b"\r\n", at)
        if end < 0:
            return None
        size = int(received[at:end].split(b";", 1)[0], 16)
        if size < 0:
            raise ValueError("a chunk of less than nothing")
        start = end + 2
        if len(received) < start + size + 2:
            return None
        if size == 0:
            return b"".join(parts)
        parts.append(bytes(received[start : start + size]))
        at = start + size + 2


async def _connect(address: str, tls: Tls | None = None) -> _Connection:
    host, _, port = address.rpartition(":")
    try:
        async with asyncio.timeout(CONNECT_TIMEOUT_S):
            _, connection = await asyncio.get_running_loop().create_connection(
                _Connection,
                host.strip("[]"),
                int(port),
                ssl=tls.context if tls else None,
                server_hostname=tls.server_name if tls else None,
            )
    except TimeoutError as late:
        raise ConnectError(f"no connection within {CONNECT_TIMEOUT_S:g} s") from late
    except ssl.SSLError as mistrust:
        why: Any = mistrust.args[1] if len(mistrust.args) > 1 else mistrust
        raise ConnectError(f"no TLS with it: {why}") from mistrust
    except OSError as error:
        raise ConnectError(os.strerror(error.errno) if error.errno else str(error)) from error
    return connection
