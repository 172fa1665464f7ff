"""From what the API server holds to what decisions read."""

import math
import re
from collections.abc import Mapping, Sequence
from typing import Any

from pydantic import ValidationError

from swingpool_control import names
from swingpool_control.api.status import InferenceClusterStatus
from swingpool_control.api.v1alpha1 import InferenceClusterSpec, RouterType
from swingpool_control.engine.model import PerformanceModel
from swingpool_control.figures import Unknown
from swingpool_control.observation import RouterObservation
from swingpool_control.resources.worker_pool import SURGE
from swingpool_control.timestamps import unix_seconds
from swingpool_control.view import ClusterView, PoolView, WorkerView

Raw = Mapping[str, Any]

STARTING = frozenset({"ContainerCreating", "PodInitializing"})
"""Waiting reasons of a container that is on its way."""

OWN_MANAGERS = frozenset({names.FIELD_MANAGER, names.FIELD_MANAGER_REPLICAS})

MOST_REPLICAS = 20_000
"""Twice what a pool can be given: whoever scales a pool by hand beyond it does not bring decisions to a halt."""

_POD_NAME = re.compile(r'(pods|pod) "[^"]*"')


class InvalidSpecError(ValueError):
    """A spec that this version cannot use although the API server took it; the message names each field."""


def build(
    *,
    cluster: Raw,
    deployments: Sequence[Raw],
    pods: Sequence[Raw],
    router: RouterObservation | Unknown,
    models: Mapping[str, PerformanceModel | Unknown],
    uncertain: frozenset[str] = frozenset(),
) -> ClusterView:
    """Return the view of one InferenceCluster.

    Args:
        cluster: the InferenceCluster.
        deployments: its Deployments, by the cluster label; others of the label's value are ignored.
        pods: its pods, workers and routers, by the cluster label.
        router: what the pickers see, merged, or why that is unknown.
        models: performance model by pool (`sizing.models.of`).
        uncertain: uids of workers whose last change was not answered.

    Raises:
        InvalidSpecError: the spec cannot be used.
    """
    metadata = cluster["metadata"]
    spec = parse_spec(cluster)
    workers = [_worker(pod) for pod in pods if _component(pod) == names.COMPONENT_WORKER and not _is_finished(pod)]
    by_pool = {_label(item, names.LABEL_POOL): item for item in deployments if _label(item, names.LABEL_POOL)}
    return ClusterView(
        namespace=metadata["namespace"],
        name=metadata["name"],
        uid=metadata["uid"],
        generation=int(metadata.get("generation") or 0),
        spec=spec,
        status=parse_status(cluster),
        pools=tuple(_pool(pool.name, by_pool.get(pool.name)) for pool in spec.pools),
        workers=tuple(sorted(workers, key=lambda worker: (worker.pool, worker.created_unix_s, worker.pod))),
        router=router,
        router_ready=spec.router.type is RouterType.EXTERNAL
        or any(_component(pod) == names.COMPONENT_ROUTER and _is_ready(pod) and not _is_deleting(pod) for pod in pods),
        models=models,
        uncertain=uncertain,
    )


def parse_spec(cluster: Raw) -> InferenceClusterSpec:
    """Return the spec of an InferenceCluster.

    Raises:
        InvalidSpecError: a field is missing, unknown or out of range, or two contradict one another.
    """
    try:
        return InferenceClusterSpec.model_validate(cluster.get("spec") or {})
    except ValidationError as error:
        faults = "; ".join(f"{_path(fault['loc'])}: {fault['msg']}" for fault in error.errors())
        raise InvalidSpecError(faults) from error


def parse_status(cluster: Raw) -> InferenceClusterStatus:
    """Return the status of an InferenceCluster; an empty one if there is none that this version can read."""
    try:
        return InferenceClusterStatus.model_validate(cluster.get("status") or {})
    except ValidationError:
        return InferenceClusterStatus()


def _path(location: Sequence[int | str]) -> str:
    parts = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in location)
    return f"spec{parts}"


def _component(item: Raw) -> str:
    return _label(item, names.LABEL_COMPONENT)


def _label(item: Raw, key: str) -> str:
    return str((item.get("metadata", {}).get("labels") or {}).get(key) or "")


def _is_finished(pod: Raw) -> bool:
    """Tell whether a pod has ended for good (evicted, completed): it holds no accelerator and serves nothing."""
    return (pod.get("status") or {}).get("phase") in ("Failed", "Succeeded")


def _is_deleting(pod: Raw) -> bool:
    return bool(pod.get("metadata", {}).get("deletionTimestamp"))


