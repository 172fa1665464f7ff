"""The other pickers of the cluster: how many they are, and which part of the workers is so this one's to mind first.

They say nothing to one another. Each follows the router's pods, and counts those that get requests.
"""

import logging
from collections.abc import Callable, Iterable

from swingpool.kube import Interrupted, Known, Kube, Object, watch
from swingpool.kube.kinds import POD
from swingpool.kube.objects import field, metadata, name_of
from swingpool_control import names
from swingpool_control.placement.parts import Part

log = logging.getLogger(__name__)


class Peers:
    """Follows the router pods of one cluster; while the API server is away, what was known last stays.

    Args:
        kube: the API server.
        namespace: of the cluster.
        cluster: its name.
        own: name of this picker's pod.
    """

    def __init__(self, kube: Kube, *, namespace: str, cluster: str, own: str) -> None:
        self._kube = kube
        self._namespace = namespace
        self._labels = {names.LABEL_CLUSTER: cluster, names.LABEL_COMPONENT: names.COMPONENT_ROUTER}
        self._own = own
        self._pods = Known()

    async def follow(self, tell: Callable[[Part], None]) -> None:
        """Tell one's part at once and after each change; never returns by itself."""
        known = Part()
        async for event in watch(self._kube, POD, namespace=self._namespace, labels=self._labels):
            if isinstance(event, Interrupted):
                continue  # who follows the workers says so
            self._pods.take(event)
            part = part_of(self._pods.objects, own=self._own)
            if part != known:
                log.info("minding part %d of %d of the workers", part.number + 1, part.of)
                known = part
                tell(part)


def part_of(pods: Iterable[Object], *, own: str) -> Part:
    """Return the part of the picker in a pod, among those that get requests and itself.

    Args:
        pods: the router's.
        own: name of its own.
    """
    serving = sorted({name_of(pod) for pod in pods if _serves(pod)} | {own})
    return Part(number=serving.index(own), of=len(serving))


def _serves(pod: Object) -> bool:
    if metadata(pod).get("deletionTimestamp"):
        return False
    conditions = field(pod, "status", "conditions") or ()
    return any(one.get("type") == "Ready" and one.get("status") == "True" for one in conditions)
