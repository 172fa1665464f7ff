"""Swingpool's own forms of measurements: a CSV table, or a JSON object that also says where it comes from.

Columns are the fields of `Measurement` but for its origin. An empty cell is zero; `prompts` is 1 where there are prompt
tokens.
"""

from swingpool_control.engine.measured.point import MeasuredSet, Measurement, MeasurementError, number
from swingpool_control.engine.measured.text import as_list, as_object, json_object, rows

FORMAT = "swingpool-measurements/v1"
COLUMNS = ("seconds", "prompts", "prompt_tokens", "cached_tokens", "sequences", "context_tokens")
OF_FILE = {
    "format",
    "source",
    "licence",
    "accelerators",
    "tensor_parallel_size",
    "max_batched_tokens",
    "max_sequences",
    "kv_capacity_tokens",
    "points",
}


def read_csv(files: dict[str, bytes]) -> tuple[MeasuredSet, ...]:
    """Return the one set that all files make together.

    Raises:
        MeasurementError: a file is not such a table.
    """
    points = []
    for origin, data in files.items():
        for where, row in rows(data, origin, required=frozenset({"seconds"})):
            points.append(_point(row, where))
    return (_set(points, ", ".join(files), {}),)


def read_json(files: dict[str, bytes]) -> tuple[MeasuredSet, ...]:
    """Return a set for each file, named by it.

    Raises:
        MeasurementError: a file is not in this form.
    """
    found = []
    for origin, data in files.items():
        content = json_object(data, origin)
        if content.get("format") != FORMAT:
            raise MeasurementError(f"{origin}, format: is {content.get('format')!r}; this version reads {FORMAT!r}")
        if unknown := sorted(set(content) - OF_FILE):
            raise MeasurementError(
                f"{origin}: unknown field {', '.join(unknown)}; known are {', '.join(sorted(OF_FILE))}"
            )
        entries = as_list(content.get("points"), f"{origin}, points")
        points = [
            _point(as_object(entry, f"{origin}, points[{i}]"), f"{origin}, points[{i}]")
            for i, entry in enumerate(entries)
        ]
        found.append(_set(points, origin, content))
    return tuple(found)


def _point(row: dict[str, object] | dict[str, str], where: str) -> Measurement:
    if unknown := sorted(set(row) - set(COLUMNS)):
        raise MeasurementError(f"{where}: unknown column {', '.join(unknown)}; known are {', '.join(COLUMNS)}")
    figures = {name: number(row, name, where, default=0.0) for name in COLUMNS[1:]}
    if figures["prompt_tokens"] and not row.get("prompts"):
        figures["prompts"] = 1.0
    return Measurement(seconds=number(row, "seconds", where), origin=where, **figures)


def _set(points: list[Measurement], origin: str, content: dict[str, object]) -> MeasuredSet:
    if not points:
        raise MeasurementError(f"{origin}: holds no measurement")

    def whole(name: str, default: float) -> int:
        value = number(content, name, origin, default=default)
        if value < 1 or value != int(value):
            raise MeasurementError(f"{origin}, {name}: must be a whole number, 1 or more, not {value:g}")
        return int(value)

    return MeasuredSet(
        name=origin,
        points=tuple(points),
        source=str(content.get("source", "")),
        licence=str(content.get("licence", "")),
        accelerators=whole("accelerators", 1),
        tensor_parallel_size=whole("tensor_parallel_size", 1),
        max_batched_tokens=whole("max_batched_tokens", max(1, *(int(point.computed_tokens) for point in points), 1)),
        max_sequences=whole("max_sequences", max(1, *(round(point.sequences) for point in points), 1)),
        kv_capacity_tokens=whole("kv_capacity_tokens", 1) if "kv_capacity_tokens" in content else None,
    )
