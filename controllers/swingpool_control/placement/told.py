"""Which worker has which blocks of KV cache, as the workers themselves tell it event by event.

A worker names blocks by keys of its own, which serve to find parents and what is removed. What a block holds is known
by the chain hash of its tokens, so that a prompt can be looked up at all workers at once. One content may lie in
several blocks of a worker, each of which is told of: it is gone with the last of them.

A prefix counts from its beginning on. Workers remove ends before beginnings, so whoever has a block has those before
it, and how deep a prompt lies somewhere is found by halving; where a worker has removed a beginning alone, each block
is looked at.

If something of a worker's history is missing, what is known is there, but something else may be too.
"""

from typing import Final

from swingpool_control.placement import chains
from swingpool_control.placement.cache_events import CacheEvent, Cleared, Key, Removed, Stored

MOST_BLOCKS: Final = 4_000_000
"""Blocks of one worker that are followed: none has as many."""
MOST_HOLDERS: Final = 4
"""Workers that are looked at for one prompt, those with most of it first."""


class Block:
    """A content that lies in one worker's cache, once or more than once."""

    __slots__ = ("chain", "children", "copies", "parent")

    def __init__(self, chain: int, parent: "Block | None") -> None:
        self.chain = chain
        self.parent = parent
        self.copies = 0
        self.children = 0
        """Blocks there that follow it."""


class Store:
    """One worker's blocks."""

    __slots__ = ("adopted", "blocks", "headless", "missing", "orphans", "quiet", "useless", "worker")

    def __init__(self, worker: str, missing: str) -> None:
        self.worker = worker
        self.missing = missing
        """Why something may be there that is not known; empty if all is known that was told."""
        self.useless = False
        """Whether nothing that it tells helps."""
        self.quiet = ""
        """Why nothing is told at present; empty if it is."""
        self.blocks: dict[Key, Block] = {}
        self.headless: dict[Key, Block] = {}
        """Blocks that are gone, though others follow them that are not."""
        self.orphans: dict[Key, int] = {}
        """Copies of blocks whose beginning is not known, and so neither what they hold."""
        self.adopted: dict[Key, tuple[Key, ...]] = {}
        """Blocks that were not told of, each with names given here to those before it."""


