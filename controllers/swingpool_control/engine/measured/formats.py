"""The forms in which measurements come, by name."""

from collections.abc import Callable

from swingpool_control.engine.measured import distserve, dynamo, inferno, plain, splitwise
from swingpool_control.engine.measured.point import MeasuredSet, MeasurementError

Reader = Callable[[dict[str, bytes]], tuple[MeasuredSet, ...]]

FORMATS: dict[str, Reader] = {
    "csv": plain.read_csv,
    "json": plain.read_json,
    "dynamo": dynamo.read,
    "distserve": distserve.read,
    "splitwise": splitwise.read,
    "inferno": inferno.read,
}


def read(form: str, files: dict[str, bytes], *, accelerators: int | None = None) -> tuple[MeasuredSet, ...]:
    """Return the sets of measurements in files of one form.

    Args:
        form: a name of `FORMATS`.
        files: contents by the name to call each file in errors.
        accelerators: accelerators of one worker, for the form that tells throughput per accelerator.

    Raises:
        MeasurementError: a file is not in this form.
    """
    if form == "dynamo" and accelerators is not None:
        return dynamo.read(files, accelerators=accelerators)
    return FORMATS[form](files)


def choose(sets: tuple[MeasuredSet, ...], name: str | None) -> MeasuredSet:
    """Return the set of that name, or the only one.

    Raises:
        MeasurementError: there is none of that name; or no name is given and there are several.
    """
    names = ", ".join(found.name for found in sets)
    if name is None:
        if len(sets) == 1:
            return sets[0]
        raise MeasurementError(f"there are {len(sets)} sets of measurements; name one with --set: {names}")
    for found in sets:
        if found.name == name:
            return found
    raise MeasurementError(f"there is no set {name!r}; there are {names}")
