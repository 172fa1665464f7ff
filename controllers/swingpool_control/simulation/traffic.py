"""What comes in: requests with their times and lengths. Where they are read or drawn is the shell's business."""

from typing import Final, NamedTuple, Protocol

_PART_BITS: Final = 16


class Arrival(NamedTuple):
    """One request."""

    at_s: float
    """When it arrives, from the start of the simulation."""
    prompt_tokens: int
    output_tokens: int
    prefix: tuple[int, ...] = ()
    """Chain hashes of the prompt's blocks, first to last; equal ones mean equal content up to there."""
    prefix_tokens: int = 0
    """Tokens under one hash of `prefix`."""
    kind: str = ""
    """Name of its class, as requests name it; empty if it names none."""
    tenant: str = ""
    """Whose it is; all that name none share one."""


class Randomness(Protocol):
    """A seeded generator, made by the caller: `random.Random` and numpy's `Generator` are such."""

    def random(self) -> float:
        """Return the next number in [0, 1)."""
        ...


def block_hashes(arrival: Arrival, block_size: int) -> tuple[int, ...]:
    """Return the hashes of the engine's full blocks that follow from a trace's coarser ones.

    Without a prefix, or where the trace's blocks are no multiple of the engine's, nothing is known to be shared.
    """
    each, rest = divmod(arrival.prefix_tokens, block_size)
    if not arrival.prefix or rest or not each or each >> _PART_BITS:
        return ()
    return tuple(finer(arrival.prefix, each)[: arrival.prompt_tokens // block_size])


def finer(coarse: tuple[int, ...], each: int) -> list[int]:
    """Return the hashes of an engine's blocks where so many of them lie under each of a trace's hashes."""
    return [block << _PART_BITS | part for block in coarse for part in range(each)]
