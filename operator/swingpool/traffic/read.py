"""Any traffic by its file: which format it is in, how it is scaled, how much of it is taken."""

import itertools
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from random import Random

from swingpool.traffic import azure, jsonl, request_log, synthetic, vllm_bench
from swingpool.traffic.lines import TrafficError, lines
from swingpool.traffic.synthetic import Seeds
from swingpool_control.simulation.traffic import Arrival

FORMATS = ("azure", "mooncake", "dynamo", "vllm-result", "vllm-dataset", "log", "synthetic")
WITHOUT_PREFIXES = ("azure", "vllm-result", "vllm-dataset")
"""Formats that tell nothing of what prompts share."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Scaling:
    """How traffic is changed before it is used."""

    rate: float = 1.0
    """Requests for each of its requests: 2 is twice the load in the same time."""
    time: float = 1.0
    """Seconds for each of its seconds: 2 is half the load for twice the time."""
    until_s: float | None = None
    """Requests from then on are left out."""
    limit: int | None = None
    """At most so many requests."""


def read(
    path: Path,
    *,
    format: str | None = None,
    block_tokens: int = jsonl.BLOCK_TOKENS,
    seeds: Seeds,
    scaling: Scaling = Scaling(),
) -> Iterator[Arrival]:
    """Yield the requests of a file, one by one.

    Args:
        path: the file.
        format: one of `FORMATS`; None finds out.
        block_tokens: tokens under one hash of a JSONL trace.
        seeds: for what is drawn.
        scaling: how to change it.

    Raises:
        TrafficError: it cannot be used.
    """
    chosen = format or detect(path)
    drawn = Random(f"arrivals {seeds.arrivals}")  # noqa: S311 - reproducible, and no secret
    readers: dict[str, Callable[[], Iterator[Arrival]]] = {
        "azure": lambda: azure.read(path),
        "mooncake": lambda: jsonl.read(path, block_tokens=block_tokens, hashes_required=True),
        "dynamo": lambda: jsonl.read(path, block_tokens=block_tokens, hashes_required=False),
        "vllm-result": lambda: vllm_bench.read_result(path, drawn),
        "vllm-dataset": lambda: vllm_bench.read_dataset(path, drawn),
        "log": lambda: request_log.read(path),
        "synthetic": lambda: synthetic.draw(synthetic.load(path), seeds),
    }
    found = readers[chosen]()
    return _scaled(found, scaling, Random(f"copies {seeds.arrivals}"))  # noqa: S311 - reproducible, and no secret


def detect(path: Path) -> str:
    """Return a file's format by its name, and by its first line where that does not tell.

    Raises:
        TrafficError: it cannot be read, or is in no known format.
    """
    name = path.name.removesuffix(".gz")
    if name.endswith((".yaml", ".yml")):
        return "synthetic"
    if name.endswith(".json"):
        return "vllm-result" if path.is_file() and vllm_bench.is_result(path) else "synthetic"
    first = next((text for _, text in lines(path)), "")
    if first.startswith("{"):
        keys = {request_log.TIME: "log", request_log.MESSAGE: "log", "hash_ids": "mooncake", "prompt": "vllm-dataset"}
        return next((kind for key, kind in keys.items() if f'"{key}"' in first), "dynamo")
    if azure.TIME in first:
        return "azure"
    raise TrafficError(path, f"is in none of the formats {', '.join(FORMATS)}; say which with --format")


def tells_prefixes(path: Path, format: str) -> bool:
    """Return whether traffic says what prompts share: if not, a prefix cache changes nothing.

    Raises:
        TrafficError: it cannot be read.
    """
    return request_log.tells_prefixes(path) if format == "log" else format not in WITHOUT_PREFIXES


def _scaled(arrivals: Iterable[Arrival], scaling: Scaling, random: Random) -> Iterator[Arrival]:
    if scaling.rate != 1.0:
        arrivals = _copied(arrivals, scaling.rate, random)
    if scaling.time != 1.0:
        arrivals = (arrival._replace(at_s=arrival.at_s * scaling.time) for arrival in arrivals)
    if scaling.until_s is not None:
        until_s = scaling.until_s
        arrivals = itertools.takewhile(lambda arrival: arrival.at_s < until_s, arrivals)
    return itertools.islice(arrivals, scaling.limit)


def _copied(arrivals: Iterable[Arrival], rate: float, random: Random) -> Iterator[Arrival]:
    """Repeat or leave out requests; copies arrive at random before the next one, and share no prefix with it."""
    waiting = iter(arrivals)
    arrival = next(waiting, None)
    while arrival is not None:
        following = next(waiting, None)
        copies = int(rate) + (random.random() < rate % 1)
        gap_s = 0.0 if following is None else following.at_s - arrival.at_s
        for copy, late in enumerate(sorted((0.0, *(random.random() for _ in range(copies - 1))))[:copies]):
            yield arrival._replace(
                at_s=arrival.at_s + late * gap_s,
                prefix=tuple(block + (copy << 40) for block in arrival.prefix),
            )
        arrival = following
