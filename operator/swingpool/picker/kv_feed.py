"""What one worker tells of its KV cache: every message in its order, or the knowledge that some are missing.

A connection is followed from the worker's first message, or the oldest that it still tells again, to the newest. When
it breaks, the worker may have restarted, or not: it is asked for the last message that was taken in, and only if that
is the same does what is known hold, and what follows it fill the gap.
"""

import asyncio
import contextlib
import logging
import time
from collections.abc import AsyncGenerator, Iterator

import msgspec
import zmq
from zmq.utils.monitor import parse_monitor_message

from swingpool_control.placement.cache_events import Unfollowed
from swingpool_control.placement.present import Present
from swingpool_control.vllm import kv_events

CONNECT_S = 5.0
ANSWER_S = 10.0
"""For the first message of those that are told again."""
PAUSE_S = 2.0
"""For each of the others, which come in one go: without it the last ones were dropped."""
RETRY_S = 1.0
MOST_MESSAGES = 20_000
"""Held unread, of those that come as things happen: some minutes' worth."""
MOST_TOLD_AGAIN = 1_000
"""And of those that are told again."""
MOST_BYTES = 64 * 1024 * 1024
"""Of one message."""
MOST_ROUNDS = 50
"""In which a worker is asked to tell again: it drops what it cannot send at once."""
_BLOCKS_AT_ONCE = 64
"""Taken in before others get their turn."""
CATCHING_UP = 4
"""Workers whose past is taken in at a time."""
SHARE = 0.2
"""Of the processor, that this may take."""
_LEAST_REST_S = 0.005
_HEARTBEAT_MS, _SILENCE_MS = 2_000, 6_000
_ENDED = zmq.EVENT_DISCONNECTED | zmq.EVENT_CLOSED | zmq.EVENT_HANDSHAKE_FAILED_NO_DETAIL
_WATCHED = _ENDED | zmq.EVENT_HANDSHAKE_SUCCEEDED

TRUNCATED = "it has told more than it tells again, so it may have blocks from before"

log = logging.getLogger(__name__)


class LostError(Exception):
    """The connection is of no use any more; says why."""


class CatchingUp:
    """Takes in what was told before without keeping requests waiting: few workers at a time, and slowly."""

    def __init__(self) -> None:
        self.turn = asyncio.Semaphore(CATCHING_UP)
        self._free_s = 0.0

    async def rest(self, began_s: float) -> None:
        """Wait after some work as long as it takes for that to have been no more than its share."""
        now_s = time.monotonic()
        self._free_s = max(self._free_s, began_s) + (now_s - began_s) / SHARE
        if self._free_s - now_s > _LEAST_REST_S:
            await asyncio.sleep(self._free_s - now_s)


class _Sockets:
    """Sockets of ZeroMQ on the event loop: `changed` is set whenever one of them may have something to say."""

    def __init__(self, context: "zmq.Context[zmq.Socket[bytes]]") -> None:
        self._context = context
        self._loop = asyncio.get_running_loop()
        self._opened: dict[zmq.Socket[bytes], zmq.Socket[bytes] | None] = {}
        """Sockets, and those that tell of their connections."""
        self.changed = asyncio.Event()

    def connect(self, kind: int, address: str, *, monitored: bool = False) -> "zmq.Socket[bytes]":
        """Return a socket that connects, once."""
        socket = self._context.socket(kind)
        socket.setsockopt(zmq.RCVHWM, MOST_MESSAGES if kind == zmq.SUB else MOST_TOLD_AGAIN)
        socket.setsockopt(zmq.MAXMSGSIZE, MOST_BYTES)
        socket.setsockopt(zmq.RECONNECT_IVL, -1)
        socket.setsockopt(zmq.HEARTBEAT_IVL, _HEARTBEAT_MS)
        socket.setsockopt(zmq.HEARTBEAT_TIMEOUT, _SILENCE_MS)
        socket.setsockopt(zmq.IPV6, 1)
        if kind == zmq.SUB:
            socket.setsockopt(zmq.SUBSCRIBE, b"")
        monitor = socket.get_monitor_socket(_WATCHED) if monitored else None
        self._opened[socket] = monitor
        for each in (socket, monitor):
            if each is not None:
                self._loop.add_reader(_descriptor(each), self.changed.set)
        socket.connect(f"tcp://{address}")
        return socket

    def close(self, *chosen: "zmq.Socket[bytes]") -> None:
        """Close some sockets, or all."""
        for socket in [one for one in chosen or tuple(self._opened) if one in self._opened]:
            monitor = self._opened.pop(socket)
            self._loop.remove_reader(_descriptor(socket))
            if monitor is not None:
                self._loop.remove_reader(_descriptor(monitor))
                socket.disable_monitor()
                monitor.close(linger=0)
            socket.close(linger=0)


