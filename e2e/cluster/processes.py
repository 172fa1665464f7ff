"""Daemons that outlive the command that started them, and can be ended by the next one even after a crash.

Each is recorded as its process id and start time, so that an id that the system has given to another process since is
never signalled.
"""

import json
import os
import signal
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from e2e.cluster.interface import ClusterError

_POLL_S = 0.05
_TAIL_LINES = 15


def start_time(pid: int) -> str | None:
    """Return a process's start time in clock ticks since boot, or None if it is gone or a zombie."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return None
    fields = stat.rpartition(")")[2].split()
    return None if fields[0] in "ZX" else fields[19]


def wait_until(what: str, condition: Callable[[], bool], *, limit_s: float) -> None:
    """Wait for a condition. Raises ClusterError, naming `what`, once `limit_s` seconds have passed."""
    deadline = time.monotonic() + limit_s
    while not condition():
        if time.monotonic() > deadline:
            raise ClusterError(f"{what}: not within {limit_s:.0f} s")
        time.sleep(_POLL_S)


class Processes:
    """The daemons of one run directory: `NAME.pid` records each, `NAME.log` holds what it said."""

    def __init__(self, directory: Path, *, prefix: Sequence[str] = ()) -> None:
        self._directory = directory
        self._prefix = tuple(prefix)

    def start(self, name: str, argv: Sequence[str | Path]) -> int:
        """Start a daemon in a session of its own, its output appended to its log; return its process id."""
        command = [*self._prefix, *map(str, argv)]
        log = os.open(self._log(name), os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        null = os.open(os.devnull, os.O_RDONLY)
        actions = [(os.POSIX_SPAWN_DUP2, null, 0), (os.POSIX_SPAWN_DUP2, log, 1), (os.POSIX_SPAWN_DUP2, log, 2)]
        try:
            pid = os.posix_spawnp(command[0], command, os.environ, file_actions=actions, setsid=True)
        finally:
            os.close(log)
            os.close(null)
        self._record(name).write_text(json.dumps({"pid": pid, "started": start_time(pid), "argv": command}))
        return pid

    def names(self) -> list[str]:
        """Return the names of all daemons on record, the oldest first."""
        records = sorted(self._directory.glob("*.pid"), key=lambda path: path.stat().st_mtime_ns)
        return [path.stem for path in records]

    def all_run(self) -> bool:
        """Whether every daemon on record runs."""
        return all(self.pid(name) is not None for name in self.names())

    def pid(self, name: str) -> int | None:
        """Return a daemon's process id, or None if it does not run."""
        try:
            record = json.loads(self._record(name).read_text())
        except (OSError, ValueError):
            return None
        pid = int(record["pid"])
        _reap(pid)
        return pid if record["started"] is not None and start_time(pid) == record["started"] else None

    def wait_ready(self, name: str, ready: Callable[[], bool], *, limit_s: float) -> None:
        """Wait until a daemon is ready. Raises ClusterError with the end of its log if it dies or takes too long."""

        def settled() -> bool:
            return self.pid(name) is None or ready()

        try:
            wait_until(f"{name} ready", settled, limit_s=limit_s)
        except ClusterError as error:
            raise ClusterError(f"{error}\n{self.tail(name)}") from None
        if self.pid(name) is None:
            raise ClusterError(f"{name} ended by itself:\n{self.tail(name)}")

    def stop(self, name: str, *, patience_s: float = 10.0) -> None:
        """End a daemon: SIGTERM, and SIGKILL once `patience_s` seconds have passed; forget it when it is gone."""
        for number, wait_s in ((signal.SIGTERM, patience_s), (signal.SIGKILL, 10.0)):
            pid = self.pid(name)
            if pid is None:
                break
            os.kill(pid, number)
            deadline = time.monotonic() + wait_s
            while self.pid(name) is not None and time.monotonic() < deadline:
                time.sleep(_POLL_S)
        else:
            if self.pid(name) is not None:
                raise ClusterError(f"{name} (process {self.pid(name)}) survives SIGKILL")
        self._record(name).unlink(missing_ok=True)

    def tail(self, name: str) -> str:
        """Return the last lines of a daemon's log."""
        try:
            lines = self._log(name).read_text(errors="replace").splitlines()
        except OSError:
            lines = []
        return "\n".join([f"the end of {self._log(name)}:", *lines[-_TAIL_LINES:]])

    def _record(self, name: str) -> Path:
        return self._directory / f"{name}.pid"

    def _log(self, name: str) -> Path:
        return self._directory / f"{name}.log"


def _reap(pid: int) -> None:
    """Collect a child that has ended; a process that is not our child is its parent's business."""
    try:
        os.waitpid(pid, os.WNOHANG)
    except ChildProcessError:
        return
