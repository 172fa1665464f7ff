"""What the manager has seen of the API server: objects by kind and name, always the newest version seen.

Three sources write here: watch events, full lists (at start and from time to time, so that nothing missed by a watch
stays wrong for ever), and the answers to the manager's own writes (so that it never acts on what it has just changed).
They arrive in any order; resource versions, which Kubernetes lets clients compare, decide which one is newer.
"""

from collections.abc import Callable, Iterable
from typing import NamedTuple

from swingpool.kube import Object
from swingpool.kube.kinds import Kind
from swingpool.kube.objects import labels_of, metadata, name_of, namespace_of, uid_of
from swingpool_control import names

Name = tuple[str, str]
"""Namespace and name."""

KEEPS_MANAGERS = frozenset({"Deployment"})
"""Kinds whose managed fields are kept: they say who scales a Deployment. Elsewhere they are dropped to save memory."""


class Key(NamedTuple):
    """One InferenceCluster."""

    namespace: str
    name: str


Listener = Callable[[Kind, Object], None]
"""Told of each object that was added, changed or removed."""


class Store:
    """Objects by kind, namespace and name."""

    def __init__(self, listener: Listener) -> None:
        self._listener = listener
        self._objects: dict[Kind, dict[Name, Object]] = {}
        self._by_cluster: dict[tuple[Kind, Key], set[Name]] = {}
        self._deleted: dict[str, int] = {}

    def get(self, kind: Kind, namespace: str, name: str) -> Object | None:
        """Return an object, None if there is none."""
        return self._objects.get(kind, {}).get((namespace, name))

    def of_cluster(self, kind: Kind, key: Key) -> list[Object]:
        """Return the objects of a kind that carry the label of a cluster, by name."""
        found = self._by_cluster.get((kind, key), set())
        return [self._objects[kind][place] for place in sorted(found)]

    def all(self, kind: Kind) -> list[Object]:
        """Return all objects of a kind."""
        return list(self._objects.get(kind, {}).values())

    def upsert(self, kind: Kind, obj: Object) -> None:
        """Take over a version of an object, unless a newer one, or its end, is known."""
        place = (namespace_of(obj), name_of(obj))
        known = self._objects.get(kind, {}).get(place)
        if version_of(obj) <= self._deleted.get(uid_of(obj), -1):
            return
        if known is not None and version_of(known) >= version_of(obj):
            return
        self._put(kind, place, known, _slim(kind, obj))
        self._listener(kind, obj)

    def remove(self, kind: Kind, obj: Object) -> None:
        """Take over that an object is gone, or has lost the label that it is watched by."""
        place = (namespace_of(obj), name_of(obj))
        self._deleted[uid_of(obj)] = version_of(obj)
        known = self._objects.get(kind, {}).get(place)
        if known is not None and uid_of(known) == uid_of(obj) and version_of(known) <= version_of(obj):
            self._drop(kind, place, known)
            self._listener(kind, known)

    def replace(self, kind: Kind, objects: Iterable[Object], *, resource_version: str, namespace: str | None) -> None:
        """Take over a full list: what it lacks is gone, unless it is newer than the list.

        Args:
            kind: what was listed.
            objects: what was found.
            resource_version: the version that the list is of.
            namespace: where was listed; None for everywhere.
        """
        listed = {(namespace_of(obj), name_of(obj)): obj for obj in objects}
        at = int(resource_version)
        for place, known in list(self._objects.get(kind, {}).items()):
            if (namespace is None or place[0] == namespace) and place not in listed and version_of(known) <= at:
                self._drop(kind, place, known)
                self._listener(kind, known)
        for obj in listed.values():
            self.upsert(kind, obj)

    def forget_deletions(self, *, before: int) -> None:
        """Drop the memory of deletions up to a version, when nothing older than it will be told any more."""
        self._deleted = {uid: version for uid, version in self._deleted.items() if version > before}

    def _put(self, kind: Kind, place: Name, known: Object | None, obj: Object) -> None:
        if known is not None and cluster_of(kind, known) != cluster_of(kind, obj):
            self._drop(kind, place, known)
        self._objects.setdefault(kind, {})[place] = obj
        key = cluster_of(kind, obj)
        if key is not None:
            self._by_cluster.setdefault((kind, key), set()).add(place)

    def _drop(self, kind: Kind, place: Name, known: Object) -> None:
        del self._objects[kind][place]
        key = cluster_of(kind, known)
        if key is not None:
            members = self._by_cluster.get((kind, key), set())
            members.discard(place)
            if not members:
                self._by_cluster.pop((kind, key), None)


def cluster_of(kind: Kind, obj: Object) -> Key | None:
    """Return the InferenceCluster that an object is or belongs to; None if it names none."""
    if kind.kind == names.KIND:
        return Key(namespace_of(obj), name_of(obj))
    cluster = labels_of(obj).get(names.LABEL_CLUSTER)
    return Key(namespace_of(obj), cluster) if cluster else None


def version_of(obj: Object) -> int:
    """Return the object's resource version as a number; -1 if it has none."""
    return int(metadata(obj).get("resourceVersion") or -1)


def _slim(kind: Kind, obj: Object) -> Object:
    if kind.kind in KEEPS_MANAGERS or "managedFields" not in metadata(obj):
        return obj
    return {**obj, "metadata": {key: value for key, value in metadata(obj).items() if key != "managedFields"}}
