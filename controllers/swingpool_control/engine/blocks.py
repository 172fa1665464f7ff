"""KV cache blocks of one worker: allocation, sharing by prefix, eviction of what was used longest ago.

A block is free, or held by one or more sequences. A full block whose content is known by a hash stays findable after
its last holder has let go, until its space is needed.
"""

from collections import OrderedDict
from collections.abc import Hashable, Sequence


class BlockPool:
    """All blocks of one worker.

    Args:
        total: blocks that exist, 1 or more.

    Raises:
        ValueError: there are none.
    """

    def __init__(self, total: int) -> None:
        if total < 1:
            raise ValueError(f"a worker needs at least one KV block, not {total}")
        self.total = total
        self._free: OrderedDict[int, None] = OrderedDict((block, None) for block in range(total))
        self._holders = [0] * total
        self._hash_of: dict[int, Hashable] = {}
        self._block_of: dict[Hashable, int] = {}

    @property
    def free(self) -> int:
        """Blocks that nobody holds; they may still be findable by their hash."""
        return len(self._free)

    @property
    def used(self) -> int:
        """Blocks that somebody holds."""
        return self.total - len(self._free)

    def find_prefix(self, hashes: Sequence[Hashable]) -> list[int]:
        """Return the blocks of the longest prefix of `hashes` that is cached, without holding them."""
        found = []
        for block_hash in hashes:
            block = self._block_of.get(block_hash)
            if block is None:
                break
            found.append(block)
        return found

    def free_after_sharing(self, blocks: Sequence[int]) -> int:
        """Return how many blocks would be free after `share(blocks)`."""
        return self.free - sum(1 for block in blocks if not self._holders[block])

    def share(self, blocks: Sequence[int]) -> None:
        """Hold blocks that `find_prefix` found, once more each."""
        for block in blocks:
            if not self._holders[block]:
                del self._free[block]
            self._holders[block] += 1

    def take(self, blocks: list[int], count: int) -> None:
        """Hold `count` more free blocks, those used longest ago first, forgetting what they held.

        Args:
            blocks: where their names are added.
            count: how many.

        Raises:
            ValueError: fewer are free.
        """
        if count > len(self._free):
            raise ValueError(f"{count} blocks asked for, {len(self._free)} free")
        for _ in range(count):
            block, _ = self._free.popitem(last=False)
            self._forget(block)
            self._holders[block] = 1
            blocks.append(block)

    def remember(self, block: int, block_hash: Hashable) -> None:
        """Make a held, full block findable; a second block of the same content stays unnamed."""
        if block not in self._hash_of and block_hash not in self._block_of:
            self._hash_of[block] = block_hash
            self._block_of[block_hash] = block

    def release(self, blocks: Sequence[int], count: int) -> None:
        """Let go of held blocks, in their sequence's order: a prompt's tail is evicted before its head.

        Args:
            blocks: their names.
            count: how many they are.

        Raises:
            ValueError: other than so many are named, or nobody holds one.
        """
        if count != len(blocks):
            raise ValueError(f"{count} blocks are let go of, {len(blocks)} are named")
        for block in reversed(blocks):
            if not self._holders[block]:
                raise ValueError(f"block {block} is not held")
            self._holders[block] -= 1
            if not self._holders[block]:
                self._free[block] = None

    def forget_all(self) -> None:
        """Make no block findable any more; those that are held stay so."""
        self._hash_of.clear()
        self._block_of.clear()

    def _forget(self, block: int) -> None:
        block_hash = self._hash_of.pop(block, None)
        if block_hash is not None:
            del self._block_of[block_hash]


class ToldPool(BlockPool):
    """Blocks of a worker that tells which of them can be found."""

    def __init__(self, total: int) -> None:
        super().__init__(total)
        self._changes: list[tuple[Hashable | None, bool]] = []

    def take_changes(self) -> list[tuple[Hashable | None, bool]]:
        """Return what changed since the last call: hashes, each with whether it can be found now; None is all."""
        changes, self._changes = self._changes, []
        return changes

    def remember(self, block: int, block_hash: Hashable) -> None:
        """Make a held, full block findable; a second block of the same content stays unnamed."""
        known = block_hash in self._block_of
        super().remember(block, block_hash)
        if not known and block_hash in self._block_of:
            self._changes.append((block_hash, True))

    def forget_all(self) -> None:
        """Make no block findable any more; those that are held stay so."""
        super().forget_all()
        self._changes.append((None, False))

    def _forget(self, block: int) -> None:
        block_hash = self._hash_of.get(block)
        super()._forget(block)
        if block_hash is not None:
            self._changes.append((block_hash, False))


class UnnamedPool(BlockPool):
    """The blocks of a worker that shares no prefixes: only their number counts, so that is all it keeps."""

    def __init__(self, total: int) -> None:
        super().__init__(1)
        self.total = total
        self._left = total

    @property
    def free(self) -> int:
        """Blocks that nobody holds."""
        return self._left

    @property
    def used(self) -> int:
        """Blocks that somebody holds."""
        return self.total - self._left

    def take(self, blocks: list[int], count: int) -> None:
        """Hold `count` more free blocks; they have no names to add.

        Raises:
            ValueError: fewer are free.
        """
        if count > self._left:
            raise ValueError(f"{count} blocks asked for, {self._left} free")
        self._left -= count

    def release(self, blocks: Sequence[int], count: int) -> None:
        """Let go of so many held blocks.

        Raises:
            ValueError: fewer are held.
        """
        if self._left + count > self.total:
            raise ValueError(f"{count} blocks are let go of, {self.used} are held")
        self._left += count
