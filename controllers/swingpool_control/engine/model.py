"""The performance model's interface: how long one engine step takes, what fits, what a transfer costs.

Sizing, swing control, placement, the simulated worker and the simulator all ask a `PerformanceModel`. Everything is
expressed through one primitive, the duration of one engine iteration, so that prefill, decode and mixed steps cannot
contradict one another.
"""


class PerformanceModel:
    """One (model, accelerator, engine layout); every method and property is overridden.

    A base class rather than a protocol, so that compiled callers reach a compiled model directly. Not an abstract one,
    for compiled code knows no abstract dataclasses.
    """

    __slots__ = ()

    @property
    def name(self) -> str:
        """What it models, for reasons and logs."""
        raise NotImplementedError

    @property
    def kv_capacity_tokens(self) -> int:
        """Tokens of KV cache that one worker holds."""
        raise NotImplementedError

    @property
    def max_batched_tokens(self) -> int:
        """Tokens per iteration, the chunked prefill budget."""
        raise NotImplementedError

    @property
    def max_sequences(self) -> int:
        """Sequences per iteration."""
        raise NotImplementedError

    @property
    def startup_s(self) -> float:
        """Seconds from a pod's creation to its first served request."""
        raise NotImplementedError

    def step_s(
        self, *, prefill_tokens: int, prefill_context_tokens: int, decode_sequences: int, decode_context_tokens: int
    ) -> float:
        """Duration of one iteration, in seconds; monotone in every argument and never negative.

        Args:
            prefill_tokens: prompt tokens computed in this iteration, over all requests.
            prefill_context_tokens: sum over prefill chunks of chunk length times the tokens that lie before it and half
                of the chunk itself (attention work; token^2).
            decode_sequences: sequences that get one token each.
            decode_context_tokens: tokens of KV cache that those sequences read, summed.
        """
        raise NotImplementedError

    def decode_steps_s(self, *, steps: int, sequences: int, context_tokens: int) -> float:
        """Duration of so many decode iterations in a row of the same sequences, in seconds: the sum of their `step_s`.

        Each gives every sequence one token, so each reads `sequences` tokens more than the one before it. A model that
        knows no closed form returns `decode_steps_added_s(self, ...)`.

        Args:
            steps: how many iterations; 0 takes no time.
            sequences: sequences in the batch.
            context_tokens: tokens of KV cache that the first of these iterations reads, summed over the sequences.
        """
        raise NotImplementedError

    def transfer_s(self, *, tokens: int) -> float:
        """Seconds to move the KV cache of so many tokens from one worker to another, alone on the link."""
        raise NotImplementedError


def prefill_s(model: PerformanceModel, *, prompt_tokens: int, cached_tokens: int = 0) -> float:
    """Seconds to compute a prompt alone on a worker, chunked by its token budget.

    Args:
        model: the performance model.
        prompt_tokens: length of the whole prompt.
        cached_tokens: length of its prefix that the worker has already; they are read, not computed.
    """
    total, done = 0.0, min(cached_tokens, prompt_tokens)
    while done < prompt_tokens:
        chunk = min(prompt_tokens - done, model.max_batched_tokens)
        total += model.step_s(
            prefill_tokens=chunk,
            prefill_context_tokens=chunk * done + chunk * chunk // 2,
            decode_sequences=0,
            decode_context_tokens=0,
        )
        done += chunk
    return total


def prompt_batch(model: PerformanceModel, *, prompt_tokens: int) -> tuple[int, float]:
    """Return how many prompts of one length fit into an iteration, 1 at the least, and the seconds that they take.

    A prompt that is longer than the token budget is computed alone, in chunks.

    Args:
        model: the performance model.
        prompt_tokens: length of each of them; 1 or more.
    """
    together = max(1, model.max_batched_tokens // prompt_tokens)
    if together == 1:
        return 1, prefill_s(model, prompt_tokens=prompt_tokens)
    return together, model.step_s(
        prefill_tokens=together * prompt_tokens,
        prefill_context_tokens=together * prompt_tokens * prompt_tokens // 2,
        decode_sequences=0,
        decode_context_tokens=0,
    )


def decode_step_s(model: PerformanceModel, *, sequences: int, context_tokens: int) -> float:
    """Seconds between two tokens of every sequence in a pure decode batch.

    Args:
        model: the performance model.
        sequences: sequences in the batch.
        context_tokens: their contexts' lengths, summed.
    """
    return model.step_s(
        prefill_tokens=0, prefill_context_tokens=0, decode_sequences=sequences, decode_context_tokens=context_tokens
    )


def decode_steps_added_s(model: PerformanceModel, *, steps: int, sequences: int, context_tokens: int) -> float:
    """Return what `PerformanceModel.decode_steps_s` says, by adding up iterations: for models without a closed form."""
    return sum(
        decode_step_s(model, sequences=sequences, context_tokens=context_tokens + step * sequences)
        for step in range(steps)
    )
