"""Which points to measure, within what the worker and its user allow."""

from dataclasses import dataclass
from enum import StrEnum

SHARE_OF_KV = 0.5
"""Of the KV cache, what a measurement may take: whoever else uses the worker keeps the rest."""

SMALLEST_PROMPT = 16
DECODE_ROOM = 32
"""Tokens that a decoding sequence generates at most while it is measured."""


class Kind(StrEnum):
    """What is measured."""

    PREFILL = "prefill"
    DECODE = "decode"
    MIXED = "mixed"
    TRANSFER = "transfer"


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class Point:
    """One point of a sweep."""

    kind: Kind
    prompt_tokens: int = 0
    """Of the prompt that is computed or moved."""
    sequences: int = 0
    """That decode meanwhile."""
    context_tokens: int = 0
    """Of each of those."""

    @property
    def name(self) -> str:
        """What it is called in the journal and on the screen."""
        if self.kind is Kind.DECODE:
            return f"decode of {self.sequences} sequences of {self.context_tokens} tokens"
        if self.kind is Kind.MIXED:
            return f"prompt of {self.prompt_tokens} beside {self.sequences} sequences of {self.context_tokens} tokens"
        return f"{self.kind} of {self.prompt_tokens} tokens"


@dataclass(frozen=True, slots=True, kw_only=True)
class Bounds:
    """What the worker can and may do."""

    longest: int
    """Longest context, tokens."""
    kv_capacity_tokens: int
    max_batched_tokens: int
    max_sequences: int
    """Most sequences at a time that a measurement may run."""
    max_prompt_tokens: int
    """Longest prompt that a measurement may send."""


def points(bounds: Bounds, *, pair: bool) -> tuple[Point, ...]:
    """Return the points of all sweeps, the cheap ones first within each.

    Args:
        bounds: what the worker can and may do.
        pair: whether there is a second worker to move KV cache to.
    """
    lengths = prompt_lengths(bounds)
    found = [Point(kind=Kind.PREFILL, prompt_tokens=length) for length in lengths]
    found += _decode(bounds)
    found += _mixed(bounds)
    if pair:
        found += [Point(kind=Kind.TRANSFER, prompt_tokens=length) for length in lengths[1::2]]
    return tuple(found)


def prompt_lengths(bounds: Bounds) -> tuple[int, ...]:
    """Return lengths of prompts, each half as long again as the one before."""
    most = min(bounds.longest - 1, bounds.max_prompt_tokens, int(bounds.kv_capacity_tokens * SHARE_OF_KV))
    return tuple(_geometric(SMALLEST_PROMPT, most, 1.5))


def _decode(bounds: Bounds) -> list[Point]:
    most_context = min(bounds.longest - DECODE_ROOM - 1, bounds.max_prompt_tokens)
    contexts = _geometric(SMALLEST_PROMPT, most_context, 4.0)
    return [
        Point(kind=Kind.DECODE, sequences=sequences, context_tokens=context)
        for sequences in _geometric(1, bounds.max_sequences, 2.0)
        for context in contexts
        if _fits(bounds, sequences * (context + DECODE_ROOM))
    ]


def _mixed(bounds: Bounds) -> list[Point]:
    most_prompt = min(bounds.max_batched_tokens - bounds.max_sequences, bounds.max_prompt_tokens, bounds.longest - 1)
    context = min(128, bounds.longest - DECODE_ROOM - 1, bounds.max_prompt_tokens)
    return [
        Point(kind=Kind.MIXED, prompt_tokens=prompt, sequences=sequences, context_tokens=context)
        for prompt in _geometric(SMALLEST_PROMPT * 4, most_prompt, 3.0)
        for sequences in _geometric(2, bounds.max_sequences, 4.0)
        if _fits(bounds, prompt + sequences * (context + DECODE_ROOM))
    ]


def _fits(bounds: Bounds, tokens: int) -> bool:
    return tokens <= bounds.kv_capacity_tokens * SHARE_OF_KV


def _geometric(first: int, last: int, factor: float) -> list[int]:
    """Return whole numbers from first to last, each about `factor` times the one before; both ends are in."""
    found: list[int] = []
    value = float(first)
    while round(value) < last:
        found.append(round(value))
        value *= factor
    return sorted({*found, last}) if last >= first else []
