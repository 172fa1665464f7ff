"""What comes in, as sizing reasons about it: a rate, how bursty it is, and the joint distribution of lengths.

Means are not enough: the queue before prefill is made by long prompts that come together, and the KV cache by long
answers to long prompts. The sketch keeps pairs of lengths in cells of a fixed logarithmic grid, so that sketches of
several routers, or of several minutes, add up to the sketch of all of it.
"""

import math
from collections.abc import Iterable
from dataclasses import dataclass, field, replace

PROMPT_CELLS_PER_OCTAVE = 4
OUTPUT_CELLS_PER_OCTAVE = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class LengthBin:
    """Requests of about the same lengths."""

    prompt_tokens: float
    """Mean of their prompts."""
    output_tokens: float
    """Mean of their answers."""
    weight: float
    """How many they are, in any unit that all bins of a sketch share."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Lengths:
    """A sketch of pairs of prompt and output lengths.

    Make one by `lengths_of`, `one_length` or `merged`; in all of these a cell of the grid has one bin at most.

    Raises:
        ValueError: a weight or length is not a finite number in its range, or there is no bin.
    """

    bins: tuple[LengthBin, ...]
    weight: float = field(init=False, compare=False)
    mean_prompt_tokens: float = field(init=False, compare=False)
    mean_output_tokens: float = field(init=False, compare=False)
    mean_context_tokens: float = field(init=False, compare=False)
    """Mean context that a generated token reads: long answers to long prompts read it most often."""

    def __post_init__(self) -> None:
        """Refuse what is no distribution, and compute its means once."""
        for one in self.bins:
            if not (one.prompt_tokens >= 0 and one.output_tokens >= 0 and one.weight > 0):
                raise ValueError(f"a bin of lengths must have lengths of 0 or more and a weight above 0, not {one}")
        weight = math.fsum(one.weight for one in self.bins)
        if not self.bins or not math.isfinite(weight):
            raise ValueError("a sketch of lengths needs at least one bin, and finite weights")
        prompt = math.fsum(one.weight * one.prompt_tokens for one in self.bins)
        output = math.fsum(one.weight * one.output_tokens for one in self.bins)
        read = math.fsum(
            one.weight * one.output_tokens * (one.prompt_tokens + one.output_tokens / 2) for one in self.bins
        )
        if not math.isfinite(prompt + output + read):
            raise ValueError("lengths must be finite")
        object.__setattr__(self, "weight", weight)
        object.__setattr__(self, "mean_prompt_tokens", prompt / weight)
        object.__setattr__(self, "mean_output_tokens", output / weight)
        object.__setattr__(self, "mean_context_tokens", read / output if output > 0 else prompt / weight)

    @property
    def prompt_scv(self) -> float:
        """Squared coefficient of variation of the lengths of prompts."""
        square = math.fsum(one.weight * one.prompt_tokens**2 for one in self.bins) / self.weight
        return max(0.0, square / max(1.0, self.mean_prompt_tokens) ** 2 - 1.0)

    def scaled(self, factor: float) -> "Lengths":
        """Return the same distribution with all weights times a factor, to let old sketches count for less.

        Raises:
            ValueError: the factor is not a finite number above zero.
        """
        if not math.isfinite(factor) or factor <= 0:
            raise ValueError(f"a factor must be a finite number above zero, not {factor}")
        return Lengths(bins=tuple(replace(one, weight=one.weight * factor) for one in self.bins))


@dataclass(frozen=True, slots=True, kw_only=True)
class Traffic:
    """What comes in.

    Raises:
        ValueError: a figure is not a finite number in its range.
    """

    requests_per_s: float
    lengths: Lengths
    arrival_scv: float = 1.0
    """Burstiness: the squared coefficient of variation of the times between arrivals; 1 is Poisson."""
    cached_share: float = 0.0
    """Share of all prompt tokens that prefill workers find in their prefix caches and need not compute, 0-1."""

    def __post_init__(self) -> None:
        """Refuse figures out of range."""
        for name in ("requests_per_s", "arrival_scv"):
            if not math.isfinite(getattr(self, name)) or getattr(self, name) < 0:
                raise ValueError(f"{name} must be a finite number, zero or more, not {getattr(self, name)}")
        if not 0 <= self.cached_share <= 1:
            raise ValueError(f"cached_share must lie between 0 and 1, not {self.cached_share}")

    @property
    def prompt_tokens_per_s(self) -> float:
        """Prompt tokens that arrive."""
        return self.requests_per_s * self.lengths.mean_prompt_tokens

    @property
    def output_tokens_per_s(self) -> float:
        """Tokens that must be generated."""
        return self.requests_per_s * self.lengths.mean_output_tokens

    def at_rate(self, requests_per_s: float) -> "Traffic":
        """Return the same requests at another rate."""
        return replace(self, requests_per_s=requests_per_s)


def lengths_of(pairs: Iterable[tuple[float, float]]) -> Lengths:
    """Return the sketch of (prompt, output) lengths in tokens, each of weight 1.

    Raises:
        ValueError: there is no pair, or a length is negative or not finite.
    """
    return _sketch((LengthBin(prompt_tokens=prompt, output_tokens=output, weight=1.0) for prompt, output in pairs))


def one_length(*, prompt_tokens: float, output_tokens: float, weight: float = 1.0) -> Lengths:
    """Return the sketch of requests that are all alike, where nothing but means is known."""
    return Lengths(bins=(LengthBin(prompt_tokens=prompt_tokens, output_tokens=output_tokens, weight=weight),))


def merged(parts: Iterable[Lengths]) -> Lengths:
    """Return the sketch of all requests together; the order of the parts does not matter.

    Raises:
        ValueError: there is no part.
    """
    return _sketch(one for part in parts for one in part.bins)


def independent(prompts: Iterable[tuple[float, float]], outputs: Iterable[tuple[float, float]]) -> Lengths:
    """Return the sketch of lengths of which only each one's own distribution is known, as (tokens, weight).

    The weights of the result add up to those of `prompts`.

    Raises:
        ValueError: one of them is empty.
    """
    answers = [(tokens, weight) for tokens, weight in outputs if weight > 0]
    total = math.fsum(weight for _, weight in answers)
    if total <= 0:
        raise ValueError("no output lengths are known")
    return _sketch(
        LengthBin(prompt_tokens=prompt, output_tokens=output, weight=count * weight / total)
        for prompt, count in prompts
        for output, weight in answers
    )


def _sketch(bins: Iterable[LengthBin]) -> Lengths:
    """Put bins into the grid's cells; each cell keeps the means of what fell into it."""
    cells: dict[tuple[int, int], list[LengthBin]] = {}
    for one in bins:
        key = (
            _cell(one.prompt_tokens, PROMPT_CELLS_PER_OCTAVE),
            _cell(one.output_tokens, OUTPUT_CELLS_PER_OCTAVE),
        )
        cells.setdefault(key, []).append(one)
    return Lengths(bins=tuple(_together(cells[key]) for key in sorted(cells)))


def _cell(tokens: float, per_octave: int) -> int:
    """Return the cell of a length; all lengths below one token share one."""
    if not math.isfinite(tokens):
        raise ValueError(f"a length must be finite, not {tokens}")
    return -1 if tokens < 1 else math.floor(math.log2(tokens) * per_octave)


def _together(bins: list[LengthBin]) -> LengthBin:
    if len(bins) == 1:
        return bins[0]
    weight = math.fsum(one.weight for one in bins)
    return LengthBin(
        prompt_tokens=math.fsum(one.weight * one.prompt_tokens for one in bins) / weight,
        output_tokens=math.fsum(one.weight * one.output_tokens for one in bins) / weight,
        weight=weight,
    )
