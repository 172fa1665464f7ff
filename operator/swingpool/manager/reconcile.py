"""Children: each is there, is as asked for, and those that nobody asks for any more are not.

A child is written only if it differs. What differs although nothing else was asked for is drift: corrected at once, and
told. What belongs to somebody else is left alone, and told.
"""

import logging
from dataclasses import dataclass

from swingpool.kube import Kube, KubeError, Object
from swingpool.kube.kinds import (
    CONFIG_MAP,
    DEPLOYMENT,
    INFERENCE_POOL,
    POD,
    POD_DISRUPTION_BUDGET,
    ROLE,
    ROLE_BINDING,
    SERVICE,
    SERVICE_ACCOUNT,
    Kind,
    kind_of,
)
from swingpool.kube.objects import annotations_of, controller_uid, labels_of, metadata, name_of, namespace_of, uid_of
from swingpool.manager import diff, replicas
from swingpool.manager.events import Recorder
from swingpool.manager.memory import Applied, ClusterMemory
from swingpool.manager.metrics import Metrics
from swingpool.manager.store import Key, Store
from swingpool.manager.writes import Writes
from swingpool_control import names
from swingpool_control.api.v1alpha1 import InferenceClusterSpec
from swingpool_control.conditions.view import build
from swingpool_control.figures import Unknown
from swingpool_control.resources.render import children
from swingpool_control.resources.settings import RenderSettings
from swingpool_control.sizing.creation import at_creation
from swingpool_control.swing.guards import only_served_by
from swingpool_control.view import ClusterView

log = logging.getLogger(__name__)

CHILD_KINDS: tuple[Kind, ...] = (
    SERVICE_ACCOUNT,
    ROLE,
    ROLE_BINDING,
    CONFIG_MAP,
    SERVICE,
    POD_DISRUPTION_BUDGET,
    DEPLOYMENT,
)
UNWATCHED = INFERENCE_POOL
"""Looked at whenever children are compared: where its CRD is missing nobody can watch it."""

TOLD_PATHS = 4
"""Paths of a drifted child that an Event names."""


class BlockedError(Exception):
    """Children are not as asked for, for reasons that a user can read and remove.

    Attributes:
        transient: whether all of the reasons may well pass by themselves.
        waits: whether nothing is wrong, and all that is asked for will be done a while later.
    """

    def __init__(self, message: str, *, transient: bool = False, waits: bool = False) -> None:
        self.transient = transient
        self.waits = waits
        super().__init__(message)


