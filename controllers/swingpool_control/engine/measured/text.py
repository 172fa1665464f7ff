"""Text files as rows and objects, with errors that lead to the place in the file."""

import csv
import io
import json
from collections.abc import Iterator
from typing import Any

from swingpool_control.engine.measured.point import MeasurementError


def decoded(data: bytes, origin: str) -> str:
    """Return a file's text.

    Raises:
        MeasurementError: it is not UTF-8.
    """
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise MeasurementError(f"{origin}, line {line}: not UTF-8 text") from error


def rows(data: bytes, origin: str, *, required: frozenset[str]) -> Iterator[tuple[str, dict[str, str]]]:
    """Yield where each row of a CSV file stands, and its cells by column.

    Args:
        data: the file.
        origin: what to call it in errors.
        required: columns that must be there.

    Raises:
        MeasurementError: not CSV, without a header, a column is missing, or a row is longer or shorter than the header.
    """
    reader = csv.DictReader(io.StringIO(decoded(data, origin), newline=""), strict=True)
    try:
        columns = frozenset(name.strip() for name in reader.fieldnames or ())
        if missing := sorted(required - columns):
            raise MeasurementError(
                f"{origin}, line 1: no column {', '.join(missing)}; it has {', '.join(sorted(columns))}"
            )
        for row in reader:
            where = f"{origin}, line {reader.line_num}"
            if None in row or None in row.values():
                raise MeasurementError(f"{where}: has another number of cells than the header")
            yield where, {name.strip(): cell.strip() for name, cell in row.items()}
    except csv.Error as error:
        raise MeasurementError(f"{origin}, line {reader.reader.line_num}: not CSV: {error}") from error


def json_object(data: bytes, origin: str) -> dict[str, Any]:
    """Return the object in a JSON file.

    Raises:
        MeasurementError: not JSON, or something else than an object.
    """
    try:
        found = json.loads(decoded(data, origin))
    except json.JSONDecodeError as error:
        raise MeasurementError(f"{origin}, line {error.lineno}, column {error.colno}: not JSON: {error.msg}") from error
    return as_object(found, origin)


def as_object(value: object, where: str) -> dict[str, Any]:
    """Return a value that must be a JSON object.

    Raises:
        MeasurementError: it is something else.
    """
    if not isinstance(value, dict):
        raise MeasurementError(f"{where}: must be a JSON object")
    return value


def as_list(value: object, where: str) -> list[Any]:
    """Return a value that must be a JSON array.

    Raises:
        MeasurementError: it is something else.
    """
    if not isinstance(value, list):
        raise MeasurementError(f"{where}: must be a JSON array")
    return value
