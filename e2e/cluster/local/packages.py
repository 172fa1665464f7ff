"""The Debian packages that the local provider stands on, and their installation on a fresh machine."""

import os
import shutil
from pathlib import Path

from e2e.cluster.commands import run
from e2e.cluster.interface import ClusterError, Progress

_PACKAGES = {
    "containerd": "containerd",
    "runc": "runc",
    "iptables": "iptables",
    "ip": "iproute2",
    "nsenter": "util-linux",
    "sysctl": "procps",
    "openssl": "openssl",
    "buildah": "buildah",
    "mmdebstrap": "mmdebstrap",
}
_CNI_PACKAGE = "containernetworking-plugins"
_CNI_FOLDERS = (Path("/usr/lib/cni"), Path("/opt/cni/bin"))
_CNI_PLUGINS = ("ptp", "host-local", "loopback")


def cni_folder() -> Path | None:
    """Return where the network plugins lie, or None."""
    return next((f for f in _CNI_FOLDERS if all((f / plugin).exists() for plugin in _CNI_PLUGINS)), None)


def missing() -> list[str]:
    """Return the names of the packages that bring what this machine lacks."""
    packages = [package for program, package in _PACKAGES.items() if shutil.which(program) is None]
    return packages if cni_folder() else [*packages, _CNI_PACKAGE]


def ensure(progress: Progress) -> None:
    """Install what is missing. Raises ClusterError where that cannot be done, naming the packages."""
    if os.geteuid() != 0:
        raise ClusterError("the local provider needs root: run it as root, or install a Docker engine and kind")
    packages = missing()
    if not packages:
        return
    if shutil.which("apt-get") is None:
        raise ClusterError(f"install what Debian calls {' '.join(packages)}: this machine has no apt-get to do it with")
    progress(f"installing Debian packages: {' '.join(packages)}")
    _apt("update", "-q")
    _apt("install", "-qy", "--no-install-recommends", *packages)
    if still := missing():
        raise ClusterError(f"installed, and yet missing: {' '.join(still)}")


def _apt(*arguments: str) -> None:
    run(["apt-get", "-o", "DPkg::Lock::Timeout=300", *arguments], environment={"DEBIAN_FRONTEND": "noninteractive"})
