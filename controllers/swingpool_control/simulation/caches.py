"""What lies in the workers' caches, as they are: for a placement that shall not have to guess, to judge others by."""

from collections.abc import Callable, Mapping

from swingpool_control.engine.batching import BatchingEngine
from swingpool_control.placement.prefixes import Prefixes
from swingpool_control.placement.promised import Promised
from swingpool_control.simulation.traffic import finer


class Caches(Prefixes):
    """Knows every worker's cache, where a placement otherwise remembers what it sent.

    Args:
        engines: returns all workers' engines by name; their blocks are as large as those that requests are hashed by.
    """

    def __init__(self, engines: Callable[[], Mapping[str, BatchingEngine]]) -> None:
        super().__init__(ttl_s=0.0)
        self._engines = engines

    def used(self, worker: str, hashes: tuple[int, ...], *, most_blocks: int, now_s: float) -> None:
        """Note nothing: the caches themselves are looked at."""

    def depth(self, worker: str, hashes: tuple[int, ...], *, now_s: float) -> int:
        """Return how many leading blocks of a prompt a worker has."""
        return len(self._engines()[worker].pool.find_prefix(finer(hashes, 1)))

    def holders(self, hashes: tuple[int, ...], *, now_s: float) -> dict[str, int]:
        """Return all workers that have any of a prompt, and how many leading blocks of it each has."""
        depths = {worker: self.depth(worker, hashes, now_s=now_s) for worker in self._engines()}
        return {worker: depth for worker, depth in depths.items() if depth}


class ToldCaches(Caches):
    """Knows every worker's cache as workers tell it, and what one has sent there that they have not told of yet.

    Args:
        engines: as above.
    """

    def __init__(self, engines: Callable[[], Mapping[str, BatchingEngine]]) -> None:
        super().__init__(engines)
        self._promised = Promised()

    def used(self, worker: str, hashes: tuple[int, ...], *, most_blocks: int, now_s: float) -> None:
        """Note that a worker computes, or is sent, a prompt."""
        if hashes and super().depth(worker, hashes, now_s=now_s) < len(hashes):
            self._promised.add(worker, hashes, now_s=now_s)

    def depth(self, worker: str, hashes: tuple[int, ...], *, now_s: float) -> int:
        """Return how many leading blocks of a prompt a worker has, or will have."""
        there = super().depth(worker, hashes, now_s=now_s)
        if there:
            self._promised.kept(worker, hashes[there - 1])
        return max(there, self._promised.depth(worker, hashes, now_s=now_s)) if hashes else 0

    def forget(self, worker: str) -> None:
        """Forget what was sent to a worker that is gone."""
        self._promised.forget(worker)
