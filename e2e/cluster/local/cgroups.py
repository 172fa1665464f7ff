"""Control groups: every process of the cluster lives below one, so that none can be lost, whoever its parent is.

Works on version 1 and hybrid machines (a hierarchy for each controller) and is written for version 2 (one for all).
"""

import contextlib
import os
import signal
import time
from collections.abc import Sequence
from pathlib import Path

from e2e.cluster.interface import ClusterError

ROOT = "swingpool"
DAEMONS = f"{ROOT}/daemons"
_COPIED_DOWN = ("cpuset.cpus", "cpuset.mems")
_V2_CONTROLLERS = ("cpu", "cpuset", "memory", "pids", "io")


def mounted(mounts: str) -> tuple[list[Path], bool]:
    """Return the hierarchies that a /proc/mounts names, and whether they are of version 2."""
    rows = [line.split() for line in mounts.splitlines()]
    first = [Path(row[1]) for row in rows if row[2] == "cgroup"]
    if first:
        return first, False
    return [Path(row[1]) for row in rows if row[2] == "cgroup2"], True


def node_group(node: str) -> str:
    """Return the group below which a node's pods live."""
    return f"{ROOT}/{node}"


def create(nodes: Sequence[str]) -> None:
    """Create the groups of the daemons and of each node in every hierarchy. Raises ClusterError if it is refused."""
    hierarchies, unified = _hierarchies()
    for hierarchy in hierarchies:
        for group in (ROOT, DAEMONS, *map(node_group, nodes)):
            directory = hierarchy / group
            try:
                directory.mkdir(exist_ok=True)
                if not unified:
                    _copy_down(directory)
                elif group != DAEMONS:
                    _delegate(directory.parent)
            except OSError as error:
                raise ClusterError(f"control group {directory}: {error}") from None


def entering() -> tuple[str, ...]:
    """Return a prefix that moves a process into the daemons' group before it becomes the command."""
    procs = _tracked() / DAEMONS / "cgroup.procs"
    return ("/bin/sh", "-c", f'echo $$ >{procs} && exec "$@"', "sh")


def members() -> set[int]:
    """Return the ids of all processes below the root group."""
    found: set[int] = set()
    for file in (_tracked() / ROOT).rglob("cgroup.procs"):
        with contextlib.suppress(OSError):
            found.update(map(int, file.read_text().split()))
    return found


def kill_all(*, timeout_s: float = 20.0) -> None:
    """End every process below the root group. Raises ClusterError if one survives."""
    deadline = time.monotonic() + timeout_s
    while pids := members():
        if time.monotonic() > deadline:
            raise ClusterError(f"processes survive SIGKILL: {sorted(pids)}")
        for pid in pids:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        time.sleep(0.05)


def remove() -> None:
    """Remove the groups, which must be empty of processes."""
    for hierarchy in _hierarchies()[0]:
        top = hierarchy / ROOT
        if top.exists():
            for directory in sorted((path for path in top.rglob("*") if path.is_dir()), reverse=True):
                _rmdir(directory)
            _rmdir(top)


def exist() -> bool:
    """Whether any of the groups is there."""
    return any((hierarchy / ROOT).exists() for hierarchy in _hierarchies()[0])


def _hierarchies() -> tuple[list[Path], bool]:
    return mounted(Path("/proc/mounts").read_text())


def _tracked() -> Path:
    """Return the hierarchy in which processes are counted: any will do, as containers enter all of them."""
    hierarchies, _ = _hierarchies()
    if not hierarchies:
        raise ClusterError("no control groups are mounted below /sys/fs/cgroup")
    return next((path for path in hierarchies if path.name == "pids"), hierarchies[0])


def _delegate(directory: Path) -> None:
    """Let a version 2 group's children use the controllers that it has."""
    available = (directory / "cgroup.controllers").read_text().split()
    wanted = " ".join(f"+{name}" for name in _V2_CONTROLLERS if name in available)
    (directory / "cgroup.subtree_control").write_text(wanted)


def _copy_down(directory: Path) -> None:
    """Give a version 1 cpuset its parent's processors and memory nodes, without which no process can enter it."""
    for name in _COPIED_DOWN:
        own, parent = directory / name, directory.parent / name
        if own.exists() and parent.exists() and not own.read_text().strip():
            own.write_text(parent.read_text())


def _rmdir(directory: Path) -> None:
    deadline = time.monotonic() + 5.0
    while True:
        try:
            directory.rmdir()
        except FileNotFoundError:
            return
        except OSError:
            # A group stays busy for a moment after its last process.
            if time.monotonic() > deadline:
                raise
            time.sleep(0.05)
        else:
            return
