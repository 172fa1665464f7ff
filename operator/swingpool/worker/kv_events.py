"""Tells what the KV cache holds, as vLLM does: over ZeroMQ a message for each step that changed it; again if asked."""

import asyncio
import time
from collections import deque
from collections.abc import Hashable, Iterator, Sequence
from typing import Any

import msgspec
import zmq

from swingpool.worker.options import KVEvents
from swingpool.worker.text import ToldBlock
from swingpool_control.engine.blocks import ToldPool
from swingpool_control.vllm.kv_events import END

_Change = tuple[Hashable | None, bool]


class Publisher:
    """Publishes a pool's changes. Made within a running loop.

    Args:
        options: where.
        pool: whose.

    Raises:
        zmq.ZMQError: an address cannot be had.
    """

    def __init__(self, options: KVEvents, pool: ToldPool) -> None:
        self._pool = pool
        self._topic = options.topic.encode()
        self._encode = msgspec.msgpack.Encoder().encode
        self._number = 0
        self._kept: deque[tuple[int, bytes]] = deque(maxlen=options.buffer_steps)
        self._context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
        self._live = self._context.socket(zmq.PUB)
        self._live.bind(options.endpoint)
        self._replay: zmq.Socket[bytes] | None = None
        if options.replay_endpoint is not None:
            self._replay = self._context.socket(zmq.ROUTER)
            self._replay.bind(options.replay_endpoint)
            asyncio.get_running_loop().add_reader(int(self._replay.getsockopt(zmq.FD)), self._asked)

    def tell(self) -> None:
        """Publish what changed since the last call, if anything did."""
        changes = self._pool.take_changes()
        if not changes:
            return
        payload = self._encode([time.time(), list(_events(changes)), 0])
        number, self._number = self._number, self._number + 1
        self._live.send_multipart([self._topic, number.to_bytes(8, "big"), payload], zmq.NOBLOCK)
        self._kept.append((number, payload))
        if self._replay is not None:
            self._asked()

    def close(self) -> None:
        """Let go of the addresses."""
        if self._replay is not None:
            asyncio.get_running_loop().remove_reader(int(self._replay.getsockopt(zmq.FD)))
        self._context.destroy(linger=0)

    def _asked(self) -> None:
        """Tell again what is asked for."""
        assert self._replay is not None  # noqa: S101 - it is what asks
        while True:
            try:
                frames = self._replay.recv_multipart(zmq.NOBLOCK)
            except zmq.Again:
                return
            if len(frames) != 3:
                continue
            start = int.from_bytes(frames[2], "big")
            for number, payload in self._kept:
                if number >= start:
                    self._replay.send_multipart([frames[0], b"", self._topic, number.to_bytes(8, "big"), payload])
            self._replay.send_multipart([frames[0], b"", b"", END, b""])


def _events(changes: Sequence[_Change]) -> Iterator[dict[str, Any]]:
    """Yield the events in changes: blocks that follow one another are told of together."""
    run: list[ToldBlock] = []
    for block, stored in changes:
        if isinstance(block, ToldBlock) and stored and (not run or block.parent == run[-1].number):
            run.append(block)
            continue
        if run:
            yield _stored(run)
            run = []
        if not isinstance(block, ToldBlock):
            yield {"type": "AllBlocksCleared"}
        elif stored:
            run = [block]
        else:
            yield {"type": "BlockRemoved", "block_hashes": [block.number], "medium": "GPU", "group_idx": 0}
    if run:
        yield _stored(run)


def _stored(run: Sequence[ToldBlock]) -> dict[str, Any]:
    return {
        "type": "BlockStored",
        "block_hashes": [block.number for block in run],
        "parent_block_hash": run[0].parent,
        "token_ids": [token for block in run for token in block.tokens],
        "block_size": len(run[0].tokens),
        "lora_id": None,
        "medium": "GPU",
        "lora_name": None,
        "extra_keys": [None] * len(run),
        "group_idx": 0,
        "kv_cache_spec_kind": "full_attention",
    }
