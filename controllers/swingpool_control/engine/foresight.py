"""Decode iterations that cannot differ: how many follow, and how long each takes.

A batch in which every sequence misses one token goes on giving one token to each of the same sequences until one of
them has all its tokens, blocks run short, or something comes in. A driver that knows when something comes in may let
all of these pass at once.
"""

from collections.abc import Sequence as Items

from swingpool_control.engine.model import PerformanceModel, decode_step_s
from swingpool_control.engine.sequence import Sequence


def alike(running: Items[Sequence], *, free_blocks: int, block_size: int, most: int) -> int:
    """Return how many iterations follow the one under way in which all sequences get one more token and none ends.

    Args:
        running: the batch, before the iteration under way is accounted for.
        free_blocks: blocks that may be taken.
        block_size: tokens per block.
        most: the answer is at most this.
    """
    ahead = most
    for sequence in running:
        if sequence.prompt_tokens + sequence.emitted - sequence.computed != 1:
            return 0
        left = sequence.request.output_tokens - sequence.emitted - 2
        ahead = min(ahead, left)
    while ahead > 0 and _lacking(running, 1 + ahead, block_size) > free_blocks:
        ahead //= 2
    return max(0, ahead)


def durations_s(model: PerformanceModel, running: Items[Sequence], count: int) -> list[float]:
    """Return the durations of so many iterations that follow the one under way."""
    sequences = len(running)
    context = sum(sequence.computed for sequence in running) + sequences
    return [
        decode_step_s(model, sequences=sequences, context_tokens=context + number * sequences)
        for number in range(1, count + 1)
    ]


def _lacking(running: Items[Sequence], more_tokens: int, block_size: int) -> int:
    return sum(
        max(0, -(-(sequence.computed + more_tokens) // block_size) - len(sequence.blocks)) for sequence in running
    )
