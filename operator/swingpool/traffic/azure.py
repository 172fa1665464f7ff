"""Azure's LLM inference traces: CSV with a time stamp, prompt tokens and generated tokens."""

import csv
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

from swingpool.traffic.lines import Clock, TrafficError, lines, tokens
from swingpool_control.simulation.traffic import Arrival

TIME, PROMPT, OUTPUT = "TIMESTAMP", "ContextTokens", "GeneratedTokens"


def read(path: Path) -> Iterator[Arrival]:
    """Yield the requests of a trace.

    Raises:
        TrafficError: a line cannot be used.
    """
    rows = lines(path)
    header = next(rows, None)
    names = [] if header is None else [name.strip() for name in header[1].split(",")]
    missing = [name for name in (TIME, PROMPT, OUTPUT) if name not in names]
    if missing:
        raise TrafficError(path, f"the header must name {', '.join(missing)}; it is {','.join(names)!r}", line=1)
    at, prompt, output = (names.index(name) for name in (TIME, PROMPT, OUTPUT))
    clock = Clock(path)
    for line, text in rows:
        fields = next(csv.reader((text,)))
        if len(fields) != len(names):
            raise TrafficError(path, f"has {len(fields)} fields, the header has {len(names)}", line=line)
        yield Arrival(
            at_s=clock.since_first(_time_s(path, fields[at], line), line=line, column=TIME),
            prompt_tokens=tokens(path, fields[prompt], line=line, column=PROMPT),
            output_tokens=tokens(path, fields[output], line=line, column=OUTPUT),
        )


def _time_s(path: Path, text: str, line: int) -> float:
    try:
        moment = datetime.fromisoformat(text.strip())
    except ValueError:
        what = f"must be a time such as 2023-11-16 18:17:03.9799600, not {text!r}"
        raise TrafficError(path, what, line=line, column=TIME) from None
    return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()
