"""What a cluster could leave on a machine, listed before and after, so that a difference is a leak."""

import subprocess
from pathlib import Path

from e2e.cluster.local import cgroups, config

_FOLDERS = ("/run", "/run/netns", "/var/lib", "/var/log", "/opt", "/etc/cni", "/usr/libexec")


def snapshot() -> dict[str, set[str]]:
    """Return what is on the machine now, by kind of thing."""
    found = {
        "mount": set(_column("/proc/self/mounts", 1)),
        "device": {path.name for path in Path("/sys/class/net").iterdir()},
        "control group": {str(path) for path in _control_groups()},
        "kernel setting": {f"{name}={_read(Path('/proc/sys') / name)}" for name in _settings()},
        "packet filter": set(
            subprocess.run(["iptables-save"], capture_output=True, text=True, check=False).stdout.split("\n")
        ),
        "process": {f"{path.name} {_command(path)}" for path in Path("/proc").glob("[0-9]*") if _ours(path)},
    }
    for folder in map(Path, _FOLDERS):
        found[f"entry of {folder}"] = {path.name for path in folder.iterdir()} if folder.exists() else set()
    return found


def leaks(before: dict[str, set[str]], after: dict[str, set[str]]) -> list[str]:
    """Return what is there after and was not before, one line each."""
    return [f"{kind}: {item}" for kind, items in after.items() for item in sorted(items - before.get(kind, set()))]


def _settings() -> list[str]:
    return [*config.KERNEL_TUNABLES, "net/ipv4/ip_forward", "net/netfilter/nf_conntrack_max"]


def _control_groups() -> list[Path]:
    hierarchies, _ = cgroups.mounted(Path("/proc/mounts").read_text())
    return [hierarchy / cgroups.ROOT for hierarchy in hierarchies if (hierarchy / cgroups.ROOT).exists()]


def _ours(process: Path) -> bool:
    """Whether a process is a part of a cluster, by its program's name."""
    program = _command(process).partition(" ")[0].rpartition("/")[2]
    return program in {"containerd", "containerd-shim-runc-v2", "kubelet", "kube-proxy", "kube-scheduler", "coredns"}


def _command(process: Path) -> str:
    return _read(process / "cmdline").replace("\0", " ").strip()


def _column(file: str, number: int) -> list[str]:
    return [line.split()[number] for line in Path(file).read_text().splitlines()]


def _read(path: Path) -> str:
    try:
        return path.read_text().strip()
    except OSError:
        return ""
