"""Which worker probably has which prompt's beginning in its KV cache.

A prompt is a chain of block hashes, so whoever has a block has all before it. What a worker was sent it keeps until its
cache is full, then what was used longest ago goes first: the same is done here, by the size of its cache.
"""

from collections import OrderedDict
from typing import Final

MOST_HOLDERS: Final = 4
"""Workers that are looked at for one prompt, those with most of it first."""


class Prefixes:
    """What every worker has.

    Args:
        ttl_s: how long a block is believed to be there that nobody has used again.
    """

    def __init__(self, *, ttl_s: float) -> None:
        self._ttl_s = ttl_s
        self._holders: dict[int, dict[str, float]] = {}
        """Workers by block, and when each is believed to lose it."""
        self._blocks: dict[str, OrderedDict[int, None]] = {}
        """Blocks by worker, those used longest ago first."""

    def used(self, worker: str, hashes: tuple[int, ...], *, most_blocks: int, now_s: float) -> None:
        """Note that a worker computes, or is sent, a prompt.

        Args:
            worker: the worker.
            hashes: the prompt's chain.
            most_blocks: blocks that its cache holds.
            now_s: the time.
        """
        if not hashes:
            return
        mine = self._blocks.get(worker)
        if mine is None:
            mine = self._blocks[worker] = OrderedDict()
        until_s = now_s + self._ttl_s
        known = self._holders
        for block in reversed(hashes):  # the tail is lost before the head
            holders = known.get(block)
            if holders is None:
                known[block] = {worker: until_s}
                mine[block] = None
                continue
            if worker in holders:
                mine.move_to_end(block)
            else:
                mine[block] = None
            holders[worker] = until_s
        while len(mine) > most_blocks:
            self._drop(worker, mine.popitem(last=False)[0])

    def depth(self, worker: str, hashes: tuple[int, ...], *, now_s: float) -> int:
        """Return how many leading blocks of a prompt a worker has."""
        for index in range(len(hashes) - 1, -1, -1):
            holders = self._holders.get(hashes[index])
            if holders is not None and holders.get(worker, -1.0) > now_s:
                return index + 1
        return 0

    def holders(self, hashes: tuple[int, ...], *, now_s: float) -> dict[str, int]:
        """Return the workers that have most of a prompt, and how many leading blocks of it each has."""
        found: dict[str, int] = {}
        for index in range(len(hashes) - 1, -1, -1):
            for worker, until_s in self._holders.get(hashes[index], _NOBODY).items():
                if until_s > now_s and worker not in found:
                    found[worker] = index + 1
                    if len(found) >= MOST_HOLDERS:
                        return found
        return found

    def forget(self, worker: str) -> None:
        """Forget a worker that is gone, or has lost its cache."""
        for block in self._blocks.pop(worker, {}):
            self._drop(worker, block)

    def _drop(self, worker: str, block: int) -> None:
        holders = self._holders.get(block)
        if holders is not None:
            holders.pop(worker, None)
            if not holders:
                del self._holders[block]


_NOBODY: dict[str, float] = {}
