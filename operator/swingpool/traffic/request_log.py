"""A log of requests, one JSON object a line, as anyone can write it who sees them pass.

`arrived_unix_s` (seconds), `prompt_tokens` and `output_tokens`; whatever else a line holds is ignored.
"""

from collections.abc import Iterator
from pathlib import Path

from swingpool.traffic.jsonl import row_of
from swingpool.traffic.lines import Clock, TrafficError, lines, tokens
from swingpool_control.simulation.traffic import Arrival

TIME = "arrived_unix_s"


def read(path: Path) -> Iterator[Arrival]:
    """Yield the requests of a log.

    Raises:
        TrafficError: a line cannot be used.
    """
    clock = Clock(path)
    for line, text in lines(path):
        row = row_of(path, text, line)
        at_s = row.get(TIME)
        if isinstance(at_s, bool) or not isinstance(at_s, int | float):
            raise TrafficError(path, f"must be seconds, not {at_s!r}", line=line, column=TIME)
        yield Arrival(
            at_s=clock.since_first(at_s, line=line, column=TIME),
            prompt_tokens=tokens(path, row.get("prompt_tokens"), line=line, column="prompt_tokens"),
            output_tokens=tokens(path, row.get("output_tokens"), line=line, column="output_tokens"),
        )
