"""Tokens and text of the simulation: both follow from the prompt alone, so that every worker answers alike.

Four characters are one token, in prompts and in what is generated; a prompt given as token ids has exactly so many. All
generated words have four characters, space included, so that an answer sent back as a prompt has as many tokens again.
"""

import math
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from zlib import crc32

CHARACTERS_PER_TOKEN = 4
_CONSONANTS = "bcdfghjklmnprstvwxz"
WORDS = tuple(f" {a}{b}{c}" for a in _CONSONANTS for b in "aeiou" for c in _CONSONANTS)
_BYTES = tuple(word.encode() for word in WORDS)
MEAN_OUTPUT_TOKENS = 256
_SPREAD = 0.6
_MOST = 2**60 - 1
"""Of a block's number, which Python hashes to itself."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Prompt:
    """A prompt as the engine needs it."""

    tokens: int
    block_hashes: tuple[Hashable, ...]
    seed: int
    """What its answer follows from."""


class ToldBlock:
    """A block's hash, and what it is made from."""

    __slots__ = ("number", "parent", "tokens")

    def __init__(self, parent: "ToldBlock | None", tokens: tuple[int, ...]) -> None:
        self.parent: int | None = None if parent is None else parent.number
        """The number of the block before it; None if it is the first."""
        self.tokens = tokens
        self.number: int = hash((self.parent or 0, tokens)) & _MOST
        """Equal ones mean equal content up to there."""

    def __hash__(self) -> int:
        return self.number

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ToldBlock) and other.number == self.number


def from_text(text: str, *, block_size: int, seed: int) -> Prompt:
    """Return the prompt in a text; an empty one counts as one token."""
    width = CHARACTERS_PER_TOKEN * block_size
    hashes: list[Hashable] = []
    chain = 0
    for end in range(width, len(text) + 1, width):
        chain = hash((chain, text[end - width : end]))
        hashes.append(chain)
    return Prompt(
        tokens=max(1, -(-len(text) // CHARACTERS_PER_TOKEN)),
        block_hashes=tuple(hashes),
        seed=_digest(text.encode("utf-8", "surrogatepass"), seed),
    )


def from_ids(ids: Sequence[int], *, block_size: int, seed: int) -> Prompt:
    """Return the prompt in a list of token ids, one or more."""
    hashes: list[Hashable] = []
    chain = 0
    for end in range(block_size, len(ids) + 1, block_size):
        chain = hash((chain, tuple(ids[end - block_size : end])))
        hashes.append(chain)
    return Prompt(
        tokens=len(ids), block_hashes=tuple(hashes), seed=_digest(",".join(map(str, ids)).encode("ascii"), seed)
    )


def tokens_of(text: str) -> list[int]:
    """Return the token ids of a text, one or more."""
    pieces = range(0, max(1, len(text)), CHARACTERS_PER_TOKEN)
    return [crc32(text[at : at + CHARACTERS_PER_TOKEN].encode("utf-8", "surrogatepass")) for at in pieces]


def told(ids: Sequence[int], *, block_size: int) -> tuple[Hashable, ...]:
    """Return the hashes of a prompt's blocks, which know what they hold, for a worker that tells of it."""
    blocks: list[Hashable] = []
    parent: ToldBlock | None = None
    for end in range(block_size, len(ids) + 1, block_size):
        parent = ToldBlock(parent, tuple(ids[end - block_size : end]))
        blocks.append(parent)
    return tuple(blocks)


def variant(seed: int, choice: int) -> int:
    """Return the seed of the `choice`-th answer to a prompt; the first has the prompt's own."""
    return seed if not choice else _digest(str(choice).encode("ascii"), seed)


def word(seed: int, number: int) -> bytes:
    """Return the `number`-th generated token of an answer: four ASCII characters that JSON need not escape."""
    return _BYTES[((seed + number * 0x9E3779B97F4A7C15) >> 20) % len(_BYTES)]


def answer(seed: int, tokens: int) -> str:
    """Return an answer of so many tokens."""
    return b"".join(word(seed, number) for number in range(tokens)).decode("ascii")


def natural_length(seed: int) -> int:
    """Return after how many tokens an answer ends by itself: lognormal with a mean of `MEAN_OUTPUT_TOKENS`."""
    # Two uniform numbers from the seed make one normal (Box-Muller).
    first = ((seed >> 8) % 2**24 + 1) / 2**24
    second = ((seed >> 32) % 2**24) / 2**24
    normal = math.sqrt(-2 * math.log(first)) * math.cos(2 * math.pi * second)
    return max(1, round(math.exp(math.log(MEAN_OUTPUT_TOKENS) - _SPREAD**2 / 2 + _SPREAD * normal)))


def _digest(data: bytes, seed: int) -> int:
    return int.from_bytes(blake2b(data, digest_size=8, key=str(seed).encode("ascii")[:64]).digest(), "big")
