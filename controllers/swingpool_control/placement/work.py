"""How long prompts take on a worker, from its performance model: few calls, since every decision asks several times."""

from swingpool_control.engine.model import PerformanceModel


def prompts_s(
    model: PerformanceModel, *, tokens: int, context_tokens2: int, sequences: int = 0, resident_tokens: int = 0
) -> float:
    """Return the seconds of the iterations that compute so many prompt tokens.

    Args:
        model: the performance model.
        tokens: prompt tokens to compute, over all prompts.
        context_tokens2: sum over prompts of what is computed times what lies before it and half of itself.
        sequences: sequences that get a token in each of these iterations.
        resident_tokens: KV cache that those read.
    """
    most = model.max_batched_tokens
    if tokens <= most:
        return model.step_s(
            prefill_tokens=tokens,
            prefill_context_tokens=context_tokens2,
            decode_sequences=sequences,
            decode_context_tokens=resident_tokens,
        )
    full, rest = divmod(tokens, most)
    each = context_tokens2 * most // tokens
    seconds = full * model.step_s(
        prefill_tokens=most,
        prefill_context_tokens=each,
        decode_sequences=sequences,
        decode_context_tokens=resident_tokens,
    )
    if rest:
        seconds += model.step_s(
            prefill_tokens=rest,
            prefill_context_tokens=context_tokens2 - full * each,
            decode_sequences=sequences,
            decode_context_tokens=resident_tokens,
        )
    return seconds


def context2(tokens: int, uncached: int) -> int:
    """Return the attention work of a prompt's tail: tokens times what lies before them and half of themselves."""
    return uncached * (tokens - uncached) + uncached * uncached // 2


def prompt_s(model: PerformanceModel, tokens: int, uncached: int) -> float:
    """Return the seconds to compute the last `uncached` tokens of a prompt, alone."""
    return prompts_s(model, tokens=uncached, context_tokens2=context2(tokens, uncached))


class Pace:
    """The part of a model that queueing needs again and again.

    Args:
        model: the performance model.
    """

    __slots__ = ("base_s", "budget", "model", "token_s")

    def __init__(self, model: PerformanceModel) -> None:
        self.model = model
        self.budget = model.max_batched_tokens
        """Prompt tokens of one iteration."""
        self.base_s = prompts_s(model, tokens=1, context_tokens2=0)
        """An iteration of next to nothing."""
        full_s = prompts_s(model, tokens=self.budget, context_tokens2=0)
        self.token_s = max(1e-12, (full_s - self.base_s) / max(1, self.budget - 1))
        """What each further token adds to an iteration."""
