"""The manager's process: what it is made of, and in which order it starts and stops.

It serves its probes, waits for the CRD, waits for the lease, lists everything, and only then lets kopf watch and rounds
begin. It stops in the reverse order, rounds first and the lease last, so that nothing is written by two. Whatever ends
unasked ends the process: its supervisor starts it anew.
"""

import asyncio
import logging
import random
import signal
import time
from collections.abc import Coroutine
from typing import Any, cast

import kopf
from aiohttp import web

from swingpool.kube import Kube, KubeError, Object
from swingpool.kube.kinds import INFERENCE_CLUSTER, Kind
from swingpool.kube.objects import name_of, namespace_of
from swingpool.manager import health
from swingpool.manager.act import Actor
from swingpool.manager.decisions import Decisions
from swingpool.manager.engine_calls import EngineCalls
from swingpool.manager.events import Recorder
from swingpool.manager.lease import Leadership
from swingpool.manager.metrics import Metrics
from swingpool.manager.options import Options
from swingpool.manager.profiles import Profiles
from swingpool.manager.prometheus_poll import PrometheusPoll
from swingpool.manager.queue import WorkQueue
from swingpool.manager.reconcile import Reconciler
from swingpool.manager.registry import Context, build_registry, settings
from swingpool.manager.resync import Resync, WatchHealth
from swingpool.manager.rounds import Rounds
from swingpool.manager.router_poll import RouterPoll
from swingpool.manager.store import Key, Store, cluster_of
from swingpool.manager.worker_poll import WorkerPoll
from swingpool.manager.writes import Writes
from swingpool.telemetry.prometheus import Prometheus

log = logging.getLogger(__name__)

LATE_S = 60.0
"""A round that is so late, or takes so long, means that the manager hangs."""

RETRY_S = 2.0
FIRST_ROUNDS_PER_S = 50
LONGEST_START_S = 10.0


