"""One round of work for one cluster: look, make its children right, size, swing, tell the status.

A round never waits for the next one's time: each part is done when it is due, and the round says when the next part is.
A part that fails is told, tried again later, and stops no other part.
"""

import logging
from collections.abc import Callable
from dataclasses import dataclass, replace

from swingpool.kube import KubeError, Object
from swingpool.kube.kinds import DEPLOYMENT, INFERENCE_CLUSTER, POD, Kind
from swingpool.kube.objects import metadata, uid_of
from swingpool.manager.act import Actor, Outcome
from swingpool.manager.decisions import Decisions
from swingpool.manager.lease import NotLeadingError
from swingpool.manager.memory import ClusterMemory, Due
from swingpool.manager.metrics import Metrics
from swingpool.manager.profiles import Models, Profiles
from swingpool.manager.prometheus_poll import PrometheusPoll
from swingpool.manager.queue import backoff_s
from swingpool.manager.reconcile import BlockedError, Reconciler
from swingpool.manager.router_poll import RouterPoll
from swingpool.manager.status_writer import write_status
from swingpool.manager.store import Key, Store
from swingpool.manager.worker_poll import WorkerPoll
from swingpool.manager.writes import Writes
from swingpool.telemetry.logs import about_cluster
from swingpool_control.actions import Action
from swingpool_control.api.router import MetricsSource
from swingpool_control.api.status import FlipRecord, InferenceClusterStatus
from swingpool_control.api.v1alpha1 import InferenceClusterSpec, RouterType
from swingpool_control.conditions import status as conditions
from swingpool_control.conditions.view import InvalidSpecError, build, parse_spec, parse_status
from swingpool_control.figures import Unknown
from swingpool_control.observation import RouterObservation
from swingpool_control.replay.decision import SizingDecision, SwingDecision
from swingpool_control.reserve import step as reserve
from swingpool_control.resources.pod_template import PodTemplateError
from swingpool_control.sizing import speed, watch
from swingpool_control.sizing import step as sizing
from swingpool_control.sizing.memory import PERIOD_S
from swingpool_control.swing import step as swing
from swingpool_control.timestamps import unix_seconds
from swingpool_control.view import ClusterView

log = logging.getLogger(__name__)

TOLD_AFTER_FAILURES = 3
"""Trouble of the API server's is told to the user only if it lasts."""

UNCERTAIN_S = 15.0
"""How long a change that was not answered may still be made."""

