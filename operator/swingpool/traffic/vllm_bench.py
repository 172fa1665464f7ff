"""What `vllm bench serve` reads and writes: a result of it, or a dataset of prompts.

A result (`--save-result --save-detailed`) is one JSON object with `input_lens` and `output_lens`; newer versions add
`start_times`, and without them arrivals are drawn as the tool draws them, from `request_rate` and `burstiness`. A
custom dataset is JSON lines with `prompt` and, optionally, `output_tokens`; it has no times, so its requests come
once a second on the average, which `--time` changes.
"""

import math
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any

import orjson

from swingpool.traffic.jsonl import row_of
from swingpool.traffic.lines import TrafficError, lines, tokens
from swingpool_control.simulation.traffic import Arrival

BYTES_PER_TOKEN = 4.0
"""Of a prompt's text, where nobody has counted its tokens."""

OUTPUT_TOKENS = 256
"""Of a dataset's request that names none; the tool's own default."""


def is_result(path: Path) -> bool:
    """Tell whether a JSON file is a result of the tool."""
    with path.open("rb") as file:
        return b'"input_lens"' in file.read()


def read_result(path: Path, random: Random) -> Iterator[Arrival]:
    """Yield the requests of a result; those that failed there are left out.

    Args:
        path: the file.
        random: for arrival times, where the result has none.

    Raises:
        TrafficError: it cannot be used.
    """
    found = _object(path)
    prompts, outputs = (_list(path, found, name) for name in ("input_lens", "output_lens"))
    if len(prompts) != len(outputs):
        raise TrafficError(path, f"has {len(outputs)} values, input_lens has {len(prompts)}", column="output_lens")
    times = _times(path, found, len(prompts), random)
    rows = sorted(zip(times, range(len(prompts)), strict=True))
    first_s = rows[0][0] if rows else 0.0
    for at_s, number in rows:
        if outputs[number] == 0:
            continue
        yield Arrival(
            at_s=at_s - first_s,
            prompt_tokens=tokens(path, prompts[number], column=f"input_lens[{number}]"),
            output_tokens=tokens(path, outputs[number], column=f"output_lens[{number}]"),
        )


def read_dataset(path: Path, random: Random) -> Iterator[Arrival]:
    """Yield the requests of a custom dataset.

    Raises:
        TrafficError: a line cannot be used.
    """
    at_s = 0.0
    for line, text in lines(path):
        row = row_of(path, text, line)
        prompt = row.get("prompt")
        if not isinstance(prompt, str) or not prompt:
            raise TrafficError(path, "must be a prompt's text", line=line, column="prompt")
        yield Arrival(
            at_s=at_s,
            prompt_tokens=max(1, round(len(prompt.encode()) / BYTES_PER_TOKEN)),
            output_tokens=tokens(path, row.get("output_tokens", OUTPUT_TOKENS), line=line, column="output_tokens"),
        )
        at_s += random.expovariate(1.0)


def _object(path: Path) -> dict[str, Any]:
    try:
        found = orjson.loads(path.read_bytes())
    except OSError as error:
        raise TrafficError(path, error.strerror or str(error)) from error
    except orjson.JSONDecodeError as error:
        raise TrafficError(path, f"not JSON: {error.msg}", line=error.lineno, column=error.colno) from error
    if not isinstance(found, dict):
        raise TrafficError(path, "must be a JSON object")
    return found


def _list(path: Path, found: dict[str, Any], name: str) -> list[Any]:
    values = found.get(name)
    if not isinstance(values, list):
        raise TrafficError(path, "must be a list: run the benchmark with --save-detailed", column=name)
    return values


def _times(path: Path, found: dict[str, Any], count: int, random: Random) -> list[float]:
    if "start_times" in found:
        times = _list(path, found, "start_times")
        for number, at_s in enumerate(times):
            if isinstance(at_s, bool) or not isinstance(at_s, int | float) or not math.isfinite(at_s):
                raise TrafficError(path, f"must be seconds, not {at_s!r}", column=f"start_times[{number}]")
        if len(times) != count:
            raise TrafficError(path, f"has {len(times)} values, input_lens has {count}", column="start_times")
        return [float(at_s) for at_s in times]
    rate, burstiness = (_number(path, found, name) for name in ("request_rate", "burstiness"))
    if math.isinf(rate):
        return [0.0] * count
    times, at_s = [], 0.0
    for _ in range(count):
        times.append(at_s)
        at_s += random.gammavariate(burstiness, 1 / (rate * burstiness))
    return times


def _number(path: Path, found: dict[str, Any], name: str) -> float:
    value = found.get(name, "inf" if name == "request_rate" else 1.0)
    try:
        number = float(value)
    except (TypeError, ValueError):
        number = math.nan
    if not number > 0:
        raise TrafficError(path, f"must be a number above 0, not {value!r}", column=name)
    return number
