"""The manager's work queue: level-triggered, one round at a time for each key, coalescing, and never a storm.

Keys are told to be looked at, never what happened to them. A key that is added while its round runs is looked at again
afterwards; added ten times while it waits it is looked at once. Time comes from the event loop's clock.
"""

import asyncio
import heapq
import itertools
from collections.abc import Awaitable, Callable, Hashable
from typing import Generic, TypeVar

from swingpool.kube.backoff import delay_s

K = TypeVar("K", bound=Hashable)

FIRST_BACKOFF_S = 0.5
LONGEST_BACKOFF_S = 30.0


def backoff_s(failures: int) -> float:
    """Return how long a round that failed so many times in a row waits for its next try."""
    return delay_s(failures, first_s=FIRST_BACKOFF_S, longest_s=LONGEST_BACKOFF_S)


class WorkQueue(Generic[K]):
    """Keys that wait for a time to come, and workers that take them.

    Args:
        process: does one round for a key and returns the seconds until its next one; None if the key is gone.
        workers: how many keys may be in a round at once.
        min_interval_s: shortest time between the starts of two rounds of one key.
    """

    def __init__(
        self, process: Callable[[K], Awaitable[float | None]], *, workers: int = 4, min_interval_s: float = 0.1
    ) -> None:
        self._process = process
        self._workers = workers
        self._min_interval_s = min_interval_s
        self._due: dict[K, float] = {}
        self._running: set[K] = set()
        self._again: dict[K, float] = {}
        self._failures: dict[K, int] = {}
        self._started: dict[K, float] = {}
        self._heap: list[tuple[float, int, K]] = []
        self._order = itertools.count()
        self._changed = asyncio.Event()

    def add(self, key: K, *, delay_s: float = 0.0) -> None:
        """Look at a key after `delay_s`, or earlier if it was to be looked at earlier."""
        now = asyncio.get_running_loop().time()
        due = max(now + delay_s, self._started.get(key, -1e9) + self._min_interval_s)
        if key in self._running:
            self._again[key] = min(due, self._again.get(key, due))
        elif due < self._due.get(key, float("inf")):
            self._schedule(key, due)

    @property
    def size(self) -> int:
        """Keys that wait or run."""
        return len(self._due) + len(self._running)

    @property
    def lateness_s(self) -> float:
        """How long the most delayed key has waited since its time, or has been in its round."""
        now = asyncio.get_running_loop().time()
        waiting = [now - due for due in self._due.values()]
        return max([0.0, *waiting, *(now - self._started[key] for key in self._running)])

    async def run(self) -> None:
        """Work until cancelled."""
        async with asyncio.TaskGroup() as group:
            for number in range(self._workers):
                group.create_task(self._work(), name=f"round-{number}")

    def _schedule(self, key: K, due: float) -> None:
        self._due[key] = due
        heapq.heappush(self._heap, (due, next(self._order), key))
        self._changed.set()

    async def _work(self) -> None:
        while True:
            key = await self._take()
            self._running.add(key)
            self._started[key] = asyncio.get_running_loop().time()
            try:
                next_s = await self._process(key)
                self._failures.pop(key, None)
            except Exception:
                self._failures[key] = self._failures.get(key, 0) + 1
                next_s = backoff_s(self._failures[key])
            finally:
                self._running.discard(key)
            self._finish(key, next_s)

    def _finish(self, key: K, next_s: float | None) -> None:
        """Schedule the next round: its own, or the one that was asked for meanwhile, whichever comes first."""
        earliest = self._started[key] + self._min_interval_s
        times = [self._again.pop(key)] if key in self._again else []
        if next_s is None:
            self._failures.pop(key, None)
            del self._started[key]
        else:
            times.append(asyncio.get_running_loop().time() + next_s)
        if times:
            self._schedule(key, max(min(times), earliest))

    async def _take(self) -> K:
        """Wait for the first key whose time has come."""
        loop = asyncio.get_running_loop()
        while True:
            while self._heap and self._due.get(self._heap[0][2]) != self._heap[0][0]:
                heapq.heappop(self._heap)
            timeout = None
            if self._heap:
                due, _, key = self._heap[0]
                if due <= loop.time():
                    heapq.heappop(self._heap)
                    del self._due[key]
                    return key
                timeout = due - loop.time()
            self._changed.clear()
            try:
                await asyncio.wait_for(self._changed.wait(), timeout)
            except TimeoutError:
                continue
