"""kubectl against a control plane, as its administrator or as somebody else."""

import subprocess

from e2e.cluster.binaries import kubectl as program
from e2e.cluster.controlplane import ControlPlane
from e2e.cluster.interface import ClusterError


def kubectl(plane: ControlPlane, *arguments: str, stdin: str | None = None) -> str:
    """Run kubectl and return what it printed. Raises ClusterError with its words if it fails."""
    command = [str(program()), f"--kubeconfig={plane.kubeconfig}", *arguments]
    done = subprocess.run(command, input=stdin, capture_output=True, text=True, check=False, timeout=60)
    if done.returncode != 0:
        raise ClusterError(f"kubectl {' '.join(arguments)}: {done.stderr}")
    return done.stdout
