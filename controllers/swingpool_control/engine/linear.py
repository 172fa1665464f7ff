"""The linear performance model: one iteration's time as a sum of terms, each with a non-negative coefficient.

An iteration costs a base, an extra base if it computes any prompt, and then so much per prompt token, per token of
attention work, per decoding sequence and per token of context read. Prompt tokens and sequences may cost more beyond a
knee, where an engine leaves the regime in which it was efficient; or prompt tokens cost what a measured curve says.
Non-negative coefficients make it monotone, which sizing relies on: more work never looks faster.
"""

import math
from dataclasses import dataclass, fields, replace

from swingpool_control.engine.curve import Curve
from swingpool_control.engine.model import PerformanceModel


@dataclass(frozen=True, slots=True, kw_only=True)
class StepCost:
    """Coefficients of one iteration, in seconds per unit, and where they change; all finite and not negative.

    Raises:
        ValueError: a coefficient is negative, NaN or infinite; or an iteration would take no time.
    """

    base_s: float
    """Any iteration."""
    prefill_base_s: float
    """More, if the iteration computes any chunk of a prompt."""
    prefill_token_s: float
    """Per prompt token."""
    prefill_context_token2_s: float
    """Per token^2 of attention within prompts (chunk length times what lies before it and half of itself)."""
    sequence_s: float
    """Per decoding sequence."""
    context_token_s: float
    """Per token of KV cache that decoding sequences read."""
    prefill_knee_tokens: float = 0.0
    """Prompt tokens of one iteration from which on each costs `prefill_over_token_s` more."""
    prefill_over_token_s: float = 0.0
    sequence_knee: float = 0.0
    """Decoding sequences from which on each costs `over_sequence_s` more."""
    over_sequence_s: float = 0.0
    prefill_curve: Curve | None = None
    """Seconds more for so many prompt tokens in one iteration; None if the coefficients say it all."""

    def __post_init__(self) -> None:
        """Refuse coefficients that would make more work look faster."""
        for name in COEFFICIENTS:
            value = getattr(self, name)
            if not math.isfinite(value) or value < 0:
                raise ValueError(f"{name} must be a finite number, zero or more, not {value}")
        if self.base_s <= 0:
            raise ValueError("base_s must be more than zero: no engine iterates in no time")

    def faster(self, factor: float) -> "StepCost":
        """Return the costs of a worker whose every iteration takes 1/`factor` of the time."""
        times = {name: getattr(self, name) / factor for name in COEFFICIENTS if name.endswith("_s")}
        curve = self.prefill_curve.scaled(1 / factor) if self.prefill_curve else None
        return replace(self, **times, prefill_curve=curve)


COEFFICIENTS = tuple(field.name for field in fields(StepCost) if field.name != "prefill_curve")
"""The fields of `StepCost` that are plain numbers."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LinearModel(PerformanceModel):
    """A `PerformanceModel` from a handful of coefficients.

    Raises:
        ValueError: a size or rate is out of its range.
    """

    name: str
    step: StepCost
    kv_capacity_tokens: int
    kv_bytes_per_token: float
    """Bytes of KV cache per token, over all layers and all accelerators of the worker."""
    max_batched_tokens: int
    max_sequences: int
    """Sequences per iteration."""
    link_bytes_per_s: float
    """What one worker can receive of KV cache."""
    link_latency_s: float
    """Fixed time of a transfer, whatever its size."""
    startup_s: float
    itl_spread: tuple[float, ...] = ()
    """Times between tokens over what the coefficients say: factors, each as likely as the others; empty if unknown."""
    prefill_spread: tuple[float, ...] = ()
    """Times of computing a prompt, likewise."""

    def __post_init__(self) -> None:
        """Refuse values that no worker can have."""
        for name in ("kv_capacity_tokens", "max_batched_tokens", "max_sequences"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} must be 1 or more, not {getattr(self, name)}")
        for name in ("kv_bytes_per_token", "link_bytes_per_s"):
            if not math.isfinite(getattr(self, name)) or getattr(self, name) <= 0:
                raise ValueError(f"{name} must be a finite number above zero, not {getattr(self, name)}")
        for name in ("itl_spread", "prefill_spread"):
            if any(not math.isfinite(factor) or factor <= 0 for factor in getattr(self, name)):
                raise ValueError(f"{name} must hold finite factors above zero")
        for name in ("link_latency_s", "startup_s"):
            if not math.isfinite(getattr(self, name)) or getattr(self, name) < 0:
                raise ValueError(f"{name} must be a finite number of seconds, zero or more, not {getattr(self, name)}")

    def step_s(
        self, *, prefill_tokens: int, prefill_context_tokens: int, decode_sequences: int, decode_context_tokens: int
    ) -> float:
        """Duration of one iteration in seconds, 0 if nothing is in it; see `PerformanceModel.step_s`."""
        if not prefill_tokens and not decode_sequences:
            return 0.0
        cost = self.step
        seconds = cost.base_s + cost.sequence_s * decode_sequences + cost.context_token_s * decode_context_tokens
        if decode_sequences > cost.sequence_knee:
            seconds += cost.over_sequence_s * (decode_sequences - cost.sequence_knee)
        if prefill_tokens:
            seconds += (
                cost.prefill_base_s
                + cost.prefill_token_s * prefill_tokens
                + cost.prefill_context_token2_s * prefill_context_tokens
            )
            if prefill_tokens > cost.prefill_knee_tokens:
                seconds += cost.prefill_over_token_s * (prefill_tokens - cost.prefill_knee_tokens)
            if cost.prefill_curve is not None:
                seconds += cost.prefill_curve.at(prefill_tokens)
        return seconds

    def decode_steps_s(self, *, steps: int, sequences: int, context_tokens: int) -> float:
        """Duration of so many decode iterations in a row; see `PerformanceModel.decode_steps_s`.

        The context grows by `sequences` from each to the next, so the sum is that of an arithmetic series.
        """
        if steps < 1 or not sequences:
            return 0.0
        cost = self.step
        each_s = cost.base_s + cost.sequence_s * sequences
        if sequences > cost.sequence_knee:
            each_s += cost.over_sequence_s * (sequences - cost.sequence_knee)
        return steps * each_s + cost.context_token_s * (steps * context_tokens + sequences * (steps * (steps - 1) // 2))

    def transfer_s(self, *, tokens: int) -> float:
        """Seconds to move the KV cache of so many tokens from one worker to another, alone on the link."""
        if tokens <= 0:
            return 0.0
        return self.link_latency_s + tokens * self.kv_bytes_per_token / self.link_bytes_per_s

    def faster(self, factor: float) -> "LinearModel":
        """Return the model of a worker whose every iteration and transfer takes 1/`factor` of the time.

        Raises:
            ValueError: the factor is not a finite number above zero.
        """
        if not math.isfinite(factor) or factor <= 0:
            raise ValueError(f"a speedup must be a finite number above zero, not {factor}")
        return replace(
            self,
            step=self.step.faster(factor),
            link_bytes_per_s=self.link_bytes_per_s * factor,
            link_latency_s=self.link_latency_s / factor,
        )

    def starting_in(self, startup_s: float) -> "LinearModel":
        """Return the model of a worker that takes so long to start, and is the same otherwise."""
        return replace(self, startup_s=startup_s)
