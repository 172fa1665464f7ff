"""Programs that are run to their end: one that fails says so in its own words."""

import os
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

from e2e.cluster.interface import ClusterError

_TAIL_LINES = 25


def run(
    command: Sequence[str | Path],
    *,
    stdin: str | None = None,
    environment: Mapping[str, str] | None = None,
    check: bool = True,
) -> subprocess.CompletedProcess[str]:
    """Run a program, its output kept.

    Args:
        command: the program and its arguments.
        stdin: what it reads; None is nothing.
        environment: variables that are set beside ours.
        check: whether failing is an error.

    Raises:
        ClusterError: there is no such program; or it failed and `check` holds: with the end of what it said.
    """
    words = [str(word) for word in command]
    try:
        done = subprocess.run(
            words,
            input=stdin or "",
            capture_output=True,
            text=True,
            check=False,
            env=os.environ | dict(environment or {}),
        )
    except OSError as error:
        raise ClusterError(f"{words[0]}: {error}") from None
    if check and done.returncode != 0:
        tail = "\n".join((done.stdout + done.stderr).splitlines()[-_TAIL_LINES:])
        raise ClusterError(f"{' '.join(words)} failed ({done.returncode}):\n{tail}")
    return done