ACT_AGAIN_S = 0.2
"""How soon a decision is made anew that the API server refused."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Periods:
    """How often each part is done, in seconds."""

    swing_s: float = 1.0
    sizing_s: float = 15.0
    children_s: float = 300.0


@dataclass(frozen=True, slots=True, kw_only=True)
class _Seen:
    """What a round stands on, beside the store, which its own writes change."""

    key: Key
    raw_spec: Object
    """The spec that is acted on: the present one, or the last that could be used."""
    generation: int
    spec: InferenceClusterSpec
    router: RouterObservation | Unknown
    models: Models


@dataclass(frozen=True, slots=True, kw_only=True)
class Rounds:
    """Does rounds. Clocks: `monotonic` for when, `now_unix_s` for what is decided and written."""

    store: Store
    reconciler: Reconciler
    actor: Actor
    writes: Writes
    routers: RouterPoll
    workers: WorkerPoll
    prometheus: PrometheusPoll
    profiles: Profiles
    decisions: Decisions
    metrics: Metrics
    periods: Periods
    monotonic: Callable[[], float]
    now_unix_s: Callable[[], float]
    memories: dict[Key, ClusterMemory]

    def touch(self, key: Key, kind: Kind, obj: Object) -> None:
        """Have a cluster's children compared in its next round, if what changed can make a difference to them.

        Children that could not be made are tried again in their own time, unless the cluster itself changed.
        """
        memory = self.memories.get(key)
        if memory is None or kind == POD:
            return
        changed_spec = kind == INFERENCE_CLUSTER and metadata(obj).get("generation") != memory.tried_generation
        if changed_spec or (kind != INFERENCE_CLUSTER and not memory.children.failures):
            memory.children.at = 0.0

    def forget(self, key: Key) -> None:
        """Drop all memory of a cluster that is gone."""
        if self.memories.pop(key, None):
            log.info("forgotten", extra={"cluster": f"{key.namespace}/{key.name}"})
        self.routers.forget(key)
        self.workers.forget(key)
        self.prometheus.forget(key)
        self.profiles.forget(key)
        self.decisions.forget(key)
        self.actor.recorder.forget(key)
        self.metrics.forget(key)

    async def round(self, key: Key) -> float | None:
        """Do what is due for a cluster; return the seconds until more is, None if it is gone."""
        cluster = self.store.get(INFERENCE_CLUSTER, *key)
        if cluster is None or metadata(cluster).get("deletionTimestamp"):
            self.forget(key)
            return None
        memory = self.memories.get(key)
        if memory is None or memory.uid != uid_of(cluster):
            memory = ClusterMemory(uid=uid_of(cluster), flips=tuple(parse_status(cluster).flips))
            memory.applied_generation = parse_status(cluster).observed_generation or 0
            self.memories[key] = memory
        result = "failed"
        try:
            with about_cluster(*key), self.metrics.round_seconds.time():
                next_s = await self._parts(key, cluster, memory)
                result = "done"
                return next_s
        except KubeError as error:
            result = "unanswered" if error.unanswered else "refused"
            log.warning("round ended early", extra={"cluster": f"{key.namespace}/{key.name}", "error": str(error)})
            raise
        except NotLeadingError:
            result = "not-leading"
            raise
        except Exception:
            log.exception("round failed", extra={"cluster": f"{key.namespace}/{key.name}"})
            raise
        finally:
            if key in self.memories:
                self.metrics.rounds.labels(key.namespace, key.name, result).inc()

    async def _parts(self, key: Key, cluster: Object, memory: ClusterMemory) -> float:
        try:
            spec = parse_spec(cluster)
        except InvalidSpecError as error:
            return await self._keep_last_good(key, cluster, memory, str(error))
        memory.last_good = cluster
        await self._children(cluster, spec, memory)
        seen = await self._look(key, cluster, spec)
        await self._decide(seen, memory)
        status = conditions.build(
            reserve.awake(self._view(seen, memory)),
            plan=memory.plan,
            flips=memory.flips,
            now_unix_s=self.now_unix_s(),
            router_seen_unix_s=memory.swing_memory.router_seen_unix_s,
            applied_generation=memory.applied_generation,
            apply_error=memory.apply_error,
            balance=memory.swing_memory.balance,
        )
        await self._tell(key, status, memory)
        return self._next_s(memory)

    async def _keep_last_good(self, key: Key, cluster: Object, memory: ClusterMemory, fault: str) -> float:
        """Tell that a spec cannot be used; roles and sizes go on by the last spec that could."""
        if memory.last_good is not None:
            seen = await self._look(key, memory.last_good, parse_spec(memory.last_good))
            await self._decide(seen, memory)
        status = conditions.invalid(
            parse_status(self._cluster(key)),
            generation=int(metadata(cluster).get("generation") or 0),
            message=fault,
            now_unix_s=self.now_unix_s(),
        )
        if await self._tell(key, status, memory):
            log.error("the spec cannot be used", extra={"fault": fault})
        return self.periods.swing_s

    async def _tell(self, key: Key, status: InferenceClusterStatus, memory: ClusterMemory) -> bool:
        """Write the status if it says something new. A failure delays the next try, and nothing else."""
        if not memory.status.now(self.monotonic()):
            return False
        try:
            written = await write_status(self.writes, self._cluster(key), status, memory)
        except KubeError as error:
            memory.status.failures += 1
            memory.status.at = self.monotonic() + backoff_s(memory.status.failures)
            log.warning("the status was not written", extra={"error": str(error)})
            return False
        memory.status.failures = 0
        return written

    async def _children(self, cluster: Object, spec: InferenceClusterSpec, memory: ClusterMemory) -> None:
        if not memory.children.now(self.monotonic()):
            return
        generation = int(metadata(cluster).get("generation") or 0)
        memory.children.at = self.monotonic() + self.periods.children_s
        memory.tried_generation = generation
        try:
            await self.reconciler.reconcile(cluster, spec, memory)
        except (BlockedError, PodTemplateError, KubeError) as error:
            memory.children.failures += 1
            memory.children.at = self.monotonic() + backoff_s(memory.children.failures)
            lasts = memory.children.failures >= TOLD_AFTER_FAILURES
            may_pass = isinstance(error, BlockedError) and (error.waits or (error.transient and not lasts))
            if not may_pass and not isinstance(error, KubeError):
                memory.apply_error = str(error)
            log.warning("children are not as asked for", extra={"error": str(error)})
        else:
            memory.children.failures = 0
            memory.apply_error = ""
            memory.applied_generation = generation

    async def _look(self, key: Key, cluster: Object, spec: InferenceClusterSpec) -> _Seen:
        pods = self.store.of_cluster(POD, key)
        router: RouterObservation | Unknown
        if spec.router.type is RouterType.BUILT_IN:
            router = await self.routers.observe(key, pods)
        elif spec.router.external.metrics.source is MetricsSource.PROMETHEUS:
            router = await self.prometheus.observe(key, pods, spec.router.external.metrics.prometheus)
        else:
            router = await self.workers.observe(key, pods)
        return _Seen(
            key=key,
            raw_spec=cluster["spec"],
            generation=int(metadata(cluster).get("generation") or 0),
            spec=spec,
            router=router,
            models=await self.profiles.models(key, spec),
        )

    async def _decide(self, seen: _Seen, memory: ClusterMemory) -> None:
        """Size and swing; a fault of our own in one of them is logged, and stops neither the other nor the status."""
        for part, decide, due in (("sizing", self._size, memory.sizing), ("swing", self._swing, memory.swing)):
            try:
                await decide(seen, memory)
            except (KubeError, NotLeadingError):
                raise
            except Exception:
                due.failures += 1
                due.at = self.monotonic() + backoff_s(due.failures)
                self.metrics.faults.labels(*seen.key, part).inc()
                log.exception("a decision failed", extra={"loop": part})

    async def _size(self, seen: _Seen, memory: ClusterMemory) -> None:
        whole = self._view(seen, memory)
        view = reserve.awake(whole)
        before, now_unix_s = watch.follow(view, memory.sizing_memory), self.now_unix_s()
        memory.sizing_memory = before
        due = memory.sizing.now(self.monotonic()) or view.generation != memory.sized_generation
        if not due and (memory.sizing.failures or not watch.is_urgent(view, before, now_unix_s=now_unix_s)):
            return
        memory.sized_generation = view.generation
        memory.speed = speed.follow(replace(view, models=seen.models), memory.speed, now_unix_s=now_unix_s)
        result = sizing.step(view, before, now_unix_s=now_unix_s)
        self.decisions.add(seen.key, SizingDecision(view=view, memory=before, now_unix_s=now_unix_s, result=result))
        memory.sizing_memory, memory.plan = result.memory, result.plan
        memory.swing_memory = replace(memory.swing_memory, advice=result.memory.advice)
        self._say(memory, "sizing", result.summary)
        outcome = await self._act(seen, memory, reserve.carry_out(whole, result.actions, now_unix_s=now_unix_s))
        period_s = self.periods.sizing_s
        if result.next_step_s < PERIOD_S:  # workers drain: it looks sooner than usual
            period_s = min(result.next_step_s, period_s)
        memory.sizing.at = self.monotonic() + self._after(memory.sizing, outcome.failed, period_s)

    async def _swing(self, seen: _Seen, memory: ClusterMemory) -> None:
        if not memory.swing.now(self.monotonic()):
            return
        whole, before, now_unix_s = self._view(seen, memory), memory.swing_memory, self.now_unix_s()
        view = reserve.awake(whole)
        result = swing.step(view, before, now_unix_s=now_unix_s)
        self.decisions.add(seen.key, SwingDecision(view=view, memory=before, now_unix_s=now_unix_s, result=result))
        memory.swing_memory = result.memory
        self._count_flips(seen.key, memory.flips, result.flips)
        memory.flips = result.flips
        self._say(memory, "swing", result.summary)
        actions = (*result.actions, *reserve.step(whole, now_unix_s=now_unix_s))
        outcome = await self._act(seen, memory, actions)
        if result.memory.limits is not None:
            await self.routers.limit(seen.key, self.store.of_cluster(POD, seen.key), result.memory.limits)
        for uid in outcome.refused:
            memory.swing_memory = memory.swing_memory.refused(uid)
        memory.swing.at = self.monotonic() + self._after(memory.swing, outcome.failed, self.periods.swing_s)

    async def _act(self, seen: _Seen, memory: ClusterMemory, actions: tuple[Action, ...]) -> Outcome:
        outcome = await self.actor.carry_out(self._cluster(seen.key), seen.spec, actions)
        memory.uncertain |= dict.fromkeys(outcome.uncertain, self.monotonic() + UNCERTAIN_S)
        return outcome

    def _after(self, due: Due, failed: int, period_s: float) -> float:
        """Return when to decide again: soon after a first failure, later if it goes on, at the latest as always."""
        due.failures = due.failures + 1 if failed else 0
        return min(period_s, ACT_AGAIN_S * 2.0 ** min(due.failures - 1, 8)) if failed else period_s

    def _next_s(self, memory: ClusterMemory) -> float:
        now = self.monotonic()
        return max(0.0, min(memory.swing.at, memory.sizing.at, memory.children.at) - now)

    def _cluster(self, key: Key) -> Object:
        """Return the cluster as it is now known.

        Raises:
            KubeError: it went away during the round.
        """
        cluster = self.store.get(INFERENCE_CLUSTER, *key)
        if cluster is None:
            raise KubeError(
                status=404, reason="NotFound", message=f"InferenceCluster {key.namespace}/{key.name} is gone"
            )
        return cluster

    def _view(self, seen: _Seen, memory: ClusterMemory) -> ClusterView:
        """Return the cluster as it is now known, by the spec that the round began with."""
        cluster = self._cluster(seen.key)
        now = self.monotonic()
        memory.uncertain = {uid: until for uid, until in memory.uncertain.items() if now < until}
        view = build(
            cluster={
                **cluster,
                "metadata": {**metadata(cluster), "generation": seen.generation},
                "spec": seen.raw_spec,
            },
            deployments=self.store.of_cluster(DEPLOYMENT, seen.key),
            pods=self.store.of_cluster(POD, seen.key),
            router=seen.router,
            models=seen.models,
            uncertain=frozenset(memory.uncertain),
        )
        return speed.calibrated(view, memory.speed)

    def _say(self, memory: ClusterMemory, loop: str, summary: str) -> None:
        """Log a decision, once for as long as it stays the same."""
        if summary and memory.said.get(loop) != summary:
            log.info(summary, extra={"loop": loop})
        memory.said[loop] = summary

    def _count_flips(self, key: Key, before: tuple[FlipRecord, ...], after: tuple[FlipRecord, ...]) -> None:
        """Count the flips that have ended since the last step."""
        ended = {(flip.worker, flip.decided_at) for flip in before if flip.outcome != "InProgress"}
        for flip in after:
            if flip.outcome == "InProgress" or (flip.worker, flip.decided_at) in ended:
                continue
            self.metrics.flips.labels(key.namespace, key.name, flip.from_, flip.to, flip.outcome).inc()
            if flip.serving_at is not None:
                took_s = unix_seconds(flip.serving_at) - unix_seconds(flip.decided_at)
                self.metrics.flip_seconds.labels(key.namespace, key.name).observe(max(0.0, took_s))
