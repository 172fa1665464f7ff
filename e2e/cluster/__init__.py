"""A whole Kubernetes for development and end-to-end tests, on one machine, with or without a Docker engine."""

from e2e.cluster.factory import cluster
from e2e.cluster.interface import AuditEvent, Cluster, ClusterError, Progress

__all__ = ["AuditEvent", "Cluster", "ClusterError", "Progress", "cluster"]
