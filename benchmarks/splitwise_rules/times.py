"""Times of the published table: medians of its repeats, straight lines between them and beyond.

The published simulator looks decode up by the number of sequences on an axis of prompt tokens times batch size, where
every batch that it ever meets lies below the first point: so a batch of 64 costs about as much as one. `compat` repeats
that; `corrected` takes decode from the sweep over batch sizes, at prompts of 512 tokens.
"""

import csv
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from statistics import median

import numpy as np

from swingpool_control.engine.model import PerformanceModel

MODEL, TENSOR_PARALLEL = "bloom-176b", "8"
PROMPT_TOKENS = "512"
"""Of the sweep over batch sizes."""
MIXED = 1.1
"""What an iteration with prompts and answers takes, against one with as many tokens of prompts."""
KV_BYTES_PER_TOKEN = 2 * 14336 * 70 * 2
"""BLOOM-176B: keys and values, hidden size, layers, bytes."""
KV_TOKENS = 89_235
"""Eight accelerators of 80 GiB less 329 GB of weights, in tokens."""
BATCH_TOKENS, BATCH_SIZE = 2048, 512
BYTES_PER_S = 200 * 1024**3


@dataclass(frozen=True)
class Line:
    """Seconds by size, by straight lines."""

    sizes: tuple[float, ...]
    seconds: tuple[float, ...]

    def at(self, size: float) -> float:
        """Return the seconds at a size; beyond the first and the last by the nearest two."""
        index = int(np.clip(np.searchsorted(self.sizes, size), 1, len(self.sizes) - 1))
        low, high = self.sizes[index - 1], self.sizes[index]
        low_s, high_s = self.seconds[index - 1], self.seconds[index]
        return low_s + (size - low) * (high_s - low_s) / (high - low)

    @cached_property
    def whole(self) -> "_Whole":
        """The same for whole sizes, each computed once."""
        return _Whole(self)


class _Whole(dict[int, float]):
    def __init__(self, line: Line) -> None:
        self._line = line

    def __missing__(self, size: int) -> float:
        found = self[size] = self._line.at(size)
        return found


@dataclass(frozen=True, kw_only=True)
class Times:
    """What one kind of machine takes."""

    prompt: Line
    """By prompt tokens of the batch."""
    token: Line
    """By prompt tokens times batch size: what a lone answer with so long a prompt takes."""
    batch: Line
    """By batch size."""


def read(table: bytes) -> dict[str, Times]:
    """Return the times of each kind of machine, by the table's name for it."""
    rows: dict[str, list[dict[str, str]]] = defaultdict(list)
    for row in csv.DictReader(table.decode().splitlines()):
        if row["model"] == MODEL and row["tensor_parallel"] == TENSOR_PARALLEL:
            rows[row["hardware"]].append(row)
    return {
        machine: Times(
            prompt=_line((_tokens(row), _s(row, "prompt_time")) for row in found),
            token=_line((_tokens(row), _s(row, "token_time")) for row in found),
            batch=_line(
                (float(row["batch_size"]), _s(row, "token_time"))
                for row in found
                if row["prompt_size"] == PROMPT_TOKENS
            ),
        )
        for machine, found in rows.items()
    }


def _tokens(row: Mapping[str, str]) -> float:
    return float(row["prompt_size"]) * float(row["batch_size"])


def _s(row: Mapping[str, str], name: str) -> float:
    return float(row[name]) / 1e3


def _line(points: Iterable[tuple[float, float]]) -> Line:
    found: dict[float, list[float]] = defaultdict(list)
    for size, seconds in points:
        found[size].append(seconds)
    ordered = sorted((size, median(seconds)) for size, seconds in found.items())
    return Line(sizes=tuple(size for size, _ in ordered), seconds=tuple(seconds for _, seconds in ordered))


class PublishedModel(PerformanceModel):
    """A machine by the table.

    Args:
        name: the machine.
        times: what it takes.
        corrected: whether decode is looked up by what was swept, the batch size.
        max_batched_tokens: the budget of an iteration; a prompt alone may exceed it on the published machines.
    """

    name = ""
    max_batched_tokens = BATCH_TOKENS
    kv_capacity_tokens = KV_TOKENS
    max_sequences = BATCH_SIZE
    startup_s = 0.0

    def __init__(self, name: str, times: Times, *, corrected: bool, max_batched_tokens: int = BATCH_TOKENS) -> None:
        self.name = name
        self.max_batched_tokens = max_batched_tokens
        self._prompt_s = times.prompt.whole
        self._decode_s = (times.batch if corrected else times.token).whole

    def step_s(
        self, *, prefill_tokens: int, prefill_context_tokens: int, decode_sequences: int, decode_context_tokens: int
    ) -> float:
        """Return the duration of an iteration; neither context matters."""
        if not prefill_tokens:
            return self._decode_s[decode_sequences] if decode_sequences else 0.0
        if not decode_sequences:
            return self._prompt_s[prefill_tokens]
        return MIXED * self._prompt_s[prefill_tokens + decode_sequences]

    def decode_steps_s(self, *, steps: int, sequences: int, context_tokens: int) -> float:
        """Return the duration of so many decode iterations, which are all alike."""
        return steps * self._decode_s[sequences] if sequences else 0.0

    def transfer_s(self, *, tokens: int) -> float:
        """Return what a KV cache takes at the published rate, the same for every design."""
        return tokens * KV_BYTES_PER_TOKEN / BYTES_PER_S
