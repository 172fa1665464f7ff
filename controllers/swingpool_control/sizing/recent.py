"""Lengths and burstiness of what came lately, as a router counts them: numbers per slice of time, not per request.

A router knows prompts when they arrive and answers when workers have told their lengths, not which belong together: so
each has a distribution of its own. Both are kept for minutes, longer than rates, since they turn slowly and need many
requests to show.

Answers are known when they end, short ones first: while load rises, those that have ended are shorter than those that
are asked for. All tokens that were generated over the answers that ended are the mean to expect (the likeliest one of
exponential lengths, seen so far), so lengths are stretched by what was generated beyond the answers that ended.
"""

import math
from collections import deque
from collections.abc import Iterable
from typing import Final

from swingpool_control.figures import Figure, Unknown
from swingpool_control.sizing.traffic import (
    OUTPUT_CELLS_PER_OCTAVE,
    PROMPT_CELLS_PER_OCTAVE,
    Lengths,
    independent,
)

WINDOW_S: Final = 120.0
_SLICE_S: Final = 10.0
_RENEWED_S: Final = 10.0
"""How often the sketch is made anew."""
_FEWEST_GAPS: Final = 50
_FEWEST_IN_SLICE: Final = 10
_FEWEST_ANSWERS: Final = 10
_MOST_STRETCH: Final = 3.0

Cells = dict[int, list[float]]
"""By cell of the logarithmic grid: how many, and their tokens."""


class _Slice:
    """Some seconds."""

    __slots__ = ("gaps", "generated", "outputs", "prompts", "since_s", "square_s2", "total_s")

    def __init__(self, since_s: float) -> None:
        self.since_s = since_s
        self.prompts: Cells = {}
        self.outputs: Cells = {}
        self.generated = 0.0
        self.gaps = 0
        self.total_s = 0.0
        self.square_s2 = 0.0


class Recent:
    """What came over the last minutes; times are any clock's that does not go back."""

    def __init__(self, *, window_s: float = WINDOW_S) -> None:
        self._window_s = window_s
        self._slices: deque[_Slice] = deque()
        self._last_s: float | None = None
        self._made_s = -math.inf
        self._made: Lengths | Unknown = Unknown("nothing has come yet")

    def arrived(self, prompt_tokens: float, *, now_s: float) -> None:
        """Count a request that arrives."""
        part = self._open(now_s)
        _count(part.prompts, prompt_tokens, 1.0, PROMPT_CELLS_PER_OCTAVE)
        if self._last_s is not None:
            gap_s = now_s - self._last_s
            part.gaps += 1
            part.total_s += gap_s
            part.square_s2 += gap_s * gap_s
        self._last_s = now_s

    def asked(self, prompt_tokens: float, count: float, *, now_s: float) -> None:
        """Count so many requests with prompts of about this length, of which nobody knows when they arrived."""
        _count(self._open(now_s).prompts, prompt_tokens, count, PROMPT_CELLS_PER_OCTAVE)

    def answered(self, output_tokens: float, count: float, *, now_s: float) -> None:
        """Count so many answers of about this length."""
        _count(self._open(now_s).outputs, output_tokens, count, OUTPUT_CELLS_PER_OCTAVE)

    def generated(self, tokens: float, *, now_s: float) -> None:
        """Count tokens after the first of their answer, whether that has ended or not."""
        self._open(now_s).generated += tokens

    def lengths(self, *, now_s: float) -> Lengths | Unknown:
        """Return the sketch of lengths, some seconds old at most."""
        if now_s - self._made_s >= _RENEWED_S:
            self._made_s, self._made = now_s, self._sketch(now_s)
        return self._made

    def arrival_scv(self, *, now_s: float) -> Figure:
        """Return the squared coefficient of variation of the times between arrivals; 1 is Poisson.

        It is taken within slices, so that a rate that changes from one to the next is not taken for bursts.
        """
        self._drop(now_s)
        parts = [part for part in self._slices if part.gaps >= _FEWEST_IN_SLICE and part.total_s > 0]
        count = sum(part.gaps for part in parts)
        if count < _FEWEST_GAPS:
            return Unknown(f"too few requests within {self._window_s:g} s to tell how bursty they are")
        return sum(part.gaps * _scv(part) for part in parts) / count

    def _open(self, now_s: float) -> _Slice:
        if not self._slices or now_s >= self._slices[-1].since_s + _SLICE_S:
            self._drop(now_s)
            self._slices.append(_Slice(now_s))
        return self._slices[-1]

    def _drop(self, now_s: float) -> None:
        while self._slices and self._slices[0].since_s < now_s - self._window_s:
            self._slices.popleft()

    def _sketch(self, now_s: float) -> Lengths | Unknown:
        self._drop(now_s)
        prompts = _marginal(part.prompts for part in self._slices)
        outputs = _marginal(part.outputs for part in self._slices)
        if not prompts:
            return Unknown(f"no request came within {self._window_s:g} s")
        if sum(count for _, count in outputs) < _FEWEST_ANSWERS:
            return Unknown(f"fewer than {_FEWEST_ANSWERS} answers ended within {self._window_s:g} s")
        stretch = self._stretch(outputs)
        return independent(prompts, [(tokens * stretch, count) for tokens, count in outputs])

    def _stretch(self, outputs: list[tuple[float, float]]) -> float:
        """Tokens that were generated over those of the answers that ended, as far as that is more."""
        ended = sum((tokens - 1) * count for tokens, count in outputs)
        generated = sum(part.generated for part in self._slices)
        return min(_MOST_STRETCH, max(1.0, generated / ended)) if ended > 0 else 1.0


def _scv(part: _Slice) -> float:
    mean_s = part.total_s / part.gaps
    return max(0.0, part.square_s2 / part.gaps / (mean_s * mean_s) - 1.0) * part.gaps / (part.gaps - 1)


def _count(cells: Cells, tokens: float, count: float, per_octave: int) -> None:
    cell = -1 if tokens < 1 else math.floor(math.log2(tokens) * per_octave)
    held = cells.get(cell)
    if held is None:
        cells[cell] = [count, tokens * count]
    else:
        held[0] += count
        held[1] += tokens * count


def _marginal(parts: Iterable[Cells]) -> list[tuple[float, float]]:
    """Return (mean tokens, count) of each cell over all parts, shortest first."""
    whole: Cells = {}
    for part in parts:
        for cell, (count, tokens) in part.items():
            held = whole.setdefault(cell, [0.0, 0.0])
            held[0] += count
            held[1] += tokens
    return [(tokens / count, count) for _, (count, tokens) in sorted(whole.items()) if count > 0]
