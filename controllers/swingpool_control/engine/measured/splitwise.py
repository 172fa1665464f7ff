"""The measured table of Splitwise (ISCA 2024): `perf_model.csv`, medians of its repeats.

Two sweeps per model, machine and tensor parallelism: one prompt of many lengths, and many prompts of one length. Times
are milliseconds. A batch that took no longer for its prompts than a smaller one of the same kind did not run as one
batch (its KV cache did not fit), so it says nothing of an iteration and is left out.
"""

from collections import defaultdict
from statistics import median

from swingpool_control.engine.measured.point import MeasuredSet, Measurement, MeasurementError, number
from swingpool_control.engine.measured.text import rows

FIGURES = ("prompt_size", "batch_size", "token_size", "prompt_time", "token_time", "tensor_parallel")
SOURCE = "Splitwise's measured table (Mutinifni/splitwise-sim, perf_model.csv), medians of its repeats"

Prompt = tuple[float, float]
"""Prompts in the batch, tokens of each."""


def read(files: dict[str, bytes]) -> tuple[MeasuredSet, ...]:
    """Return a set for each model, machine and degree of tensor parallelism, named `MODEL/MACHINE/tpN`.

    Raises:
        MeasurementError: a file is not such a table.
    """
    tables: dict[tuple[str, str, int], list[dict[str, float]]] = defaultdict(list)
    for origin, data in files.items():
        for where, row in rows(data, origin, required=frozenset({"model", "hardware", *FIGURES})):
            figures = {name: number(row, name, where) for name in FIGURES}
            for name, value in figures.items():
                if value <= 0:
                    raise MeasurementError(f"{where}, {name}: must be above zero")
            tables[row["model"], row["hardware"], int(figures["tensor_parallel"])].append(figures)
    return tuple(_set(*key, table) for key, table in sorted(tables.items()))


def _set(model: str, hardware: str, size: int, table: list[dict[str, float]]) -> MeasuredSet:
    name = f"{model}/{hardware}/tp{size}"
    prompt_ms: dict[Prompt, list[float]] = defaultdict(list)
    token_ms: dict[tuple[Prompt, float], list[float]] = defaultdict(list)
    for row in table:
        prompt = (row["batch_size"], row["prompt_size"])
        prompt_ms[prompt].append(row["prompt_time"])
        token_ms[prompt, row["token_size"]].append(row["token_time"])
    medians = {prompt: median(times) for prompt, times in prompt_ms.items()}
    split = {prompt for prompt in medians if _did_not_run_as_one(prompt, medians)}
    prefill = [
        Measurement(seconds=time / 1e3, origin=f"{name}, {b:g}x{n:g}", prompts=b, prompt_tokens=n)
        for (b, n), time in sorted(medians.items())
        if (b, n) not in split
    ]
    decode = [
        Measurement(
            seconds=median(times) / 1e3,
            origin=f"{name}, {prompt[0]:g}x{prompt[1]:g}",
            sequences=prompt[0],
            context_tokens=prompt[1] + tokens / 2,
        )
        for (prompt, tokens), times in sorted(token_ms.items())
        if prompt not in split
    ]
    capped = hardware.endswith("-pcap")
    notes = [f"Left out, for it did not run as one batch: {b:g} prompts of {n:g} tokens" for b, n in sorted(split)]
    if capped:
        notes.append("Times under a power cap are scaled from the uncapped machine's, not measured")
    return MeasuredSet(
        name=name,
        points=(*prefill, *decode),
        source=SOURCE,
        licence="MIT, (c) 2024 Pratyush Patel",
        measured=not capped,
        accelerators=size,
        tensor_parallel_size=size,
        max_batched_tokens=max(int(point.computed_tokens) for point in prefill),
        max_sequences=max(int(point.sequences) for point in decode),
        notes=tuple(notes),
    )


def _did_not_run_as_one(prompt: Prompt, medians: dict[Prompt, float]) -> bool:
    batch, tokens = prompt
    return any(b < batch and n == tokens and medians[prompt] < time for (b, n), time in medians.items())
