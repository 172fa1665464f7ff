"""Compile the hot part of this tree's core with mypyc: prints the folder for PYTHONPATH.

    PYTHONPATH=$(.venv/bin/python -m tools.compiled) .venv/bin/python -m benchmarks...

It lies in the tree's own `build`, where nothing finds it unless it is asked for: see `swingpool.compiled.core`.
"""

import sys
from pathlib import Path

from swingpool.compiled import core
from swingpool.compiled.core import NotCompiledError

__all__ = ["NotCompiledError", "build", "folder"]

ROOT = Path(__file__).resolve().parents[1]
SOURCES = ROOT / "controllers" / core.PACKAGE
BUILT = ROOT / "build" / "compiled"


def folder() -> Path:
    """Return where the compiled core lies, or would lie, that belongs to the tree as it is."""
    return core.folder(SOURCES, BUILT)


def build() -> Path:
    """Compile the core unless that has been done, and return the folder.

    Raises:
        NotCompiledError: it cannot be compiled.
    """
    return core.build(SOURCES, BUILT)


def main() -> int:
    try:
        print(build())
    except NotCompiledError as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