class Manager:
    """One manager."""

    def __init__(self, options: Options) -> None:
        self._options = options
        self._stop = asyncio.Event()
        self._fault = ""
        self._tasks: list[asyncio.Task[None]] = []
        self._servers: list[web.AppRunner] = []
        clock = time.monotonic
        self.metrics = Metrics()
        self.heartbeats = health.Heartbeats(clock)
        self.kube = Kube.load(options.kubeconfig, timeout_s=options.call_timeout_s, on_call=self.metrics.call)
        self.leadership = Leadership(
            self.kube,
            options.lease,
            monotonic=clock,
            beat=self.heartbeats.expect("lease", within_s=max(LATE_S, 3 * options.lease.retry_s)),
        )
        self.store = Store(self._changed)
        self.watch_health = WatchHealth(monotonic=clock, metrics=self.metrics)
        self.resync = Resync(self.kube, self.store, self.watch_health, namespaces=options.namespaces)
        self.routers = RouterPoll(monotonic=clock, port=options.picker_port)
        self.workers = WorkerPoll(monotonic=time.monotonic, now_unix_s=time.time)
        server = None if options.prometheus is None else Prometheus(options.prometheus)
        self.prometheus = PrometheusPoll(server, monotonic=time.monotonic, now_unix_s=time.time)
        self.engines = EngineCalls(picker_port=options.picker_port)
        self.decisions = Decisions()
        self.rounds = self._make_rounds()
        self.queue: WorkQueue[Key] = WorkQueue(self.rounds.round, workers=options.round_workers)
        self.metrics.leading.set_function(lambda: float(self.leadership.held))
        self.metrics.queue_keys.set_function(lambda: self.queue.size)
        self.metrics.queue_lateness.set_function(lambda: self.queue.lateness_s)

    async def run(self) -> int:
        """Run until told to stop, or until something goes wrong; return the process's exit status."""
        for number in (signal.SIGTERM, signal.SIGINT):
            asyncio.get_running_loop().add_signal_handler(number, self._stop.set)
        try:
            self._servers = await health.serve(
                host=self._options.host,
                health_port=self._options.health_port,
                metrics_port=self._options.metrics_port,
                alive=self._alive,
                ready=self._ready,
                metrics=self.metrics,
                decisions=lambda namespace, name: self.decisions.of(Key(namespace, name)),
            )
            if await self._unless_stopped(self._wait_for_turn()):
                await self._lead()
        finally:
            await self._end()
        if self._fault:
            log.error("ending", extra={"fault": self._fault})
        return 1 if self._fault else 0

    def _make_rounds(self) -> Rounds:
        writes = Writes(self.kube, self.leadership, self.store)
        recorder = Recorder(writes, component=self._options.pod_name, now_unix_s=time.time)
        return Rounds(
            store=self.store,
            reconciler=Reconciler(
                kube=self.kube,
                writes=writes,
                store=self.store,
                recorder=recorder,
                metrics=self.metrics,
                settings=self._options.rendering,
            ),
            actor=Actor(writes=writes, store=self.store, recorder=recorder, metrics=self.metrics, engines=self.engines),
            writes=writes,
            routers=self.routers,
            workers=self.workers,
            prometheus=self.prometheus,
            profiles=Profiles(self.kube, monotonic=time.monotonic),
            decisions=self.decisions,
            metrics=self.metrics,
            periods=self._options.periods,
            monotonic=time.monotonic,
            now_unix_s=time.time,
            memories={},
        )

    async def _unless_stopped(self, work: Coroutine[Any, Any, None]) -> bool:
        """Do something that takes time; False if we were told to stop before it was done."""
        task, stop = asyncio.create_task(work), asyncio.create_task(self._stop.wait())
        done, pending = await asyncio.wait((task, stop), return_when=asyncio.FIRST_COMPLETED)
        for other in pending:
            other.cancel()
        await asyncio.gather(*pending, return_exceptions=True)
        if task in done:
            task.result()
        return task in done

    async def _wait_for_turn(self) -> None:
        await self._wait_for_crd()
        await self.leadership.acquire()

    async def _wait_for_crd(self) -> None:
        """Return once InferenceClusters can be listed wherever we are to work."""
        told = ""
        for place in self._options.namespaces or (None,):
            while True:
                try:
                    await self.kube.list(INFERENCE_CLUSTER, namespace=place)
                    break
                except KubeError as error:
                    if str(error) != told:
                        told = str(error)
                        log.warning("InferenceClusters cannot be listed yet; is the CRD there?", extra={"error": told})
                    await asyncio.sleep(RETRY_S)

    async def _lead(self) -> None:
        """Have kopf watch, and rounds done, until stopped."""
        namespaces = self._options.namespaces
        context = Context(
            store=self.store,
            resync=self.resync,
            watch_health=self.watch_health,
            credentials=lambda: self.kube.lightkube.config,
            startup=self._start,
            cleanup=self._end,
        )
        try:
            await kopf.operator(
                registry=build_registry(context),
                settings=settings(),
                standalone=True,
                clusterwide=not namespaces,
                namespaces=namespaces,
                stop_flag=self._stop,
                # Else kopf looks the user up, and a container's uid need not have a name.
                identity=cast(Any, self._options.pod_name),
            )
        except Exception as error:
            log.exception("watching ended")
            self._fault = self._fault or f"watching ended: {error}"

    async def _start(self) -> None:
        """Keep the lease, list everything, and begin."""
        self._spawn("lease", self.leadership.keep())
        while True:
            try:
                await self.resync.everything()
                break
            except KubeError as error:
                log.warning("listing failed; trying again", extra={"error": str(error)})
                await asyncio.sleep(RETRY_S)
        clusters = self.store.all(INFERENCE_CLUSTER)
        spread_s = min(LONGEST_START_S, len(clusters) / FIRST_ROUNDS_PER_S)
        for cluster in clusters:
            delay_s = random.uniform(0, spread_s)  # noqa: S311 - spreads load, guards nothing
            self.queue.add(Key(namespace_of(cluster), name_of(cluster)), delay_s=delay_s)
        beat = self.heartbeats.expect("resync", within_s=2 * self._options.resync_s + LATE_S)
        self._spawn("resync", self.resync.run(self._options.resync_s, beat))
        self._spawn("rounds", self.queue.run())
        log.info("started", extra={"clusters": len(clusters)})

    def _spawn(self, name: str, work: Coroutine[Any, Any, None]) -> None:
        """Start a part that is to run for ever; its end is the process's."""
        task = asyncio.create_task(work, name=name)
        task.add_done_callback(self._ended)
        self._tasks.append(task)

    def _ended(self, task: asyncio.Task[None]) -> None:
        if task.cancelled():
            return
        error = task.exception()
        self._fault = self._fault or f"{task.get_name()} ended" + (f": {error!r}" if error else "")
        self._stop.set()

    async def _end(self) -> None:
        """Stop rounds, then give up the lease, then stop answering. Doing it twice is harmless."""
        tasks, self._tasks = self._tasks, []
        for task in reversed(tasks):
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await self.leadership.release()
        servers, self._servers = self._servers, []
        for server in servers:
            await server.cleanup()
        await self.routers.close()
        await self.workers.close()
        await self.prometheus.close()
        await self.engines.close()
        await self.kube.close()

    def _changed(self, kind: Kind, obj: Object) -> None:
        key = cluster_of(kind, obj)
        if key is not None and self.resync.synced:
            self.rounds.touch(key, kind, obj)
            self.queue.add(key)

    def _alive(self) -> list[str]:
        wrong = self.heartbeats.stale()
        if self.queue.lateness_s > LATE_S:
            wrong.append(f"a round is {self.queue.lateness_s:.0f} s late")
        return wrong + [f"the watch of {plural} is dead" for plural in self.watch_health.lagging()]

    def _ready(self) -> list[str]:
        if self.leadership.held:
            return [] if self.resync.synced else ["the first lists are not complete"]
        return [] if self.leadership.holder else ["the lease has not been looked at yet"]


async def run(options: Options) -> int:
    """Run a manager; return the process's exit status."""
    return await Manager(options).run()
