"""Results as files: JSON of everything that was found, CSV of every request. Nothing is written over unasked."""

import csv
import dataclasses
import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

from swingpool_control.simulation.outcome import Outcome
from swingpool_control.simulation.result import Result

COLUMNS = (
    "policy",
    "request",
    "arrival_s",
    "prompt_tokens",
    "output_tokens",
    "result",
    "ttft_s",
    "mean_itl_s",
    "end_s",
)


class OutputError(ValueError):
    """A file that cannot be written; the message says why."""


def check(path: Path, *, force: bool) -> None:
    """Refuse a file that cannot be written, before anything is computed.

    Raises:
        OutputError: it exists, or its folder does not.
    """
    if path.exists() and not force:
        raise OutputError(f"{path} exists; give another name, or --force to write over it")
    if not path.parent.is_dir():
        raise OutputError(f"{path}: there is no folder {path.parent}")


def write_json(path: Path, results: tuple[Result, ...], *, about: dict[str, object], force: bool) -> None:
    """Write results as one JSON object: what was simulated, and each policy's results.

    Raises:
        OutputError: it cannot be written.
    """
    content = {**about, "results": [dataclasses.asdict(result) for result in results]}
    write_text(path, json.dumps(content, indent=2) + "\n", force=force)


def write_series(path: Path, results: tuple[Result, ...], *, force: bool) -> None:
    """Write what happened over time as CSV: a line for each window of each policy.

    Raises:
        OutputError: it cannot be written.
    """
    with _open(path, force=force) as file:
        writer = csv.writer(file, lineterminator="\n")
        for number, result in enumerate(results):
            for window in result.windows:
                row = _flat(dataclasses.asdict(window))
                if not number and window is result.windows[0]:
                    writer.writerow(("policy", *row))
                writer.writerow((result.policy, *row.values()))


def _flat(window: dict[str, Any]) -> dict[str, object]:
    """Return a window's figures, those by state and by pool with a column each.

    Pools are left out: policies that have no swing pools have others.
    """
    states = {f"workers_{state}": _rounded(count) for state, count in window.pop("workers").items()}
    del window["pools"]
    return {name: _rounded(value) if isinstance(value, float) else value for name, value in window.items()} | states


def write_text(path: Path, text: str, *, force: bool) -> None:
    """Write a text.

    Raises:
        OutputError: it cannot be written.
    """
    with _open(path, force=force) as file:
        file.write(text)


@contextmanager
def request_rows(path: Path | None, *, force: bool) -> Iterator[Callable[[str, Outcome], None] | None]:
    """Open a CSV file and yield what writes a row for each request; None without a file.

    Raises:
        OutputError: it cannot be written.
    """
    if path is None:
        yield None
        return
    with _open(path, force=force) as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(COLUMNS)

        def row(policy: str, outcome: Outcome) -> None:
            arrival = outcome.arrival
            times = (_rounded(outcome.ttft_s), _rounded(outcome.mean_itl_s), _rounded(outcome.end_s))
            writer.writerow(
                (
                    policy,
                    outcome.number,
                    _rounded(arrival.at_s),
                    arrival.prompt_tokens,
                    arrival.output_tokens,
                    outcome.result,
                    *times,
                )
            )

        yield row


def _rounded(value: float | None) -> str:
    return "" if value is None else f"{value:.6f}"


def _open(path: Path, *, force: bool) -> IO[str]:
    try:
        return path.open("w" if force else "x", encoding="utf-8", newline="")
    except OSError as error:
        raise OutputError(f"{path}: {error.strerror}") from error
