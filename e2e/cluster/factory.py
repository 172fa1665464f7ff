"""Which provider serves on this machine."""

import os

from e2e.cluster.engine import docker_answers
from e2e.cluster.interface import Cluster, ClusterError

CHOICE = "SWINGPOOL_CLUSTER"
"""Environment variable that forces a provider: `kind` or `local`."""


def cluster() -> Cluster:
    """Return the cluster of this machine: kind where a Docker engine answers, else the local one; up or not.

    Raises ClusterError if the environment names a provider that there is not.
    """
    choice = os.environ.get(CHOICE) or ("kind" if docker_answers() else "local")
    if choice == "kind":
        from e2e.cluster.kind.provider import KindCluster

        return KindCluster()
    if choice == "local":
        from e2e.cluster.local.provider import LocalCluster

        return LocalCluster()
    raise ClusterError(f"{CHOICE}={choice}: choose kind or local")
