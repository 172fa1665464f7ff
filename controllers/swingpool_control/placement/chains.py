"""A prompt's tokens as a chain of block hashes: equal ones mean equal content up to there, whoever computed it.

Hashes are this process's own: Python's, of bytes, which nobody outside can make collide.
"""

from array import array
from collections.abc import Sequence
from typing import Final

ROOT: Final = 0
"""What comes before a prompt's first block."""
TOKEN_BYTES: Final = 8
MOST_BLOCKS: Final = 16_384
"""Of a longer prompt only the beginning is looked at."""


def packed(tokens: Sequence[int]) -> bytes | None:
    """Return token ids as bytes, `TOKEN_BYTES` each; None if any is no such number."""
    if isinstance(tokens, array) and tokens.typecode == "q":
        return tokens.tobytes()
    try:
        return array("q", tokens).tobytes()
    except (OverflowError, TypeError):
        return None


def after(parent: int, block: bytes, extra: str) -> int:
    """Return the hash of a block.

    Args:
        parent: the hash of the one before it, or `ROOT`.
        block: its tokens, packed.
        extra: what separates it from others of the same tokens; empty for nothing.
    """
    return hash((parent, block, extra))


def extra_of(keys: Sequence[object] | None) -> str:
    """Return what separates a block from others of the same tokens, from the engine's own list of it."""
    return repr(list(keys)) if keys else ""


def chain_of(
    tokens: Sequence[int], *, block_tokens: int, adapter: str | None = None, salt: str | None = None
) -> tuple[int, ...]:
    """Return the chain hashes of a prompt's full blocks; none if something among the tokens is no number.

    Args:
        tokens: the prompt.
        block_tokens: the size of a block.
        adapter: name of the LoRA adapter that it is for.
        salt: by which its sender keeps it apart.
    """
    count = min(len(tokens) // block_tokens, MOST_BLOCKS)
    raw = packed(tokens[: count * block_tokens])
    if raw is None:
        return ()
    width = TOKEN_BYTES * block_tokens
    named: list[object] = [] if adapter is None else [adapter]
    extra, last = extra_of([*named, salt] if salt else named), ROOT
    others = extra_of(named)
    found: list[int] = []
    for start in range(0, count * width, width):
        last = after(last, raw[start : start + width], extra)
        found.append(last)
        extra = others
    return tuple(found)


def common(one: tuple[int, ...], other: tuple[int, ...]) -> int:
    """Return how many leading blocks two prompts share."""
    least, most = 0, min(len(one), len(other))
    while least < most:
        middle = (least + most) // 2
        if one[middle] == other[middle]:
            least = middle + 1
        else:
            most = middle
    return least
