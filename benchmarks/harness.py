"""What every benchmark shares: its arguments, progress, data files, and the one JSON line that it ends with.

The exit code tells whether the benchmark ran; whether its bars hold stands in the JSON.
"""

import argparse
import json
import os
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path

from swingpool.simulate.collecting import seldom_collected

DATA = Path(os.environ.get("SWINGPOOL_DATA") or Path(__file__).resolve().parents[2] / "shared" / "data")


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
    arguments = parser.parse_args(argv)
    run = Run(quick=arguments.quick, seed=arguments.seed)
    run.say(f"{name}: {'the quick run, under a minute' if run.quick else 'the full run takes ' + takes}")
    started = time.monotonic()
    with seldom_collected():
        measure(run)
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
