"""Writes a cluster's /status when it differs from what stands there, and only then."""

from swingpool.kube import Object
from swingpool.kube.objects import name_of, namespace_of, uid_of
from swingpool.manager.memory import ClusterMemory
from swingpool.manager.writes import Writes
from swingpool_control import names
from swingpool_control.api.status import InferenceClusterStatus
from swingpool_control.conditions.view import parse_status


async def write_status(writes: Writes, cluster: Object, status: InferenceClusterStatus, memory: ClusterMemory) -> bool:
    """Write a status if it says something new; tell whether it was written.

    It names the uid, so that a new cluster of the same name never gets the old one's status (422). What the server made
    of the last write is remembered: if it stored something else than it was asked to, asking again would not help.

    Raises:
        KubeError: the write failed; the next round decides anew.
    """
    body = status.model_dump(mode="json", by_alias=True, exclude_none=True)
    live = cluster.get("status")
    if parse_status(cluster) == status and live is not None:
        return False
    if body == memory.written_status and live == memory.stored_status:
        return False
    stored = await writes.apply_status(
        {
            "apiVersion": f"{names.GROUP}/{names.VERSION}",
            "kind": names.KIND,
            "metadata": {"name": name_of(cluster), "namespace": namespace_of(cluster), "uid": uid_of(cluster)},
            "status": body,
        }
    )
    memory.written_status, memory.stored_status = body, stored.get("status")
    return True
