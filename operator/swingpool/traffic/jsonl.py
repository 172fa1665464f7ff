"""Traces as JSON lines, as Mooncake publishes them and Dynamo's tools write them.

Each line has `timestamp` (milliseconds), `input_length`, `output_length`, and `hash_ids`: one number for each block of
the prompt, equal where the contents up to there are equal. Dynamo's may lack `hash_ids`.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import orjson

from swingpool.traffic.lines import Clock, TrafficError, lines, tokens
from swingpool_control.simulation.traffic import Arrival

BLOCK_TOKENS = 512
"""Tokens under one hash."""


def read(path: Path, *, block_tokens: int, hashes_required: bool) -> Iterator[Arrival]:
    """Yield the requests of a trace.

    Args:
        path: the file.
        block_tokens: tokens under one hash.
        hashes_required: whether a line without `hash_ids` is refused.

    Raises:
        TrafficError: a line cannot be used.
    """
    clock = Clock(path)
    for line, text in lines(path):
        row = row_of(path, text, line)
        prompt = tokens(path, row.get("input_length"), line=line, column="input_length")
        time_ms = row.get("timestamp")
        if isinstance(time_ms, bool) or not isinstance(time_ms, int | float):
            raise TrafficError(path, f"must be milliseconds, not {time_ms!r}", line=line, column="timestamp")
        yield Arrival(
            at_s=clock.since_first(time_ms / 1000, line=line, column="timestamp"),
            prompt_tokens=prompt,
            output_tokens=tokens(path, row.get("output_length"), line=line, column="output_length"),
            prefix=_hashes(path, row, prompt, line, block_tokens=block_tokens, required=hashes_required),
            prefix_tokens=block_tokens,
        )


def row_of(path: Path, text: str, line: int) -> dict[str, Any]:
    """Return a line's JSON object.

    Raises:
        TrafficError: it holds none.
    """
    try:
        row = orjson.loads(text)
    except orjson.JSONDecodeError as error:
        raise TrafficError(path, f"not JSON: {error.msg}", line=line, column=error.colno) from error
    if not isinstance(row, dict):
        raise TrafficError(path, "must be a JSON object", line=line)
    return row


def _hashes(
    path: Path, row: dict[str, Any], prompt: int, line: int, *, block_tokens: int, required: bool
) -> tuple[int, ...]:
    hashes = row.get("hash_ids")
    if hashes is None and not required:
        return ()
    if not isinstance(hashes, list) or not all(isinstance(one, int) for one in hashes):
        raise TrafficError(path, "must be a list of whole numbers", line=line, column="hash_ids")
    most = -(-prompt // block_tokens)
    if len(hashes) > most:
        what = (
            f"has {len(hashes)} hashes, but {prompt} tokens are {most} blocks of {block_tokens}; "
            "say with --block-tokens how many tokens a hash stands for"
        )
        raise TrafficError(path, what, line=line, column="hash_ids")
    return tuple(hashes)
