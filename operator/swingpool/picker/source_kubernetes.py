"""Workers from the API server: the pods of one InferenceCluster, followed by an informer."""

import logging
from typing import Any

from swingpool.kube import Interrupted, Known, Kube, Object, watch
from swingpool.kube.kinds import POD
from swingpool.kube.objects import annotations_of, field, labels_of, metadata, uid_of
from swingpool.picker.members import Member, Publish
from swingpool_control import names

log = logging.getLogger(__name__)


class KubernetesSource:
    """Follows the worker pods of one cluster; while the API server is away, what was known last stays."""

    def __init__(self, kube: Kube, *, namespace: str, cluster: str) -> None:
        self._kube = kube
        self._namespace = namespace
        self._labels = {names.LABEL_CLUSTER: cluster, names.LABEL_COMPONENT: names.COMPONENT_WORKER}
        self._pods = Known()

    async def follow(self, publish: Publish) -> None:
        """Publish the pods that have an address, at once and after each change."""
        async for event in watch(self._kube, POD, namespace=self._namespace, labels=self._labels):
            if isinstance(event, Interrupted):
                log.warning("the API server is away; going on with the workers known last: %s", event.error)
                continue
            self._pods.take(event)
            publish([member for member in map(member_of, self._pods.objects) if member is not None])


def member_of(pod: Object) -> Member | None:
    """Return a pod as a member; None if it has no address yet or has ended."""
    address = field(pod, "status", "podIP")
    if not address or field(pod, "status", "phase") in ("Succeeded", "Failed"):
        return None
    host = f"[{address}]" if ":" in address else address
    publishes = names.LABEL_KV_EVENTS in labels_of(pod)
    conditions: list[dict[str, Any]] = field(pod, "status", "conditions") or []
    return Member(
        pod=str(metadata(pod).get("name", "")),
        uid=uid_of(pod),
        address=f"{host}:{names.PORT_WORKER}",
        role=labels_of(pod).get(names.LABEL_ROLE, ""),
        pool=labels_of(pod).get(names.LABEL_POOL, ""),
        ready=any(one.get("type") == "Ready" and one.get("status") == "True" for one in conditions),
        deleting=metadata(pod).get("deletionTimestamp") is not None,
        generation=labels_of(pod).get(names.LABEL_GENERATION, ""),
        tls=names.LABEL_TLS in labels_of(pod),
        kv_events=f"{host}:{names.PORT_KV_EVENTS}" if publishes else "",
        kv_replay=f"{host}:{names.PORT_KV_REPLAY}" if publishes else "",
        asleep=annotations_of(pod).get(names.ANNOTATION_ASLEEP, ""),
    )
