"""What was measured: how long iterations took, and what was in them."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum


class MeasurementError(ValueError):
    """A file of measurements that cannot be used: names the file, the line or entry, the column, and what is wrong."""


class Phase(StrEnum):
    """What an iteration did."""

    PREFILL = "prefill"
    DECODE = "decode"
    MIXED = "mixed"


@dataclass(frozen=True, slots=True, kw_only=True)
class Measurement:
    """One measured time: of computing prompts, of one decode step, or of one iteration that did both.

    Raises:
        MeasurementError: a figure is not finite or below zero, takes no time, or the work is none.
    """

    seconds: float
    origin: str
    """File and line, for errors."""
    prompts: float = 0.0
    """Prompts of equal length that were computed together."""
    prompt_tokens: float = 0.0
    """Length of each, its cached prefix included."""
    cached_tokens: float = 0.0
    """Tokens at the head of each that were in the KV cache already."""
    sequences: float = 0.0
    """Sequences that got one token each."""
    context_tokens: float = 0.0
    """Mean length of their contexts."""

    def __post_init__(self) -> None:
        """Refuse what no engine can have done."""
        for name in ("seconds", "prompts", "prompt_tokens", "cached_tokens", "sequences", "context_tokens"):
            value = getattr(self, name)
            if not math.isfinite(value) or value < 0:
                raise MeasurementError(f"{self.origin}, {name}: must be a finite number, zero or more, not {value}")
        if self.seconds == 0:
            raise MeasurementError(f"{self.origin}, seconds: must be more than zero")
        if self.prompts and self.cached_tokens >= self.prompt_tokens:
            raise MeasurementError(
                f"{self.origin}, prompt_tokens: {self.prompt_tokens:g} leave nothing to compute beside "
                f"{self.cached_tokens:g} cached tokens"
            )
        if not self.prompts and not self.sequences:
            raise MeasurementError(f"{self.origin}: neither prompts nor sequences; one of them must be above zero")

    @property
    def phase(self) -> Phase:
        """What it did."""
        if not self.prompts:
            return Phase.DECODE
        return Phase.MIXED if self.sequences else Phase.PREFILL

    @property
    def computed_tokens(self) -> float:
        """Prompt tokens that were computed, over all prompts."""
        return self.prompts * (self.prompt_tokens - self.cached_tokens)


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredSet:
    """The measurements of one model on one accelerator in one engine layout, and what their file says of them."""

    name: str
    """What tells it from the other sets of its file."""
    points: tuple[Measurement, ...]
    source: str
    licence: str
    published_fit: bool = False
    """The points were computed from coefficients that someone published, not measured one by one."""
    measured: bool = True
    """False if nobody measured them."""
    accelerators: int = 1
    tensor_parallel_size: int = 1
    max_batched_tokens: int
    """Prompt tokens that one iteration took at most."""
    max_sequences: int
    kv_capacity_tokens: int | None = None
    notes: tuple[str, ...] = ()

    def of(self, phase: Phase) -> tuple[Measurement, ...]:
        """Return the points of one phase."""
        return tuple(point for point in self.points if point.phase is phase)


def number(row: Mapping[str, object], column: str, where: str, *, default: float | None = None) -> float:
    """Return a figure of a row.

    Args:
        row: the row, by column.
        column: which of its figures.
        where: file and line, for errors.
        default: what an empty or missing cell means; None if it must be there.

    Raises:
        MeasurementError: it is missing, no number, not finite, or below zero.
    """
    value = row.get(column)
    if value is None or value == "":
        if default is None:
            raise MeasurementError(f"{where}, {column}: is missing")
        return default
    try:
        figure = float(value) if isinstance(value, str | int | float) and not isinstance(value, bool) else math.nan
    except ValueError:
        figure = math.nan
    if not math.isfinite(figure) or figure < 0:
        raise MeasurementError(f"{where}, {column}: must be a finite number, zero or more, not {value!r}")
    return figure
