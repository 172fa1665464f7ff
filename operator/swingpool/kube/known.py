"""What a watch has told of so far: the objects that exist, as they were last."""

from collections.abc import Collection

from swingpool.kube.objects import Object, uid_of
from swingpool.kube.watch import Interrupted, Removed, Snapshot, Upserted, WatchEvent


class Known:
    """The objects of one watch; an interruption changes nothing, since what was known last stays."""

    def __init__(self) -> None:
        self._by_uid: dict[str, Object] = {}

    @property
    def objects(self) -> Collection[Object]:
        """All that exist, oldest known first."""
        return self._by_uid.values()

    def take(self, event: WatchEvent) -> None:
        """Take what the watch says."""
        match event:
            case Snapshot(objects=objects):
                self._by_uid = {uid_of(one): one for one in objects}
            case Upserted(object=one):
                self._by_uid[uid_of(one)] = one
            case Removed(object=one):
                self._by_uid.pop(uid_of(one), None)
            case Interrupted():
                pass

    def forget(self) -> None:
        """Take note that there are none: the kind itself is gone."""
        self._by_uid = {}
