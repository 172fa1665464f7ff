"""Which worker is measured: a URL, or a pod by name, whose start-up its own times tell."""

from dataclasses import dataclass
from datetime import datetime
from typing import Any

from swingpool.kube import Kube, KubeError
from swingpool.kube.kinds import POD
from swingpool.kube.objects import Object, field, metadata
from swingpool.profiling.wire import WorkerError
from swingpool_control import names

POD_PREFIX = "pod/"


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """A worker to measure."""

    url: str
    startup_s: float | None = None
    """From its pod's creation to its first Ready; None of a URL, or if it has restarted since."""


async def find(named: str, *, namespace: str) -> Target:
    """Return the worker that `named` stands for.

    Args:
        named: a URL, or `pod/NAME`.
        namespace: the pod's.

    Raises:
        WorkerError: there is no such pod, or it has no address yet.
    """
    if not named.startswith(POD_PREFIX):
        return Target(url=named)
    name = named.removeprefix(POD_PREFIX)
    try:
        async with Kube.load() as kube:
            return of_pod(await kube.get(POD, name, namespace=namespace))
    except KubeError as error:
        raise WorkerError(f"pod {namespace}/{name}: {error}") from error


def of_pod(pod: Object) -> Target:
    """Return a pod as a target.

    Raises:
        WorkerError: it has no address.
    """
    address = field(pod, "status", "podIP")
    if not address:
        raise WorkerError(f"pod {metadata(pod).get('name')} has no address yet")
    host = f"[{address}]" if ":" in address else address
    return Target(url=f"http://{host}:{names.PORT_WORKER}", startup_s=_startup_s(pod))


def _startup_s(pod: Object) -> float | None:
    conditions: list[dict[str, Any]] = field(pod, "status", "conditions") or []
    ready = next((one for one in conditions if one.get("type") == "Ready" and one.get("status") == "True"), None)
    containers: list[dict[str, Any]] = field(pod, "status", "containerStatuses") or []
    if ready is None or any(one.get("restartCount") for one in containers):
        return None
    created, since = metadata(pod).get("creationTimestamp"), ready.get("lastTransitionTime")
    if not created or not since:
        return None
    return (datetime.fromisoformat(str(since)) - datetime.fromisoformat(str(created))).total_seconds()
