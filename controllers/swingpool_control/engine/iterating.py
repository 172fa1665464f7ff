"""What one iteration of a batch costs: the sequences that decode as a group, and those that miss more one by one."""

from swingpool_control.engine.decoding import Decoding
from swingpool_control.engine.model import PerformanceModel
from swingpool_control.engine.sequence import Sequence
from swingpool_control.engine.work import Iteration


def iteration(
    model: PerformanceModel, decoding: Decoding, computing: list[tuple[Sequence, int]], admitted: tuple[str, ...]
) -> Iteration:
    """Return the iteration of a batch.

    Args:
        model: how long it takes.
        decoding: the sequences that get one token each.
        computing: the others, and their tokens in it.
        admitted: requests that were let into the batch for it.
    """
    decodes, decode_context = decoding.size, decoding.context_tokens
    prefill = prefill_context = 0
    for sequence, count in computing:
        if count == 1:
            decodes += 1
            decode_context += sequence.computed + 1
        else:
            prefill += count
            prefill_context += count * sequence.computed + count * count // 2
    duration_s = model.step_s(
        prefill_tokens=prefill,
        prefill_context_tokens=prefill_context,
        decode_sequences=decodes,
        decode_context_tokens=decode_context,
    )
    return Iteration(admitted=admitted, duration_s=duration_s, prefill_tokens=prefill, decode_sequences=decodes)
