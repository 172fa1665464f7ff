"""One session with a cluster: up, used, explained if it failed, and down again, however it ended."""

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType

from e2e.cluster import cluster as provided
from e2e.cluster.interface import Cluster, ClusterError, Progress
from e2e.system.install import System, start


@contextmanager
def session(*, keep: bool, diagnostics: Path, say: Progress) -> Iterator[System]:
    """Yield an installed system, and take its cluster down at the end unless it is to be kept.

    Args:
        keep: leave the cluster running.
        diagnostics: where to write what explains a failure.
        say: told of every step.

    Raises:
        KeyboardInterrupt: the user, or SIGTERM, asked for the end; the cluster is down, unless it is to be kept.
    """
    signal.signal(signal.SIGTERM, _interrupt)
    cluster = provided()
    try:
        yield start(cluster, say)
    except Exception:
        explain(cluster, diagnostics, say)
        raise
    finally:
        if keep:
            say("the cluster stays up: `python -m e2e.cluster kubectl ...` looks, `make cluster-down` takes it down")
        else:
            # Half a teardown would be worse than a short wait.
            signal.signal(signal.SIGINT, signal.SIG_IGN)
            cluster.down(say)


def _interrupt(number: int, frame: FrameType | None) -> None:
    del number, frame
    raise KeyboardInterrupt


def explain(cluster: Cluster, directory: Path, say: Progress) -> None:
    """Write objects, events and logs of a cluster into a directory."""
    try:
        directory.mkdir(parents=True, exist_ok=True)
        cluster.diagnostics(directory)
        say(f"what may explain it lies in {directory}")
    except (ClusterError, OSError) as error:
        say(f"no diagnostics: {error}")
