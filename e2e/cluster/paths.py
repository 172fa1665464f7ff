"""Where downloads, builds and running clusters live, outside the source tree, and the locks that guard them."""

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from e2e.cluster.interface import Progress

ROOT = Path(__file__).resolve().parents[2]
"""The source tree."""


def cache() -> Path:
    """Return the cache directory: `$SWINGPOOL_CACHE`, or `~/.cache/swingpool`."""
    path = Path(os.environ.get("SWINGPOOL_CACHE") or "~/.cache/swingpool").expanduser()
    path.mkdir(parents=True, exist_ok=True)
    return path.resolve()


def silent(line: str) -> None:
    """Take a line of progress and drop it."""
    del line


@contextmanager
def lock(name: str, progress: Progress = silent, *, directory: Path | None = None) -> Iterator[None]:
    """Hold a lock, by default one of the cache; it ends with the process that holds it, however that ends."""
    path = (directory or cache() / "locks") / f"{name}.lock"
    path.parent.mkdir(exist_ok=True)
    with path.open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            progress(f"waiting for another process that holds {path}")
            fcntl.flock(file, fcntl.LOCK_EX)
        yield
