"""One worker's feed before a publisher that loses messages, forgets old ones, restarts and breaks off."""

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Callable
from functools import partial

import msgspec
import pytest
import zmq

from e2e.ports import free_port
from swingpool.picker import kv_feed
from swingpool.picker.kv_feed import CatchingUp, Feed
from swingpool_control.placement.chains import chain_of
from swingpool_control.placement.present import Present
from swingpool_control.placement.told import Told
from swingpool_control.vllm.kv_events import END
from tests.support.waiting import until_async

SIZE = 2
WORKER = "w"


class Engine:
    """Publishes as vLLM does, and errs on demand."""

    def __init__(self, port: int, replay_port: int, *, keeps: int = 1000, sends: int = 1000) -> None:
        self.context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
        self.live = self.context.socket(zmq.PUB)
        self.live.bind(f"tcp://127.0.0.1:{port}")
        self.replay = self.context.socket(zmq.ROUTER)
        self.replay.setsockopt(zmq.SNDHWM, sends)
        self.replay.bind(f"tcp://127.0.0.1:{replay_port}")
        self.kept: deque[tuple[int, bytes]] = deque(maxlen=keeps)
        self.number = 0
        self.asked: list[int] = []
        self.skips: set[int] = set()
        """Numbers that it does not tell again the first time that it is asked, as if they were dropped."""

    def tell(self, first: int, *, published: bool = True, raw: bytes | None = None) -> None:
        """Publish that a block of a prompt of its own was stored; unpublished, it is lost on the way."""
        event = {"type": "BlockStored", "block_hashes": [first], "parent_block_hash": None, "block_size": SIZE}
        payload = msgspec.msgpack.encode([float(self.number), [event | {"token_ids": [first] * SIZE}], 0])
        payload = payload if raw is None else raw
        if published:
            self.live.send_multipart([b"", self.number.to_bytes(8, "big"), payload])
        self.kept.append((self.number, payload))
        self.number += 1

    async def answer(self) -> None:
        """Tell again whatever is asked for."""
        while True:
            while self.replay.poll(0):
                client, _, start = self.replay.recv_multipart()
                self.asked.append(int.from_bytes(start, "big"))
                for number, payload in self.kept:
                    if number >= self.asked[-1] and number not in self.skips:
                        self.replay.send_multipart([client, b"", b"", number.to_bytes(8, "big"), payload])
                self.skips.clear()
                self.replay.send_multipart([client, b"", b"", END, b""])
            await asyncio.sleep(0.01)

    def close(self) -> None:
        """End, as a process does."""
        self.context.destroy(linger=0)


class Stand:
    """A feed, and the engine that it follows."""

    def __init__(self) -> None:
        self.ports = free_port(), free_port()
        self.present = Present(ttl_s=1.0)
        self.context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
        self.feed = Feed(
            self.context,
            worker=WORKER,
            events=f"127.0.0.1:{self.ports[0]}",
            replay=f"127.0.0.1:{self.ports[1]}",
            present=self.present,
            catching_up=CatchingUp(),
        )
        self.tasks: list[asyncio.Task[None]] = []
        self.engine: Engine | None = None

    @property
    def told(self) -> Told:
        """What is known."""
        assert self.present.told is not None
        return self.present.told

    def start(self, *, keeps: int = 1000, sends: int = 1000) -> Engine:
        """Start an engine."""
        self.engine = Engine(*self.ports, keeps=keeps, sends=sends)
        self.tasks.append(asyncio.create_task(self.engine.answer()))
        return self.engine

    async def stop(self) -> None:
        """End the engine."""
        assert self.engine is not None
        task = self.tasks.pop()
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        self.engine.close()

    def has(self, *blocks: int) -> bool:
        """Tell whether exactly those blocks are known."""
        each = [self.told.depth(WORKER, chain_of([block] * SIZE, block_tokens=SIZE)) for block in blocks]
        return all(each) and self.told.count(WORKER) == len(blocks)


@pytest.fixture
async def stand(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Stand]:
    """A feed that follows nobody yet."""
    monkeypatch.setattr(kv_feed, "RETRY_S", 0.05)
    found = Stand()
    feed = asyncio.create_task(found.feed.follow())
    yield found
    feed.cancel()
    await asyncio.gather(feed, return_exceptions=True)
    while found.tasks:
        await found.stop()
    found.context.destroy(linger=0)


async def _until(what: str, holds: Callable[[], bool]) -> None:
    async def look() -> bool:
        return holds()

    await until_async(what, look)


async def test_all_that_was_told_before_is_told_again(stand: Stand) -> None:
    engine = stand.start()
    for block in (1, 2, 3):
        engine.tell(block)
    await _until("all is known", lambda: stand.told.knows(WORKER) and stand.has(1, 2, 3))
    engine.tell(4)
    await _until("what comes after is, too", lambda: stand.has(1, 2, 3, 4))
    assert stand.feed.connected
    assert stand.feed.messages == 4


async def test_a_worker_that_has_told_nothing_has_nothing(stand: Stand) -> None:
    stand.start()
    await _until("that is known", lambda: stand.told.knows(WORKER))
    assert stand.has()


