"""Trace files, read as a stream and never whole; what is wrong in them is named by file, line and column."""

import gzip
import io
import math
from collections.abc import Iterator
from pathlib import Path


class TrafficError(ValueError):
    """Traffic that cannot be used: names the file, and the line and the column if there are such."""

    def __init__(self, path: Path, what: str, *, line: int | None = None, column: str | int | None = None) -> None:
        place = str(path)
        if line is not None:
            place += f", line {line}"
        if column is not None:
            place += f", column {column}"
        super().__init__(f"{place}: {what}")


def lines(path: Path) -> Iterator[tuple[int, str]]:
    """Yield the lines of a text file, plain or `.gz`, with their numbers from 1; empty ones are left out.

    Raises:
        TrafficError: the file cannot be read, or is no UTF-8.
    """
    number = 0
    try:
        with gzip.open(path, "rb") if path.suffix == ".gz" else path.open("rb") as raw:
            for number, line in enumerate(io.TextIOWrapper(raw, encoding="utf-8-sig"), 1):
                text = line.rstrip()
                if text:
                    yield number, text
    except OSError as error:
        raise TrafficError(path, error.strerror or str(error)) from error
    except (UnicodeDecodeError, EOFError) as error:
        raise TrafficError(path, f"cannot be read: {error}", line=number + 1) from error


def tokens(path: Path, value: object, *, column: str, line: int | None = None) -> int:
    """Return a number of tokens.

    Raises:
        TrafficError: it is none, or below 1.
    """
    try:
        number = int(value) if isinstance(value, str | int) and not isinstance(value, bool) else None
    except ValueError:
        number = None
    if number is None or number < 1:
        raise TrafficError(
            path, f"must be a whole number of tokens, 1 or more, not {value!r}", line=line, column=column
        )
    return number


class Clock:
    """Turns a trace's times into seconds from its first request."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._first_s: float | None = None
        self._last_s = 0.0

    def since_first(self, time_s: float, *, line: int, column: str) -> float:
        """Return the seconds since the first request.

        Raises:
            TrafficError: the time is no number, or lies before the request above it.
        """
        if not math.isfinite(time_s):
            raise TrafficError(self._path, f"must be a finite time, not {time_s}", line=line, column=column)
        if self._first_s is None:
            self._first_s = time_s
        at_s = time_s - self._first_s
        if at_s < self._last_s:
            what = f"is {self._last_s - at_s:.3f} s before the request above it; sort the file by time"
            raise TrafficError(self._path, what, line=line, column=column)
        self._last_s = at_s
        return at_s
