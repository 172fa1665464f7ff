"""What a worker tells of its KV cache, block by block, whichever way it came here."""

from dataclasses import dataclass

Key = int | bytes
"""By which a worker names a block. It says nothing of the content to anybody else."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Stored:
    """Blocks that can be found by prefix from now on; each one follows the one before it."""

    keys: tuple[Key, ...]
    parent: Key | None
    """The block before the first; None if that one begins a prompt."""
    tokens: list[int]
    """Of all of them: as many as there are blocks, times their size."""
    block_tokens: int
    extras: tuple[str, ...] = ()
    """What separates each block from others of the same tokens, such as an adapter; empty if nothing does for any."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Removed:
    """Blocks of which one copy each cannot be found any more."""

    keys: tuple[Key, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Cleared:
    """No block can be found any more."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Unfollowed:
    """Something that cannot be accounted for: what was known of the worker may be gone, and more may be there."""

    why: str
    for_good: bool = False
    """Whether prefixes count by other rules there, so that nothing that it tells helps."""


CacheEvent = Stored | Removed | Cleared | Unfollowed