def _descriptor(socket: "zmq.Socket[bytes]") -> int:
    return int(socket.getsockopt(zmq.FD))


def _take(socket: "zmq.Socket[bytes]") -> list[bytes] | None:
    """Return the next message, None if there is none."""
    try:
        return socket.recv_multipart(zmq.NOBLOCK)
    except zmq.Again:
        return None


class Feed:
    """One worker's messages.

    Args:
        context: ZeroMQ's.
        worker: what placement calls it.
        events: `host:port` where it publishes.
        replay: `host:port` where it tells again.
        present: takes in what it tells.
        catching_up: shared by all feeds.
    """

    def __init__(
        self,
        context: "zmq.Context[zmq.Socket[bytes]]",
        *,
        worker: str,
        events: str,
        replay: str,
        present: Present,
        catching_up: CatchingUp,
    ) -> None:
        self._context = context
        self._catching_up = catching_up
        self._worker = worker
        self._events, self._replay = events, replay
        self._present = present
        self._told = present.follow()
        self._next = 0
        """Number of the message that comes next; 0 if nothing is known."""
        self._last = b""
        """The one before it."""
        self._settled = False
        """Whether a message has come since it told again: there are no more from before that."""
        self.connected = False
        self.messages, self.gaps = 0, 0

    async def follow(self) -> None:
        """Follow the worker; never returns by itself."""
        said = ""
        while True:
            sockets = _Sockets(self._context)
            try:
                await self._session(sockets)
            except (LostError, zmq.ZMQError, kv_events.EventError) as error:
                why = str(error)
            except Exception:  # whatever a worker may send, it shall be followed again
                log.exception("a fault while %s was followed", self._worker)
                why = "following it met a fault"
            finally:
                sockets.close()
                self.connected = False
            self._told.quiet(self._worker, why)
            if why != said:
                log.warning("what lies in the KV cache of %s is estimated: %s", self._worker, why)
                said = why
            await asyncio.sleep(RETRY_S)

    async def _session(self, sockets: _Sockets) -> None:
        live = sockets.connect(zmq.SUB, self._events, monitored=True)
        try:
            async with asyncio.timeout(CONNECT_S):
                await self._connect(sockets, live)
        except TimeoutError:
            raise LostError(f"{self._events} does not answer within {CONNECT_S:g} s") from None
        self.connected = True
        async with self._catching_up.turn:
            if not self._next or not await self._resumed(sockets):
                await self._anew(sockets)
        self._told.quiet(self._worker, "")
        self._settled = False
        while True:
            sockets.changed.clear()
            self._look(live)
            frames = _take(live)
            if frames is None:
                await sockets.changed.wait()
            elif len(frames) == 3:
                await self._heard(sockets, kv_events.number(frames[1]), frames[2])

    async def _connect(self, sockets: _Sockets, live: "zmq.Socket[bytes]") -> None:
        sockets.changed.clear()
        while not self._look(live):
            await sockets.changed.wait()
            sockets.changed.clear()

    def _look(self, live: "zmq.Socket[bytes]") -> bool:
        """Tell whether a connection has come about since the last look.

        Raises:
            LostError: it broke.
        """
        monitor, came = live.get_monitor_socket(_WATCHED), False
        while (frames := _take(monitor)) is not None:
            event = parse_monitor_message(frames)["event"]
            if event & _ENDED:
                raise LostError(f"the connection to {self._events} broke, or was refused")
            came = True
        return came

    async def _heard(self, sockets: _Sockets, number: int, payload: bytes) -> None:
        if number < self._next:
            if self._settled:
                raise LostError("it counts its messages anew")
            return
        missed = number > self._next
        if missed:
            self.gaps += 1
            self._told.quiet(self._worker, "messages of it were lost")
            await self._again(sockets, self._next)
        if number > self._next:
            self._begin(number, missing=TRUNCATED)
        if number == self._next:
            await self._take_in(number, payload)
            self._settled = True
        if missed:
            self._told.quiet(self._worker, "")

    async def _anew(self, sockets: _Sockets) -> None:
        """Forget what is known, and take in all that the worker tells again."""
        self._begin(0, missing="")
        await self._again(sockets, 0)

    async def _resumed(self, sockets: _Sockets) -> bool:
        """Go on after the last message, if the worker still knows it as it was."""
        first = True
        async with contextlib.aclosing(self._told_again(sockets, self._next - 1)) as messages:
            async for number, payload in messages:
                if not first and number == self._next:
                    await self._take_in(number, payload)
                elif first and (number != self._next - 1 or payload != self._last):
                    return False
                first = False
        if not first:
            await self._again(sockets, -1)
        return not first

    async def _again(self, sockets: _Sockets, start: int) -> None:
        """Take in what the worker tells again from a number on; if that is gone, from the oldest that is left.

        It sends more than the connection takes, and what is dropped may be the end, after which it says that it has
        told all: that is so when it has nothing new to tell. A negative number is never gone.
        """
        for _ in range(MOST_ROUNDS):
            before = self._next
            first = True
            async for number, payload in self._told_again(sockets, before):
                if first and number > before == start:
                    self._begin(number, missing=TRUNCATED)
                if number == self._next:
                    await self._take_in(number, payload)
                first = False
            if self._next == before:
                return
            start = -1
        raise LostError(f"{self._replay} was asked {MOST_ROUNDS} times to tell again, and is not done")

    async def _told_again(self, sockets: _Sockets, start: int) -> AsyncGenerator[tuple[int, bytes], None]:
        socket = sockets.connect(zmq.DEALER, self._replay)
        try:
            with _refused(self._replay):
                socket.send_multipart([b"", start.to_bytes(8, "big")], zmq.NOBLOCK)
            answer = await self._answer(sockets, socket, ANSWER_S)
            if answer is None:
                raise LostError(f"{self._replay} does not tell again within {ANSWER_S:g} s")
            while answer is not None and answer[0] != kv_events.END:
                began_s = time.monotonic()
                yield kv_events.number(answer[0]), answer[1]
                await self._catching_up.rest(began_s)
                answer = await self._answer(sockets, socket, PAUSE_S)
        finally:
            sockets.close(socket)

    async def _answer(
        self, sockets: _Sockets, socket: "zmq.Socket[bytes]", limit_s: float
    ) -> tuple[bytes, bytes] | None:
        """Return the next message that is told again, None if none comes within a time."""
        try:
            async with asyncio.timeout(limit_s):
                while True:
                    sockets.changed.clear()
                    frames = _take(socket)
                    if frames is not None:
                        return kv_events.replayed(frames)
                    await sockets.changed.wait()
        except TimeoutError:
            return None

    # What it tells

    def _begin(self, number: int, *, missing: str) -> None:
        self._present.begin(self._worker, missing=missing)
        self._told.quiet(self._worker, "what it told is taken in still")
        self._next, self._last = number, b""

    async def _take_in(self, number: int, payload: bytes) -> None:
        """Take in a message, and let others have their turn meanwhile."""
        self._next, self._last = number + 1, payload
        self.messages += 1
        taken = 0
        try:
            for event in kv_events.events(msgspec.msgpack.decode(payload)):
                self._present.take(self._worker, event)
                taken += len(getattr(event, "keys", ()))
                if taken >= _BLOCKS_AT_ONCE:
                    taken = 0
                    await asyncio.sleep(0)
        except (msgspec.DecodeError, kv_events.EventError) as error:
            log.warning("a message of %s cannot be read: %s", self._worker, error)
            self._present.take(self._worker, Unfollowed(why=f"a message of it could not be read: {error}"))
        await asyncio.sleep(0)


@contextlib.contextmanager
def _refused(address: str) -> Iterator[None]:
    try:
        yield
    except zmq.Again:
        raise LostError(f"{address} cannot be connected to") from None
