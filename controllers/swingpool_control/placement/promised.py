"""Prompts that were sent to workers which have not told of them yet: prompts that come meanwhile shall go there too."""

from typing import Final

from swingpool_control.placement.chains import after, common

KEPT_S: Final = 20.0
"""For so long a worker is waited for to tell of a prompt; by then it has failed, or removed it."""
MOST_EACH: Final = 64
"""Prompts of one worker that are remembered, the newest."""
_LOOK_AT: Final = 16
"""Prompts that begin alike and are compared, the newest."""


class Promise:
    """One prompt."""

    __slots__ = ("chain", "until_s", "worker")

    def __init__(self, worker: str, chain: tuple[int, ...], until_s: float) -> None:
        self.worker = worker
        self.chain = chain
        self.until_s = until_s


class Promised:
    """All such prompts."""

    def __init__(self) -> None:
        self._by_worker: dict[str, list[Promise]] = {}
        self._by_first: dict[int, list[Promise]] = {}

    def __len__(self) -> int:
        return sum(len(alike) for alike in self._by_worker.values())

    def add(self, worker: str, chain: tuple[int, ...], *, now_s: float) -> None:
        """Note that a worker will have a prompt, of one block or more."""
        mine = self._by_worker.setdefault(worker, [])
        while mine and (mine[0].until_s <= now_s or len(mine) >= MOST_EACH):
            self._drop(mine.pop(0))
        promise = Promise(worker, chain, now_s + KEPT_S)
        mine.append(promise)
        self._by_first.setdefault(chain[0], []).append(promise)

    def kept(self, worker: str, content: int) -> None:
        """Note that a worker has told of a block: of the prompts that end with it all is known."""
        mine = self._by_worker.get(worker)
        if not mine:
            return
        for promise in [one for one in mine if one.chain[-1] == content]:
            mine.remove(promise)
            self._drop(promise)

    def forget(self, worker: str) -> None:
        """Forget all prompts of a worker."""
        for promise in self._by_worker.pop(worker, ()):
            self._drop(promise)

    def depths(self, chain: tuple[int, ...], *, now_s: float) -> dict[str, int]:
        """Return the workers that will have leading blocks of a prompt, and how many."""
        found: dict[str, int] = {}
        for promise in self._by_first.get(chain[0], _NONE)[-_LOOK_AT:]:
            if promise.until_s > now_s:
                depth = common(promise.chain, chain)
                if depth > found.get(promise.worker, 0):
                    found[promise.worker] = depth
        return found

    def depth(self, worker: str, chain: tuple[int, ...], *, now_s: float) -> int:
        """Return how many leading blocks of a prompt a worker will have."""
        most = 0
        for promise in self._by_worker.get(worker, _NONE):
            if promise.until_s > now_s and promise.chain[0] == chain[0]:
                most = max(most, common(promise.chain, chain))
        return most

    def before(self, worker: str, blocks: list[tuple[bytes, str]]) -> tuple[int, ...]:
        """Return what stands before some blocks in the prompts of a worker; nothing if they stand in none of them.

        Args:
            worker: the worker.
            blocks: one or more: tokens, packed, and what separates each from others of the same tokens.
        """
        for promise in reversed(self._by_worker.get(worker, _NONE)):
            chain = promise.chain
            for index in range(1, len(chain)):
                if all(
                    after(chain[place - 1], *block) == chain[place]
                    for place, block in zip(range(index, len(chain)), blocks, strict=False)
                ):
                    return chain[:index]
        return ()

    def _drop(self, promise: Promise) -> None:
        alike = self._by_first.get(promise.chain[0])
        if alike is not None and promise in alike:
            alike.remove(promise)
            if not alike:
                del self._by_first[promise.chain[0]]


_NONE: list[Promise] = []
