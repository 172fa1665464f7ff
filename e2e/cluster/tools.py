"""kubectl and Helm, run as administrator where the cluster can be reached."""

import subprocess
from collections.abc import Sequence
from pathlib import Path

from e2e.cluster.binaries import binaries, kubectl
from e2e.cluster.commands import run
from e2e.cluster.paths import cache


class Kubectl:
    """kubectl against one cluster."""

    def __init__(self, kubeconfig: Path, *, prefix: Sequence[str] = ()) -> None:
        self._kubeconfig = kubeconfig
        self._prefix = tuple(prefix)

    def command(self, *args: str) -> list[str]:
        """Return the command line."""
        return [*self._prefix, str(kubectl()), f"--kubeconfig={self._kubeconfig}", *args]

    def run(self, *args: str, stdin: str | None = None, check: bool = True) -> subprocess.CompletedProcess[str]:
        """Run it. Raises ClusterError with its words if it fails and `check` holds."""
        return run(self.command(*args), stdin=stdin, check=check)

    def run_here(self, *args: str) -> int:
        """Run it on this terminal; return its exit status."""
        return subprocess.run(self.command(*args), check=False).returncode


class Helm:
    """Helm, on a cluster if it is given one; its caches and settings stay out of the user's own."""

    def __init__(self, kubeconfig: Path | None = None, *, prefix: Sequence[str] = ()) -> None:
        self._kubeconfig = kubeconfig
        self._prefix = tuple(prefix)

    def run(self, *args: str, check: bool = True) -> subprocess.CompletedProcess[str]:
        """Run it. Raises ClusterError with its words if it fails and `check` holds."""
        program = binaries("helm", progress=print)["helm"]
        home = cache() / "helm"
        folders = {f"HELM_{kind}_HOME": str(home / kind.lower()) for kind in ("CACHE", "CONFIG", "DATA")}
        cluster = [] if self._kubeconfig is None else [f"--kubeconfig={self._kubeconfig}"]
        command = [*self._prefix, str(program), *cluster, *args]
        return run(command, environment=folders, check=check)


def diagnostics(kubectl: Kubectl, directory: Path) -> None:
    """Write what the API server knows, and what the pods of all namespaces said, into a directory."""
    directory.mkdir(parents=True, exist_ok=True)
    questions = {
        "objects.txt": ("get", "all,inferenceclusters,leases", "-A", "-o", "wide"),
        "events.txt": ("get", "events", "-A", "--sort-by=.lastTimestamp"),
        "nodes.txt": ("describe", "nodes"),
        "pods.txt": ("describe", "pods", "-A"),
        "clusters.yaml": ("get", "inferenceclusters", "-A", "-o", "yaml"),
    }
    for name, question in questions.items():
        answer = kubectl.run(*question, check=False)
        (directory / name).write_text(answer.stdout + answer.stderr)
    template = '{range .items[*]}{.metadata.namespace} {.metadata.name}{"\\n"}{end}'
    for line in kubectl.run("get", "pods", "-A", "-o", f"jsonpath={template}", check=False).stdout.splitlines():
        namespace, pod = line.split()
        for suffix, previous in (("log", ()), ("previous.log", ("--previous",))):
            log = kubectl.run("-n", namespace, "logs", pod, "--all-containers", "--prefix", *previous, check=False)
            if log.returncode == 0:
                (directory / f"{namespace}.{pod}.{suffix}").write_text(log.stdout)