class Told:
    """What all workers that tell have told."""

    def __init__(self) -> None:
        self.block_tokens = 0
        """Size of all blocks; 0 before the first was told of."""
        self._stores: dict[str, Store] = {}
        self._holders: dict[int, tuple[Store, ...]] = {}
        """Who has a content."""
        self._headless = 0
        """Workers that have removed a beginning alone."""

    # What the workers tell

    def begin(self, worker: str, *, missing: str = "") -> None:
        """Follow a worker from now on, forgetting what was known of it.

        Args:
            worker: the worker.
            missing: why it may have blocks that it will not tell of any more; empty if it has none now.
        """
        self.forget(worker)
        self._stores[worker] = Store(worker, missing)

    def forget(self, worker: str) -> None:
        """Follow a worker no more."""
        store = self._stores.pop(worker, None)
        if store is not None:
            self._clear(store)

    def quiet(self, worker: str, why: str) -> None:
        """Note why a worker tells nothing at present, or with an empty reason that it does again."""
        store = self._stores.get(worker)
        if store is not None:
            store.quiet = why

    def take(self, worker: str, event: CacheEvent) -> int:
        """Take in what a worker tells next; return the last content that it has got by that, `chains.ROOT` for none."""
        store = self._stores.get(worker)
        if store is None or store.useless:
            return chains.ROOT
        if isinstance(event, Stored):
            return self._stored(store, event)
        if isinstance(event, Removed):
            for key in event.keys:
                self._removed(store, key)
        elif isinstance(event, Cleared):
            self._clear(store)
            store.missing = ""
        else:
            self._clear(store)
            store.missing, store.useless = event.why, event.for_good
        return chains.ROOT

    def _stored(self, store: Store, event: Stored) -> int:
        why = self._unfit(store, event)
        if why:
            store.missing = why
            return chains.ROOT
        before: Block | None = None
        if event.parent is not None:
            before = store.blocks.get(event.parent) or store.headless.get(event.parent)
            if before is None:
                return self._unrooted(store, event)
        raw = chains.packed(event.tokens)
        if raw is None:
            store.missing = "it told of tokens that are no numbers"
            return chains.ROOT
        width = chains.TOKEN_BYTES * event.block_tokens
        last = chains.ROOT if before is None else before.chain
        for index, key in enumerate(event.keys):
            block = store.blocks.get(key)
            if block is None:
                extra = event.extras[index] if event.extras else ""
                block = self._new(
                    store, key, before, chains.after(last, raw[index * width : (index + 1) * width], extra)
                )
            block.copies += 1
            before, last = block, block.chain
        return last

    def _unfit(self, store: Store, event: Stored) -> str:
        """Return why an event cannot be accounted for, empty if it can."""
        if event.block_tokens < 1 or len(event.tokens) != len(event.keys) * event.block_tokens:
            return "it told of blocks whose tokens are others than those it named"
        if event.extras and len(event.extras) != len(event.keys):
            return "it told of blocks without saying of each what separates it"
        if not self.block_tokens:
            self.block_tokens = event.block_tokens
        if event.block_tokens != self.block_tokens:
            return f"its blocks are of {event.block_tokens} tokens, others of {self.block_tokens}"
        if len(store.blocks) + len(store.orphans) + len(event.keys) > MOST_BLOCKS:
            return f"it told of more than {MOST_BLOCKS} blocks"
        return ""

    def _unrooted(self, store: Store, event: Stored) -> int:
        store.missing = store.missing or "it told of blocks whose beginning it had not told of"
        for key in event.keys:
            store.orphans[key] = store.orphans.get(key, 0) + 1
        return chains.ROOT

    def _new(self, store: Store, key: Key, before: Block | None, chain: int) -> Block:
        block = store.headless.pop(key, None)
        if block is None:
            block = Block(chain, before)
        else:
            block.parent = before
            self._headless -= not store.headless
        if before is not None:
            before.children += 1
        store.blocks[key] = block
        holders = self._holders.get(block.chain)
        self._holders[block.chain] = (store,) if holders is None else (*holders, store)
        return block

    def _removed(self, store: Store, key: Key) -> None:
        block = store.blocks.get(key)
        if block is None:
            left = store.orphans.get(key, 0) - 1
            if left > 0:
                store.orphans[key] = left
            else:
                store.orphans.pop(key, None)
            return
        block.copies -= 1
        if block.copies > 0:
            return
        del store.blocks[key]
        self._drop(store, block.chain)
        if block.children:
            if not store.headless:
                self._headless += 1
            store.headless[key] = block
        parent = block.parent
        if parent is not None:
            parent.children -= 1
            if not parent.children and not parent.copies:
                self._forget_headless(store, parent)
        for name in reversed(store.adopted.pop(key, ())):
            self._removed(store, name)

    def _forget_headless(self, store: Store, block: Block) -> None:
        for key, other in store.headless.items():
            if other is block:
                del store.headless[key]
                break
        if not store.headless:
            self._headless -= 1

    def _clear(self, store: Store) -> None:
        for block in store.blocks.values():
            self._drop(store, block.chain)
        if store.headless:
            self._headless -= 1
        store.blocks.clear()
        store.headless.clear()
        store.orphans.clear()
        store.adopted.clear()

    def _drop(self, store: Store, chain: int) -> None:
        holders = self._holders.get(chain)
        if holders is None:
            return
        place = holders.index(store)  # once: two blocks may look alike from here that the worker tells apart
        left = holders[:place] + holders[place + 1 :]
        if left:
            self._holders[chain] = left
        else:
            del self._holders[chain]

    def has(self, worker: str, key: Key) -> bool:
        """Tell whether what a worker's block holds is known."""
        store = self._stores.get(worker)
        return store is not None and (key in store.blocks or key in store.headless)

    def adopt(self, worker: str, key: Key, before: tuple[int, ...]) -> None:
        """Take in a block that a worker has without having told of it here, and all before it.

        When it goes, it is not known any more whether those before it are there.

        Args:
            worker: the worker.
            key: by which it names the block.
            before: the contents from the first block to this one.
        """
        store = self._stores.get(worker)
        if store is None or not before or key in store.blocks:
            return
        names: list[Key] = [b"before %d" % content for content in before[:-1]]
        last: Block | None = None
        for name, content in zip([*names, key], before, strict=True):
            block = store.blocks.get(name) or self._new(store, name, last, content)
            block.copies += store.orphans.pop(name, 1)
            last = block
        store.adopted[key] = tuple(names)

    # What is known

    def knows(self, worker: str) -> bool:
        """Tell whether all is known that a worker has."""
        store = self._stores.get(worker)
        return store is not None and not store.missing and not store.quiet

    def why_not(self, worker: str) -> str:
        """Return why not all is known that a worker has, empty if it is."""
        store = self._stores.get(worker)
        return "it is not followed" if store is None else store.quiet or store.missing

    def count(self, worker: str) -> int:
        """Return how many blocks are known of a worker, copies apart, those of unknown content too."""
        store = self._stores.get(worker)
        return 0 if store is None else len(store.blocks) + len(store.orphans)

    def depth(self, worker: str, chain: tuple[int, ...]) -> int:
        """Return how many leading blocks of a prompt a worker has, at the least."""
        store = self._stores.get(worker)
        return 0 if store is None else self._depth(store, chain, len(chain))

    def _depth(self, store: Store, chain: tuple[int, ...], most: int) -> int:
        """Return the same, knowing that it has no more than `most`."""
        holders = self._holders
        if store.headless:
            for index in range(most):
                if store not in holders.get(chain[index], _NOBODY):
                    return index
            return most
        least = 0
        while least < most:
            middle = (least + most) // 2
            if store in holders.get(chain[middle], _NOBODY):
                least = middle + 1
            else:
                most = middle
        return least

    def holders(self, chain: tuple[int, ...]) -> dict[str, int]:
        """Return the workers that have most of a prompt, and how many leading blocks of it each has at the least."""
        found: dict[str, int] = {}
        most = len(chain)
        while most and len(found) < MOST_HOLDERS:
            most = self._with_others(chain, most, found)
            if most:
                for store in self._holders.get(chain[most - 1], _NOBODY):
                    if store.worker not in found and len(found) < MOST_HOLDERS:
                        found[store.worker] = self._depth(store, chain, most) if store.headless else most
        return {worker: depth for worker, depth in found.items() if depth}

    def _with_others(self, chain: tuple[int, ...], most: int, found: dict[str, int]) -> int:
        """Return how many leading blocks anyone has who is not among those found, looking at `most` of them."""
        if self._headless:
            while most and not self._has_other(chain[most - 1], found):
                most -= 1
            return most
        least = 0
        while least < most:
            middle = (least + most) // 2
            if self._has_other(chain[middle], found):
                least = middle + 1
            else:
                most = middle
        return least

    def _has_other(self, content: int, found: dict[str, int]) -> bool:
        return any(store.worker not in found for store in self._holders.get(content, _NOBODY))


_NOBODY: tuple[Store, ...] = ()
