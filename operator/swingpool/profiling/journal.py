"""What was measured so far, a line a point, so that a run that was stopped goes on where it was."""

import json
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from swingpool.profiling.plan import Kind, Point

FORMAT = "swingpool-profiling-journal/v1"


class JournalError(ValueError):
    """A journal that does not belong to this run, or cannot be read; the message says what to do."""


class Journal:
    """A file of samples by point.

    Args:
        path: the file; made if it is missing.
        about: what must be alike for samples to belong together: the model, version and settings of the worker.

    Raises:
        JournalError: the file holds another worker's samples, or is no journal.
    """

    def __init__(self, path: Path, about: Mapping[str, Any]) -> None:
        self._path = path
        self.samples: dict[Point, tuple[float, ...]] = {}
        self.gaps_s: dict[Point, tuple[float, ...]] = {}
        """Times between tokens, where they were measured: of every visit as many as tell how they spread."""
        head = {"format": FORMAT, "about": dict(about)}
        if path.exists() and path.stat().st_size:
            self._read(head)
        else:
            self._append(head)

    def __contains__(self, point: Point) -> bool:
        return point in self.samples

    def add(self, point: Point, samples: tuple[float, ...], *, gaps_s: tuple[float, ...] = ()) -> None:
        """Keep all samples of a point, instead of those that there were, and more times between tokens.

        They are on the disk when this returns.
        """
        self.samples[point] = samples
        line: dict[str, Any] = {"point": asdict(point), "seconds": [round(sample, 7) for sample in samples]}
        if gaps_s:
            self.gaps_s[point] = self.gaps_s.get(point, ()) + gaps_s
            line["gaps_s"] = [round(gap_s, 7) for gap_s in gaps_s]
        self._append(line)

    def _append(self, line: Mapping[str, Any]) -> None:
        with self._path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(line) + "\n")

    def _read(self, head: Mapping[str, Any]) -> None:
        try:
            first, *rest = [json.loads(line) for line in self._path.read_text(encoding="utf-8").splitlines()]
            found = [(Point(**line["point"] | {"kind": Kind(line["point"]["kind"])}), line) for line in rest]
            points = {point: tuple(line["seconds"]) for point, line in found}
            gaps_s: dict[Point, tuple[float, ...]] = {}
            for point, line in found:
                if "gaps_s" in line:
                    gaps_s[point] = gaps_s.get(point, ()) + tuple(line["gaps_s"])
        except (ValueError, KeyError, TypeError) as error:
            raise JournalError(f"{self._path} is no journal of a profiling run: {error}; remove it") from error
        if first != head:
            raise JournalError(
                f"{self._path} holds samples of another worker, version or setting: remove it, or name another with "
                f"--journal. It was: {json.dumps(first.get('about'))}"
            )
        self.samples, self.gaps_s = points, gaps_s
