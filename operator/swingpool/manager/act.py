"""Carries out what the core decided, action by action. It decides nothing: what is refused is decided anew."""

import logging
from collections.abc import Iterable
from dataclasses import dataclass

from swingpool.kube import KubeError, Object
from swingpool.kube.kinds import DEPLOYMENT, POD
from swingpool.kube.objects import annotations_of, labels_of, name_of, namespace_of, uid_of
from swingpool.manager import replicas
from swingpool.manager.engine_calls import EngineCalls
from swingpool.manager.events import Recorder
from swingpool.manager.metrics import Metrics
from swingpool.manager.store import Key, Store
from swingpool.manager.writes import Writes
from swingpool_control import names
from swingpool_control.actions import Action, EmitEvent, EngineCall, PatchWorker, SetLimits, SetReplicas
from swingpool_control.api.v1alpha1 import InferenceClusterSpec, ReplicaMode

log = logging.getLogger(__name__)

Operation = dict[str, object]


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What became of a list of actions."""

    refused: tuple[str, ...] = ()
    """Uids of workers whose change the API server refused for certain."""
    uncertain: tuple[str, ...] = ()
    """Uids of workers whose change of role may have been made, or may still be."""
    failed: int = 0
    """Actions that were not carried out, or of which nobody knows whether they were."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Actor:
    """Carries out actions on one cluster after another."""

    writes: Writes
    store: Store
    recorder: Recorder
    metrics: Metrics
    engines: EngineCalls

    async def carry_out(self, cluster: Object, spec: InferenceClusterSpec, actions: Iterable[Action]) -> Outcome:
        """Carry out actions in their order. A failure ends no other action."""
        refused: list[str] = []
        uncertain: list[str] = []
        failed = 0
        for action in actions:
            result = "done"
            try:
                await self._one(cluster, spec, action)
            except KubeError as error:
                failed += 1
                result = "failed"
                certain = error.conflict or error.not_found or error.invalid
                if isinstance(action, PatchWorker) and certain:
                    refused.append(action.uid)
                    result = "refused"
                elif isinstance(action, PatchWorker) and action.labels and error.may_have_happened:
                    uncertain.append(action.uid)
                log.warning("not carried out", extra={"action": _describe(action), "error": str(error)})
            counter = self.metrics.decisions.labels(
                namespace_of(cluster), name_of(cluster), type(action).__name__, result
            )
            counter.inc()
        return Outcome(refused=tuple(refused), uncertain=tuple(uncertain), failed=failed)

    async def _one(self, cluster: Object, spec: InferenceClusterSpec, action: Action) -> None:
        match action:
            case PatchWorker():
                await self._patch_worker(cluster, action)
            case EngineCall():
                self._call_engine(cluster, action)
            case SetReplicas():
                await self._set_replicas(cluster, spec, action)
            case SetLimits():  # `RouterPoll.limit` tells them, and goes on telling
                log.info(_describe(action), extra={"why": action.reason})
            case EmitEvent():
                await self.recorder.tell(cluster, action.type, action.reason, action.message)

    async def _patch_worker(self, cluster: Object, action: PatchWorker) -> None:
        pod = self.store.get(POD, namespace_of(cluster), action.pod)
        if pod is None or uid_of(pod) != action.uid:
            raise KubeError(status=404, reason="NotFound", message=f"pod {action.pod} {action.uid} is gone")
        operations = worker_patch(pod, action)
        await self.writes.json_patch(POD, action.pod, namespace=namespace_of(cluster), operations=operations)
        log.info("patched", extra={"action": _describe(action), "why": action.reason})

    def _call_engine(self, cluster: Object, action: EngineCall) -> None:
        pod = self.store.get(POD, namespace_of(cluster), action.pod)
        if pod is None or uid_of(pod) != action.uid:
            raise KubeError(status=404, reason="NotFound", message=f"pod {action.pod} {action.uid} is gone")

        async def write(patch: PatchWorker) -> None:
            await self._patch_worker(cluster, patch)

        pods = self.store.of_cluster(POD, Key(namespace_of(cluster), name_of(cluster)))
        if self.engines.start(pod, action, write, pods=pods):
            log.info("told an engine", extra={"action": _describe(action)})

    async def _set_replicas(self, cluster: Object, spec: InferenceClusterSpec, action: SetReplicas) -> None:
        pool = next((pool for pool in spec.pools if pool.name == action.pool), None)
        if pool is None or pool.replicas.mode is ReplicaMode.EXTERNAL:
            log.error("refused to scale a pool that is not ours to scale", extra={"action": _describe(action)})
            return
        name = names.pool_deployment(name_of(cluster), action.pool)
        deployment = self.store.get(DEPLOYMENT, namespace_of(cluster), name)
        if deployment is None:
            raise KubeError(status=404, reason="NotFound", message=f"Deployment {name} does not exist yet")
        await replicas.set_replicas(self.writes, deployment, action.replicas)
        log.info("scaled", extra={"action": _describe(action), "why": action.reason})


def worker_patch(pod: Object, action: PatchWorker) -> list[Operation]:
    """Return the JSON patch for a worker, with tests that it is the same pod in the same role.

    Args:
        pod: the pod as it was seen last; it tells which maps and keys exist.
        action: what to change.
    """
    operations: list[Operation] = [{"op": "test", "path": "/metadata/uid", "value": action.uid}]
    if labels_of(pod):  # without any label there is no role, and no path by which to test it
        role_path = f"/metadata/labels/{_escaped(names.LABEL_ROLE)}"
        operations.append({"op": "test", "path": role_path, "value": action.expected_role or None})
    operations += _map_patch("/metadata/labels", labels_of(pod), action.labels)
    operations += _map_patch("/metadata/annotations", annotations_of(pod), action.annotations)
    return operations


def _map_patch(path: str, present: dict[str, str], changes: dict[str, str | None]) -> list[Operation]:
    added = {key: value for key, value in changes.items() if value is not None}
    if not present:
        # Nothing can be added to a map that does not exist; one that came to be meanwhile must not be overwritten.
        absent: list[Operation] = [
            {"op": "test", "path": path, "value": None},
            {"op": "add", "path": path, "value": added},
        ]
        return absent if added else []
    operations: list[Operation] = [
        {"op": "add", "path": f"{path}/{_escaped(key)}", "value": value} for key, value in added.items()
    ]
    removed = [key for key, value in changes.items() if value is None and key in present]
    return operations + [{"op": "remove", "path": f"{path}/{_escaped(key)}"} for key in removed]


def _escaped(key: str) -> str:
    """Return a key as a part of a JSON pointer."""
    return key.replace("~", "~0").replace("/", "~1")


def _describe(action: Action) -> str:
    match action:
        case PatchWorker():
            role = action.labels.get(names.LABEL_ROLE)
            change = f"{action.expected_role or '(none)'} -> {role}" if role else "annotations"
            return f"{action.pod}: {change}"
        case EngineCall():
            return f"{action.pod}: {action.call}"
        case SetReplicas():
            return f"{action.pool}: {action.replicas} replicas"
        case SetLimits():
            return f"pickers may let {action.limits.over_share:.1%} of tokens wait for a prompt"
        case EmitEvent():
            return f"event {action.reason}"
