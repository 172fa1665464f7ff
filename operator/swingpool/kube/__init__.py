"""Everything that talks to the Kubernetes API: a thin client of plain dicts, and an informer."""

from swingpool.kube.client import Kube, ObjectList
from swingpool.kube.errors import KubeError
from swingpool.kube.known import Known
from swingpool.kube.objects import Object
from swingpool.kube.watch import Interrupted, Removed, Snapshot, Upserted, WatchEvent, watch

__all__ = [
    "Interrupted",
    "Known",
    "Kube",
    "KubeError",
    "Object",
    "ObjectList",
    "Removed",
    "Snapshot",
    "Upserted",
    "WatchEvent",
    "watch",
]
