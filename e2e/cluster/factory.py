"""The cluster of this machine."""

from e2e.cluster.engine import provider
from e2e.cluster.interface import Cluster


def cluster() -> Cluster:
    """Return the cluster of this machine, up or not: kind where a Docker engine answers, else the local one."""
    if provider() == "kind":
        from e2e.cluster.kind.provider import KindCluster

        return KindCluster()
    from e2e.cluster.local.provider import LocalCluster

    return LocalCluster()