def _condition(item: Raw, kind: str) -> Raw:
    conditions = (item.get("status") or {}).get("conditions") or []
    return next((condition for condition in conditions if condition.get("type") == kind), {})


def _is_ready(pod: Raw) -> bool:
    return bool(_condition(pod, "Ready").get("status") == "True")


def _worker(pod: Raw) -> WorkerView:
    metadata = pod["metadata"]
    annotations = metadata.get("annotations") or {}
    statuses = (pod.get("status") or {}).get("containerStatuses") or []
    return WorkerView(
        pod=metadata["name"],
        uid=metadata["uid"],
        pool=_label(pod, names.LABEL_POOL),
        role=_label(pod, names.LABEL_ROLE),
        ready=_is_ready(pod),
        deleting=_is_deleting(pod),
        unschedulable=_unschedulable(pod),
        waiting=_waiting(pod),
        created_unix_s=_created_unix_s(metadata),
        restarts=sum(int(status.get("restartCount") or 0) for status in statuses),
        revision=_label(pod, "pod-template-hash"),
        flip=str(annotations.get(names.ANNOTATION_FLIP) or ""),
        drain=str(annotations.get(names.ANNOTATION_DRAIN) or ""),
        deletion_cost=_integer(annotations.get(names.ANNOTATION_DELETION_COST)),
        asleep=str(annotations.get(names.ANNOTATION_ASLEEP) or ""),
    )


def _created_unix_s(metadata: Raw) -> float:
    try:
        return unix_seconds(str(metadata.get("creationTimestamp")))
    except ValueError:
        return 0.0


def _unschedulable(pod: Raw) -> str:
    scheduled = _condition(pod, "PodScheduled")
    if scheduled.get("status") != "False" or scheduled.get("reason") != "Unschedulable":
        return ""
    return str(scheduled.get("message") or "no node can take it")


def _waiting(pod: Raw) -> str:
    status = pod.get("status") or {}
    for container in [*(status.get("initContainerStatuses") or []), *(status.get("containerStatuses") or [])]:
        reason = ((container.get("state") or {}).get("waiting") or {}).get("reason")
        if reason and reason not in STARTING:
            return str(reason)
    return ""


def _pool(name: str, deployment: Raw | None) -> PoolView:
    if deployment is None:
        return PoolView(
            pool=name,
            exists=False,
            replicas=0,
            current=0,
            ready=0,
            updated=0,
            observed=False,
            failure="",
            surge=SURGE,
        )
    spec, status = deployment.get("spec") or {}, deployment.get("status") or {}
    replicas = spec.get("replicas")
    replicas = 1 if replicas is None else min(int(replicas), MOST_REPLICAS)
    generation = int(deployment["metadata"].get("generation") or 0)
    return PoolView(
        pool=name,
        exists=True,
        replicas=replicas,
        current=int(status.get("replicas") or 0),
        ready=int(status.get("readyReplicas") or 0),
        updated=int(status.get("updatedReplicas") or 0),
        observed=int(status.get("observedGeneration") or 0) >= generation,
        failure=_failure(deployment),
        surge=_surge(spec, replicas),
        foreign_scaler=_foreign_scaler(deployment),
    )


def _failure(deployment: Raw) -> str:
    """Why pods cannot be made, without the random names of the pods that were tried, so that it reads the same."""
    failure = _condition(deployment, "ReplicaFailure")
    if failure.get("status") != "True":
        return ""
    message = str(failure.get("message") or failure.get("reason") or "pods cannot be made")
    return _POD_NAME.sub(r"\1", message)


def _surge(spec: Raw, replicas: int) -> int:
    strategy = spec.get("strategy") or {}
    if strategy.get("type") == "Recreate":
        return 0
    surge = (strategy.get("rollingUpdate") or {}).get("maxSurge", "25%")
    if isinstance(surge, str) and surge.endswith("%"):
        return math.ceil(replicas * _integer(surge[:-1]) / 100)
    return _integer(surge)


def _foreign_scaler(deployment: Raw) -> str:
    """Who set the number last, if it was not us: whoever changes it takes it from us, and may share it after us."""
    owners = [
        str(entry.get("manager") or "unknown")
        for entry in deployment["metadata"].get("managedFields") or []
        if "f:replicas" in ((entry.get("fieldsV1") or {}).get("f:spec") or {})
    ]
    return "" if not owners or OWN_MANAGERS & set(owners) else owners[0]


def _integer(value: object) -> int:
    try:
        return int(str(value))
    except ValueError:
        return 0
