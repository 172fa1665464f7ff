"""Names, labels and owner of a child, alike for every kind."""

from dataclasses import dataclass
from typing import Any

from swingpool_control import names

Manifest = dict[str, Any]
"""A Kubernetes object as plain data."""

_BASE_LABELS = {"app.kubernetes.io/name": "swingpool", names.LABEL_MANAGED_BY: names.MANAGED_BY}


@dataclass(frozen=True, slots=True, kw_only=True)
class Owner:
    """The InferenceCluster that children belong to."""

    namespace: str
    name: str
    uid: str

    def labels(self, *, component: str) -> dict[str, str]:
        """Return the labels of a child; none holds user text that is no valid label value."""
        return _BASE_LABELS | self.selector(component=component)

    def selector(self, *, component: str) -> dict[str, str]:
        """Return the labels that single out this cluster's pods of a component; they never change in a pod's life."""
        return {names.LABEL_COMPONENT: component, names.LABEL_CLUSTER: self.name}

    def child(self, *, api_version: str, kind: str, name: str, labels: dict[str, str]) -> Manifest:
        """Return the head of a child: type and metadata. Garbage collection removes it with its owner."""
        return {
            "apiVersion": api_version,
            "kind": kind,
            "metadata": {
                "name": name,
                "namespace": self.namespace,
                "labels": labels,
                "ownerReferences": [
                    {
                        "apiVersion": f"{names.GROUP}/{names.VERSION}",
                        "kind": names.KIND,
                        "name": self.name,
                        "uid": self.uid,
                        "controller": True,
                        "blockOwnerDeletion": True,
                    }
                ],
            },
        }


def disruption_budget(owner: Owner, *, name: str, labels: dict[str, str], selector: dict[str, str]) -> Manifest:
    """Return a budget that lets node drains take one pod at a time, and broken pods at any time."""
    return owner.child(api_version="policy/v1", kind="PodDisruptionBudget", name=name, labels=labels) | {
        "spec": {
            "maxUnavailable": 1,
            "unhealthyPodEvictionPolicy": "AlwaysAllow",
            "selector": {"matchLabels": selector},
        }
    }


def spread_over_nodes(selector: dict[str, str]) -> Manifest:
    """Return the wish that a node's end takes few pods along.

    It does not speak of zones: every request moves its KV cache from one worker to another, and zones are far.
    """
    return {
        "topologyKey": "kubernetes.io/hostname",
        "maxSkew": 1,
        "whenUnsatisfiable": "ScheduleAnyway",
        "labelSelector": {"matchLabels": selector},
        "matchLabelKeys": ["pod-template-hash"],
    }
