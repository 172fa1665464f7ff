"""The manager's own metrics. A cluster's series end with the cluster."""

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from swingpool.manager.store import Key

_ROUND_BUCKETS_S = (0.001, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
_FLIP_BUCKETS_S = (0.25, 0.5, 1.0, 1.5, 2.0, 3.0, 5.0, 10.0, 30.0, 60.0, 300.0)
_CLUSTER = ("namespace", "cluster")


class Metrics:
    """Every series of the manager, in a registry of its own."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        name = "swingpool_manager_"
        self.rounds = Counter(
            f"{name}rounds", "Rounds of work, by result.", (*_CLUSTER, "result"), registry=self.registry
        )
        self.round_seconds = Histogram(
            f"{name}round_seconds", "Duration of a round.", buckets=_ROUND_BUCKETS_S, registry=self.registry
        )
        self.queue_keys = Gauge(f"{name}queue_keys", "Clusters that are looked after.", registry=self.registry)
        self.queue_lateness = Gauge(
            f"{name}queue_lateness_seconds", "Delay of the most delayed round.", registry=self.registry
        )
        self.flips = Counter(
            f"{name}flips", "Flips that ended, by direction and outcome.", (*_CLUSTER, "from", "to", "outcome"),
            registry=self.registry,
        )  # fmt: skip
        self.flip_seconds = Histogram(
            f"{name}flip_seconds",
            "Seconds from the decision to flip a worker to its first request in the new role.",
            _CLUSTER,
            buckets=_FLIP_BUCKETS_S,
            registry=self.registry,
        )
        self.calls = Counter(
            f"{name}api_calls", "Calls to the API server.", ("verb", "kind", "status"), registry=self.registry
        )
        self.decisions = Counter(
            f"{name}actions", "Actions that were carried out, by kind and result.", (*_CLUSTER, "action", "result"),
            registry=self.registry,
        )  # fmt: skip
        self.drift = Counter(
            f"{name}drift_corrections", "Children that were not as asked for.", (*_CLUSTER, "kind"),
            registry=self.registry,
        )  # fmt: skip
        self.faults = Counter(
            f"{name}faults", "Decisions that failed by a fault of the manager's own.", (*_CLUSTER, "loop"),
            registry=self.registry,
        )  # fmt: skip
        self.leading = Gauge(f"{name}leading", "1 while this process holds the lease.", registry=self.registry)
        self.missed = Counter(
            f"{name}watch_missed", "Changes that a full list found and no watch had told.", ("kind",),
            registry=self.registry,
        )  # fmt: skip

    def call(self, verb: str, kind: str, status: int | None) -> None:
        """Count a call to the API server."""
        self.calls.labels(verb, kind, "none" if status is None else str(status)).inc()

    def forget(self, key: Key) -> None:
        """Drop every series of a cluster."""
        for metric in (self.rounds, self.flips, self.flip_seconds, self.decisions, self.drift, self.faults):
            metric.remove_by_labels({"namespace": key.namespace, "cluster": key.name})
