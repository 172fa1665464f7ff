"""Compile a hot part of this tree with mypyc, and print the folder that it lies in.

    PYTHONPATH=$(.venv/bin/python -m tools.compiled) .venv/bin/python -m benchmarks...
    .venv/bin/python -m tools.compiled picker

Simulations take theirs by PYTHONPATH. The picker's lies in the tree's own `build`, where the tests of the router and
their benchmark have pickers look: see `swingpool.compiled.core`.
"""

import os
import sys
from pathlib import Path

from swingpool.compiled import core
from swingpool.compiled.core import SIMULATION, NotCompiledError, Part

__all__ = ["NotCompiledError", "build", "environment", "folder"]

ROOT = Path(__file__).resolve().parents[1]
SOURCES = ROOT / "controllers" / core.PACKAGE
BUILT = ROOT / "build" / "compiled"


def folder(part: Part = SIMULATION) -> Path:
    """Return where the compiled part lies, or would lie, that belongs to the tree as it is."""
    return core.folder(SOURCES, BUILT, part)


def build(part: Part = SIMULATION) -> Path:
    """Compile a part unless that has been done, and return the folder.

    Raises:
        NotCompiledError: it cannot be compiled.
    """
    return core.build(SOURCES, BUILT, part)


def environment() -> dict[str, str]:
    """Return the environment in which processes take what was compiled here."""
    return os.environ | {core.CACHE: str(BUILT.parent)}


def main() -> int:
    part = core.PARTS.get(sys.argv[1]) if len(sys.argv) > 1 else SIMULATION
    if part is None:
        print(f"{sys.argv[1]} is no part: there are {', '.join(core.PARTS)}", file=sys.stderr)
        return 2
    try:
        print(build(part))
    except NotCompiledError as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
