"""What the demo and the scenarios read of the cluster: pods as small values, the InferenceCluster as plain data."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx2
from lightkube import Client, KubeConfig
from lightkube.core.exceptions import ApiError

from e2e.system.http import get_json
from swingpool.kube import kinds
from swingpool.kube.objects import Object
from swingpool_control import names


@dataclass(frozen=True, slots=True, kw_only=True)
class Pod:
    """One pod, as far as anyone here asks."""

    name: str
    namespace: str
    uid: str
    component: str
    pool: str
    role: str
    ready: bool
    deleting: bool
    address: str
    restarts: int
    images: tuple[str, ...]
    waiting: str
    """Why a container does not run; empty if all do."""

    @property
    def serves(self) -> bool:
        """Whether it is ready and not being deleted."""
        return self.ready and not self.deleting


def pod_of(obj: Object) -> Pod:
    """Read a pod."""
    meta, status = obj["metadata"], obj.get("status") or {}
    labels = meta.get("labels") or {}
    containers = [*(status.get("initContainerStatuses") or ()), *(status.get("containerStatuses") or ())]
    waits = [(item.get("state") or {}).get("waiting") or {} for item in containers]
    return Pod(
        name=meta["name"],
        namespace=meta["namespace"],
        uid=meta["uid"],
        component=labels.get(names.LABEL_COMPONENT, ""),
        pool=labels.get(names.LABEL_POOL, ""),
        role=labels.get(names.LABEL_ROLE, ""),
        ready=any(item["type"] == "Ready" and item["status"] == "True" for item in status.get("conditions") or ()),
        deleting="deletionTimestamp" in meta,
        address=status.get("podIP") or "",
        restarts=sum(item.get("restartCount", 0) for item in containers),
        images=tuple(item.get("image", "") for item in obj["spec"]["containers"]),
        waiting=next((wait["reason"] for wait in waits if wait.get("reason")), ""),
    )


class Kubernetes:
    """The API server and the routers' state, read synchronously; every call is bounded by `timeout_s`."""

    def __init__(self, kubeconfig: Path, *, timeout_s: float = 5.0) -> None:
        config = KubeConfig.from_file(kubeconfig)
        self._client = Client(config=config, timeout=httpx2.Timeout(timeout_s), trust_env=False)

    def objects(self, kind: kinds.Kind, *, namespace: str, labels: dict[str, str] | None = None) -> list[Object]:
        """Return the objects of a kind; namespace `*` means everywhere."""
        return list(self._client.list(kind.resource, namespace=namespace, labels=dict(labels) if labels else None))

    def get(self, kind: kinds.Kind, *, namespace: str, name: str) -> Object | None:
        """Return one object, or None if it does not exist."""
        try:
            return self._client.get(kind.resource, name, namespace=namespace)
        except ApiError as error:
            if error.status.code == 404:
                return None
            raise

    def pods(self, *, namespace: str, labels: dict[str, str] | None = None) -> list[Pod]:
        """Return pods by name; namespace `*` means everywhere."""
        found = [pod_of(obj) for obj in self.objects(kinds.POD, namespace=namespace, labels=labels)]
        return sorted(found, key=lambda pod: (pod.namespace, pod.name))

    def workers(self, *, namespace: str, cluster: str, pool: str | None = None, role: str | None = None) -> list[Pod]:
        """Return a cluster's worker pods that are not being deleted, of one pool or role if asked."""
        labels = {names.LABEL_CLUSTER: cluster, names.LABEL_COMPONENT: names.COMPONENT_WORKER}
        if pool is not None:
            labels[names.LABEL_POOL] = pool
        if role is not None:
            labels[names.LABEL_ROLE] = role
        return [pod for pod in self.pods(namespace=namespace, labels=labels) if not pod.deleting]

    def inference_cluster(self, *, namespace: str, name: str) -> Object:
        """Return an InferenceCluster; empty if it does not exist."""
        return self.get(kinds.INFERENCE_CLUSTER, namespace=namespace, name=name) or {}

    def condition(self, kind: str, *, namespace: str, name: str) -> dict[str, Any]:
        """Return an InferenceCluster's condition if it is of the newest generation; else empty."""
        found = self.inference_cluster(namespace=namespace, name=name)
        for item in (found.get("status") or {}).get("conditions") or ():
            if item["type"] == kind and item.get("observedGeneration") == found["metadata"]["generation"]:
                return dict(item)
        return {}

    def router_state(self, *, namespace: str, cluster: str) -> Object:
        """Return what the first router pod that serves tells of its workers; empty if none does."""
        labels = {names.LABEL_CLUSTER: cluster, names.LABEL_COMPONENT: names.COMPONENT_ROUTER}
        for pod in self.pods(namespace=namespace, labels=labels):
            if pod.serves:
                state: Object = get_json(f"http://{pod.address}:{names.PORT_PICKER_HTTP}/state")
                return state
        return {}