async def test_lost_messages_are_asked_for(stand: Stand) -> None:
    engine = stand.start()
    await _until("all is known", lambda: stand.told.knows(WORKER))
    engine.tell(1)
    await _until("the first is known", lambda: stand.has(1))
    engine.tell(2, published=False)
    engine.tell(3)
    await _until("all is known again", lambda: stand.has(1, 2, 3) and stand.told.knows(WORKER))
    assert stand.feed.gaps == 1
    assert 1 in engine.asked


async def test_what_is_lost_while_it_is_told_again_is_asked_for_once_more(stand: Stand) -> None:
    engine = stand.start()
    for block in range(10):
        engine.tell(block)
    engine.skips = {4, 5}
    await _until("all is known", lambda: stand.told.knows(WORKER) and stand.has(*range(10)))
    assert 4 in engine.asked


async def test_what_is_lost_at_the_end_of_what_is_told_again_is_asked_for(stand: Stand) -> None:
    """It says that it has told all, as it does after messages that were dropped."""
    engine = stand.start()
    for block in range(10):
        engine.tell(block)
    engine.skips = {7, 8, 9}
    await _until("all is known", lambda: stand.told.knows(WORKER))
    assert stand.has(*range(10))
    assert 7 in engine.asked


async def test_more_than_fits_into_a_connection_is_told_again_in_parts(
    stand: Stand, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A publisher drops what it cannot send at once, and with it may go the message that says it is all."""
    monkeypatch.setattr(kv_feed, "PAUSE_S", 0.1)
    monkeypatch.setattr(kv_feed, "MOST_TOLD_AGAIN", 10)
    monkeypatch.setattr(kv_feed, "SHARE", 1.0)
    engine = stand.start(sends=10)
    padding = "x" * 100_000
    for block in range(1, 250):
        event = {"type": "BlockStored", "block_hashes": [block], "parent_block_hash": None, "block_size": SIZE}
        event |= {"token_ids": [block] * SIZE, "padding": padding}
        engine.tell(block, raw=msgspec.msgpack.encode([1.0, [event]]))
    await _until("all seems to be known", lambda: stand.told.knows(WORKER))
    assert stand.told.count(WORKER) == 249
    assert len(engine.asked) > 1


async def test_what_is_not_told_any_more_is_missing(stand: Stand) -> None:
    engine = stand.start(keeps=3)
    for block in range(10):
        engine.tell(block)
    await _until("the rest is known", lambda: stand.has(7, 8, 9))
    assert stand.told.why_not(WORKER) == kv_feed.TRUNCATED
    engine.tell(10, raw=msgspec.msgpack.encode([1.0, [{"type": "AllBlocksCleared"}]]))
    await _until("nothing is there, so nothing is missing", lambda: stand.told.knows(WORKER) and stand.has())


async def test_a_gap_that_cannot_be_filled_leaves_only_what_came_after(stand: Stand) -> None:
    engine = stand.start(keeps=2)
    await _until("all is known", lambda: stand.told.knows(WORKER))
    engine.tell(1)
    await _until("the first is known", lambda: stand.has(1))
    for block in (2, 3, 4, 5):
        engine.tell(block, published=False)
    engine.tell(6)
    await _until("the last two are known", lambda: stand.has(5, 6))
    assert not stand.told.knows(WORKER)


async def test_a_worker_that_restarted_has_what_it_told_since(stand: Stand) -> None:
    engine = stand.start()
    for block in (1, 2, 3):
        engine.tell(block)
    await _until("all is known", lambda: stand.has(1, 2, 3))
    await stand.stop()
    await _until("it is quiet", lambda: not stand.told.knows(WORKER))
    engine = stand.start()
    for block in (4, 5, 6, 7):  # it has counted on beyond the last number that was heard
        engine.tell(block)
    await _until("only that is known", lambda: stand.has(4, 5, 6, 7) and stand.told.knows(WORKER))


@pytest.mark.parametrize("dropped", [set(), {5}])
async def test_after_a_broken_connection_the_rest_is_told_again(stand: Stand, dropped: set[int]) -> None:
    engine = stand.start(keeps=4)
    await _until("all is known", lambda: stand.told.knows(WORKER))
    for block in (1, 2, 3, 4):
        engine.tell(block)
        await _until("it is known", partial(stand.has, *range(1, block + 1)))
    engine.live.unbind(f"tcp://127.0.0.1:{stand.ports[0]}")
    engine.live.close(linger=0)
    await _until("it is quiet", lambda: not stand.told.knows(WORKER))
    engine.live = engine.context.socket(zmq.PUB)
    engine.tell(5, published=False)
    engine.tell(6, published=False)
    engine.skips = dropped
    engine.live.bind(f"tcp://127.0.0.1:{stand.ports[0]}")
    await _until("something is known", lambda: stand.told.knows(WORKER))
    assert stand.has(1, 2, 3, 4, 5, 6)
    assert 3 in engine.asked, "the last one that was heard: it is the same worker"


async def test_what_cannot_be_read_is_missing(stand: Stand) -> None:
    engine = stand.start()
    await _until("all is known", lambda: stand.told.knows(WORKER))
    engine.tell(1, raw=b"\xc1")
    engine.tell(2)
    await _until("the rest is known", lambda: stand.has(2))
    assert "could not be read" in stand.told.why_not(WORKER)