@dataclass(frozen=True, slots=True, kw_only=True)
class Reconciler:
    """Makes children as the spec asks."""

    kube: Kube
    writes: Writes
    store: Store
    recorder: Recorder
    metrics: Metrics
    settings: RenderSettings

    async def reconcile(self, cluster: Object, spec: InferenceClusterSpec, memory: ClusterMemory) -> None:
        """Make all children as asked for; the rest is done even if one fails.

        Raises:
            BlockedError: one or more children are not as asked for; the message says which and why.
            PodTemplateError: an override cannot be merged; nothing was done.
            KubeError: the API server does not answer; the rest was not tried.
        """
        key = Key(namespace_of(cluster), name_of(cluster))
        wanted = children(
            namespace=key.namespace, name=key.name, uid=uid_of(cluster), spec=spec, settings=self.settings
        )
        problems: list[BlockedError] = []
        for manifest in wanted:
            try:
                await self._ensure(cluster, diff.with_hash(manifest), memory)
            except KubeError as error:
                problems.append(_blocked(manifest["kind"], name_of(manifest), error))
            except BlockedError as error:
                problems.append(error)
        names_wanted = {(child["kind"], name_of(child)) for child in wanted}
        problems += await self._prune(key, cluster, names_wanted, memory)
        if problems:
            raise BlockedError(
                "; ".join(map(str, problems)),
                transient=all(one.transient for one in problems),
                waits=all(one.waits for one in problems),
            )

    async def _ensure(self, cluster: Object, manifest: Object, memory: ClusterMemory) -> None:
        kind, name = kind_of(manifest), name_of(manifest)
        known = memory.applied.get((kind.kind, name))
        live = None if kind == UNWATCHED else self.store.get(kind, namespace_of(manifest), name)
        if live is None:
            live = await self._unseen(kind, manifest)
        if live is None:
            await self._create(cluster, manifest, memory, seen_before=known is not None)
            return
        self._check_owner(cluster, kind, live)
        before = diff.project(manifest, live)
        if before == diff.project(manifest, manifest) or known == Applied(_hash_of(manifest), before):
            memory.applied[(kind.kind, name)] = Applied(_hash_of(manifest), before)
            return
        asked_before = _hash_of(live) == _hash_of(manifest)
        pool = _pool_of(manifest)
        live = await (replicas.apply_template(self.writes, manifest, live) if pool else self.writes.apply(manifest))
        after = diff.project(manifest, live)
        memory.applied[(kind.kind, name)] = Applied(_hash_of(manifest), after)
        log.info("applied", extra={"kind": kind.kind, "child": name, "drift": asked_before and after != before})
        if asked_before and after != before:
            paths = list(diff.differences(after, before))
            more = f" and {len(paths) - TOLD_PATHS} more" if len(paths) > TOLD_PATHS else ""
            await self._tell_drift(
                cluster, kind, f"{kind.kind} {name} was changed at {', '.join(paths[:TOLD_PATHS])}{more}; corrected"
            )

    async def _unseen(self, kind: Kind, manifest: Object) -> Object | None:
        """Look for a child that the watch, which sees only our labels, does not know; None if there is none."""
        try:
            return await self.kube.get(kind, name_of(manifest), namespace=namespace_of(manifest))
        except KubeError as error:
            if error.not_found:
                return None
            raise

    async def _create(
        self,
        cluster: Object,
        manifest: Object,
        memory: ClusterMemory,
        *,
        seen_before: bool,
    ) -> None:
        kind, name, pool = kind_of(manifest), name_of(manifest), _pool_of(manifest)
        if pool:
            live = await replicas.create(self.writes, manifest, at_creation(self._view(cluster), pool))
        else:
            live = await self.writes.apply(manifest)
        memory.applied[(kind.kind, name)] = Applied(_hash_of(manifest), diff.project(manifest, live))
        log.info("created", extra={"kind": kind.kind, "child": name})
        if seen_before:
            await self._tell_drift(cluster, kind, f"{kind.kind} {name} was deleted; created anew")

    def _check_owner(self, cluster: Object, kind: Kind, live: Object) -> None:
        name = name_of(live)
        if controller_uid(live) != uid_of(cluster):
            raise BlockedError(
                f"{kind.kind} {name} exists and is not this cluster's; rename or delete it, or rename the cluster"
            )
        if metadata(live).get("deletionTimestamp"):
            raise BlockedError(f"{kind.kind} {name} is being deleted; it is made anew when it is gone", transient=True)

    async def _tell_drift(self, cluster: Object, kind: Kind, message: str) -> None:
        self.metrics.drift.labels(namespace_of(cluster), name_of(cluster), kind.kind).inc()
        await self.recorder.tell(cluster, "Warning", "DriftCorrected", message)

    async def _prune(
        self, key: Key, cluster: Object, wanted: set[tuple[str, str]], memory: ClusterMemory
    ) -> list[BlockedError]:
        """Delete children that are ours by label and by owner, and that nobody asks for any more; return failures."""
        problems: list[BlockedError] = []
        kept: dict[str, str] = {}
        for kind in reversed(CHILD_KINDS):
            for obj in self.store.of_cluster(kind, key):
                ours = controller_uid(obj) == uid_of(cluster) and not metadata(obj).get("deletionTimestamp")
                if not ours or (kind.kind, name_of(obj)) in wanted:
                    continue
                pool = labels_of(obj).get(names.LABEL_POOL, "")
                if kind == DEPLOYMENT and pool and (role := only_served_by(self._view(cluster), pool)):
                    kept[pool] = f"pool {pool} is kept until another worker serves {role}"
                if pool in kept:
                    continue
                try:
                    await self.writes.delete(kind, name_of(obj), namespace=key.namespace)
                    memory.applied.pop((kind.kind, name_of(obj)), None)
                    log.info("deleted", extra={"kind": kind.kind, "child": name_of(obj)})
                except KubeError as error:
                    if not error.not_found:
                        problems.append(_blocked(kind.kind, name_of(obj), error))
        problems += await self._prune_unwatched(key, cluster, wanted, memory)
        for message in kept.values():
            await self.recorder.tell(cluster, "Normal", "PoolKept", message)
        return problems + [BlockedError(message, transient=True, waits=True) for message in kept.values()]

    async def _prune_unwatched(
        self, key: Key, cluster: Object, wanted: set[tuple[str, str]], memory: ClusterMemory
    ) -> list[BlockedError]:
        """Delete what carries the cluster's name, if it is ours and nobody asks for it any more."""
        place = (UNWATCHED.kind, key.name)
        if place in wanted:
            return []
        try:
            live = await self.kube.get(UNWATCHED, key.name, namespace=key.namespace)
            if controller_uid(live) == uid_of(cluster) and not metadata(live).get("deletionTimestamp"):
                await self.writes.delete(UNWATCHED, key.name, namespace=key.namespace)
                log.info("deleted", extra={"kind": UNWATCHED.kind, "child": key.name})
            memory.applied.pop(place, None)
        except KubeError as error:
            if error.unanswered:
                raise
            # Not there, or nothing that we may look at: then it was not we who made it.
            return [] if error.not_found or error.status == 403 else [_blocked(*place, error)]
        return []

    def _view(self, cluster: Object) -> ClusterView:
        """Return the cluster as Kubernetes shows it; what routers and profiles say makes no difference to children."""
        key = Key(namespace_of(cluster), name_of(cluster))
        return build(
            cluster=cluster,
            deployments=self.store.of_cluster(DEPLOYMENT, key),
            pods=self.store.of_cluster(POD, key),
            router=Unknown("it was not asked"),
            models={},
        )


def _blocked(kind: str, name: str, error: KubeError) -> BlockedError:
    """Return a failed call as a child's problem.

    Raises:
        KubeError: nobody answered, which says nothing about the child.
    """
    if error.unanswered:
        raise error
    if kind == UNWATCHED.kind and error.not_found:
        return BlockedError(
            f"{kind} {name}: the API {UNWATCHED.api_version} is not there; install the CRDs of the Gateway API "
            "inference extension, or remove router.builtIn.inferencePool"
        )
    return BlockedError(f"{kind} {name}: {error.reason}: {error.message}", transient=error.transient)


def _hash_of(obj: Object) -> str:
    return annotations_of(obj).get(names.ANNOTATION_DESIRED_HASH, "")


def _pool_of(manifest: Object) -> str:
    """Return the pool whose Deployment this is; empty if it is none."""
    return labels_of(manifest).get(names.LABEL_POOL, "") if manifest["kind"] == DEPLOYMENT.kind else ""
