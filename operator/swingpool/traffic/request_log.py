"""A log of requests, one JSON object a line, as Swingpool's picker writes it and anyone can who sees them pass.

`arrived_unix_s` (seconds), `prompt_tokens` and `output_tokens` must be there. `class`, `tenant`, and `hash_ids` with
`block_tokens`, may be: what a request says of itself, and one number for each block of the prompt, equal where the
contents up to there are equal. Whatever else a line holds is ignored.

Messages of the same process are passed over, as `kubectl logs` shows them between the lines: objects with a `message`.

A line is written when its request ends, so lines are not in the order of arrivals: they are sorted here over an hour,
which is kept in memory, and no more.
"""

import heapq
import itertools
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from swingpool.traffic.jsonl import row_of
from swingpool.traffic.lines import TrafficError, lines, tokens
from swingpool_control.simulation.traffic import Arrival

TIME = "arrived_unix_s"
HASHES = "hash_ids"
BLOCK = "block_tokens"
MESSAGE = "message"
LOOKED_AT = 1000
"""Lines in which it is looked for what prompts share."""
LATEST_S = 3600.0
"""How much later than a request, by its arrival, one may stand in the file that arrived before it."""


def read(path: Path) -> Iterator[Arrival]:
    """Yield the requests of a log, in the order of their arrival.

    Raises:
        TrafficError: a line cannot be used, or comes too late to be put in its place.
    """
    waiting: list[tuple[float, int, Arrival]] = []
    newest_s, passed_s = -math.inf, -math.inf
    first_s = 0.0
    for line, text in lines(path):
        row = row_of(path, text, line)
        if MESSAGE in row and TIME not in row:
            continue
        at_s = _time_s(path, row, line)
        if at_s < passed_s:
            what = f"is {passed_s - at_s:.3f} s before a request that stands an hour and more above it; sort the file"
            raise TrafficError(path, what, line=line, column=TIME)
        heapq.heappush(waiting, (at_s, line, _arrival(path, row, line)))
        newest_s = max(newest_s, at_s)
        while waiting[0][0] < newest_s - LATEST_S:
            first_s, passed_s, arrival = _next(waiting, first_s, passed_s)
            yield arrival
    while waiting:
        first_s, passed_s, arrival = _next(waiting, first_s, passed_s)
        yield arrival


def tells_prefixes(path: Path) -> bool:
    """Return whether a log's first lines say what their prompts share with others."""
    return any(f'"{HASHES}"' in text for _, text in itertools.islice(lines(path), LOOKED_AT))


def _next(waiting: list[tuple[float, int, Arrival]], first_s: float, passed_s: float) -> tuple[float, float, Arrival]:
    """Return when the first request arrived, when the next one did, and that one."""
    at_s, _, arrival = heapq.heappop(waiting)
    first_s = at_s if passed_s == -math.inf else first_s
    return first_s, at_s, arrival._replace(at_s=at_s - first_s)


def _time_s(path: Path, row: dict[str, Any], line: int) -> float:
    at_s = row.get(TIME)
    if isinstance(at_s, bool) or not isinstance(at_s, int | float) or not math.isfinite(at_s):
        raise TrafficError(path, f"must be seconds, not {at_s!r}", line=line, column=TIME)
    return float(at_s)


def _arrival(path: Path, row: dict[str, Any], line: int) -> Arrival:
    prompt = tokens(path, row.get("prompt_tokens"), line=line, column="prompt_tokens")
    prefix: tuple[int, ...] = ()
    block = 0
    hashes = row.get(HASHES)
    if hashes is not None:
        if not isinstance(hashes, list) or not all(isinstance(one, int) for one in hashes):
            raise TrafficError(path, "must be a list of whole numbers", line=line, column=HASHES)
        block = tokens(path, row.get(BLOCK), line=line, column=BLOCK)
        prefix = tuple(hashes[: -(-prompt // block)])
    return Arrival(
        at_s=0.0,
        prompt_tokens=prompt,
        output_tokens=tokens(path, row.get("output_tokens"), line=line, column="output_tokens"),
        prefix=prefix,
        prefix_tokens=block,
        kind=_text(path, row, "class", line),
        tenant=_text(path, row, "tenant", line),
    )


def _text(path: Path, row: dict[str, Any], column: str, line: int) -> str:
    value = row.get(column, "")
    if not isinstance(value, str):
        raise TrafficError(path, f"must be a text, not {value!r}", line=line, column=column)
    return value
