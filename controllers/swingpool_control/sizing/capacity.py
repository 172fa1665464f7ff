"""How much one worker does within the objectives, in each role."""

from dataclasses import dataclass

from swingpool_control.engine.model import PerformanceModel, decode_step_s, prefill_s, prompt_batch

KV_FILL = 0.9
"""Share of the KV cache that a plan fills; beyond it the engine preempts."""

MAX_BATCH = 65_536


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """Mean lengths of the requests."""

    isl_tokens: float
    osl_tokens: float

    @property
    def context_tokens(self) -> int:
        """Mean context of a sequence whose tokens are generated: its prompt and half of its output."""
        return max(1, round(self.isl_tokens) + round(self.osl_tokens) // 2)


@dataclass(frozen=True, slots=True, kw_only=True)
class Capacity:
    """What one worker does within the objectives."""

    prefill_tokens_per_s: float
    """Prompt tokens per second, computed back to back."""
    decode_sequences: float
    """Sequences that it generates tokens for at once; at least 1."""
    decode_tokens_per_s: float
    """Tokens per second that it generates for so many sequences."""
    kv_tokens: float
    """Tokens of KV cache that it may hold."""
    ttft_feasible: bool
    """Whether a lone prompt's prefill and transfer fit into the TTFT objective."""
    itl_feasible: bool
    """Whether a lone sequence meets the ITL objective."""


def capacity(model: PerformanceModel, *, shape: Shape, ttft_s: float, itl_s: float) -> Capacity:
    """Return what one worker does.

    Args:
        model: the worker's performance model.
        shape: mean lengths of the requests.
        ttft_s: mean TTFT to reach.
        itl_s: mean ITL to reach.
    """
    isl = max(1, round(shape.isl_tokens))
    context = shape.context_tokens
    kv_tokens = model.kv_capacity_tokens * KV_FILL
    batch = _largest_batch(model, context_tokens=context, itl_s=itl_s, kv_tokens=kv_tokens)
    sequences = max(1, batch)
    step_s = decode_step_s(model, sequences=sequences, context_tokens=sequences * context)
    alone_s = prefill_s(model, prompt_tokens=isl) + model.transfer_s(tokens=isl)
    return Capacity(
        prefill_tokens_per_s=_prefill_rate(model, isl=isl),
        decode_sequences=sequences,
        decode_tokens_per_s=sequences / max(step_s, 1e-9),
        kv_tokens=kv_tokens,
        ttft_feasible=alone_s <= ttft_s,
        itl_feasible=batch >= 1,
    )


def _prefill_rate(model: PerformanceModel, *, isl: int) -> float:
    """Prompt tokens per second; short prompts share an iteration, as the engine's token budget allows."""
    together, seconds = prompt_batch(model, prompt_tokens=isl)
    return together * isl / max(seconds, 1e-9)


def _largest_batch(model: PerformanceModel, *, context_tokens: int, itl_s: float, kv_tokens: float) -> int:
    """Most sequences that the KV cache holds and a decode iteration takes at most `itl_s` with; 0 if not even 1."""
    low, high = 0, max(1, min(MAX_BATCH, model.max_sequences, int(kv_tokens // context_tokens)))
    while low < high:
        middle = (low + high + 1) // 2
        if decode_step_s(model, sequences=middle, context_tokens=middle * context_tokens) <= itl_s:
            low = middle
        else:
            high = middle - 1
    return low
