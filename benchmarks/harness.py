"""What every benchmark shares: its arguments, progress, data files, and the one JSON line that it ends with.

The exit code tells whether the benchmark ran; whether its bars hold stands in the JSON. A long one may be made in
parts: with `--minutes` it stops in between, and the same command goes on, as long as the core is the same.
"""

import argparse
import hashlib
import json
import os
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import swingpool_control
from swingpool.simulate.collecting import seldom_collected

ROOT = Path(__file__).resolve().parents[1]
DATA = Path(os.environ.get("SWINGPOOL_DATA") or ROOT.parent / "shared" / "data")
PARTS = ROOT / "build" / "benchmarks"
"""Where parts of long runs are remembered."""


class UnfinishedError(Exception):
    """The time that this call was given is over, and parts are left."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Bar:
    """A figure that must not go past a limit."""

    name: str
    value: float
    limit: float
    holds: bool


@dataclass(slots=True, kw_only=True)
class Run:
    """One run of a benchmark: what was asked for, and what came out so far."""

    quick: bool
    seed: int
    figures: dict[str, object] = field(default_factory=dict)
    bars: list[Bar] = field(default_factory=list)
    skipped: list[str] = field(default_factory=list)
    remembered: "Remembered | None" = None
    """Parts that were made before; None: nothing is remembered."""

    def part(self, name: str, make: Callable[[], dict[str, Any]]) -> dict[str, Any]:
        """Return what a part of the run found, as plain JSON: as remembered from an earlier call, or made now.

        Raises:
            UnfinishedError: it would have to be made now, and the time for this call is over.
        """
        if self.remembered is None:
            return make()
        return self.remembered.part(name, make)

    def say(self, text: str) -> None:
        """Show progress or a result to whoever watches."""
        print(text, flush=True)

    def at_most(self, name: str, value: float, limit: float) -> None:
        """Set a bar that holds if the value is not above the limit."""
        self.bars.append(Bar(name=name, value=value, limit=limit, holds=value <= limit))

    def at_least(self, name: str, value: float, limit: float) -> None:
        """Set a bar that holds if the value is not below the limit."""
        self.bars.append(Bar(name=name, value=value, limit=limit, holds=value >= limit))

    def data(self, *names: str) -> dict[str, bytes] | None:
        """Return data files by name, or None, said plainly, if one is not at hand.

        Args:
            names: paths below the folder of data, `$SWINGPOOL_DATA`.
        """
        missing = [name for name in names if not (DATA / name).is_file()]
        if missing:
            self.skipped.append(f"needs {', '.join(missing)} below {DATA}; set SWINGPOOL_DATA to where the data lies")
            self.say(f"skipped: {self.skipped[-1]}")
            return None
        return {name: (DATA / name).read_bytes() for name in names}


class Remembered:
    """Parts of one benchmark's runs, in a file that belongs to one state of the sources.

    Args:
        path: the file; made when the first part is done.
        minutes: after which no further part is begun; None: never.
    """

    def __init__(self, path: Path, minutes: float | None) -> None:
        self._path = path
        self._until = None if minutes is None else time.monotonic() + 60.0 * minutes
        self._parts: dict[str, dict[str, Any]] = json.loads(path.read_text()) if path.is_file() else {}

    def part(self, name: str, make: Callable[[], dict[str, Any]]) -> dict[str, Any]:
        """Return a part; see `Run.part`."""
        if name not in self._parts:
            if self._until is not None and time.monotonic() >= self._until:
                raise UnfinishedError(f"{len(self._parts)} parts are done and remembered")
            # By way of JSON, so that a part looks the same whenever it was made.
            self._parts[name] = json.loads(json.dumps(make()))
            self._path.parent.mkdir(parents=True, exist_ok=True)
            self._path.write_text(json.dumps(self._parts))
        return self._parts[name]


def _remembered(name: str, measure: Callable[[Run], None], seed: int, minutes: float | None) -> Remembered:
    """Return the parts of a full run that were made by the present sources of the core and of the benchmark."""
    digest = hashlib.sha256()
    core = Path(str(swingpool_control.__file__)).parent
    for source in (*sorted(core.rglob("*.py")), Path(str(sys.modules[measure.__module__].__file__))):
        digest.update(source.read_bytes())
    return Remembered(PARTS / f"{name}-{seed}-{digest.hexdigest()[:12]}.json", minutes)


def main(name: str, measure: Callable[[Run], None], *, takes: str, argv: list[str] | None = None) -> int:
    """Run a benchmark and print its result; return the exit code: 0 if anything was measured.

    Args:
        name: the benchmark's name.
        measure: fills in figures and bars.
        takes: how long the full run takes, in words.
        argv: the arguments, if not the process's.
    """
    parser = argparse.ArgumentParser(
        prog=f"python -m benchmarks.{name}", description=sys.modules[measure.__module__].__doc__
    )
    parser.add_argument("--quick", action="store_true", help="a shorter run, under a minute")
    parser.add_argument("--seed", type=int, default=0, help="seed of everything random (default: 0)")
    parser.add_argument("--minutes", type=float, help="stop after so long; the same command goes on (default: never)")
    arguments = parser.parse_args(argv)
    run = Run(quick=arguments.quick, seed=arguments.seed)
    if not run.quick:
        run.remembered = _remembered(name, measure, run.seed, arguments.minutes)
    run.say(f"{name}: {'the quick run, under a minute' if run.quick else 'the full run takes ' + takes}")
    started = time.monotonic()
    try:
        with seldom_collected():
            measure(run)
    except UnfinishedError as error:
        run.say(f"{name}: {error}; the same command goes on")
        return 1
    run.figures["duration_s"] = round(time.monotonic() - started, 1)
    for bar in run.bars:
        run.say(f"{'holds' if bar.holds else 'FAILS'}  {bar.name}: {bar.value:.4g} (limit {bar.limit:.4g})")
    result = {
        "benchmark": name,
        "figures": run.figures,
        "bars": [asdict(bar) for bar in run.bars],
        "skipped": run.skipped,
        "holds": bool(run.bars) and all(bar.holds for bar in run.bars),
    }
    print(json.dumps(result), flush=True)
    return 0 if run.bars else 1
