"""The picker's process: everything wired together, from the first look at the workers to the last request."""

import asyncio
import contextlib
import gc
import logging
import signal
import socket
import time
from collections.abc import Coroutine, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import aiohttp
from aiohttp import web

from swingpool.compiled import core
from swingpool.kube import Kube
from swingpool.picker import accesslog, eds, extproc, gateway, http, profiles, rpc
from swingpool.picker.authorizer import AuthorizerWatch
from swingpool.picker.certificate import Certificate, WorkerTls
from swingpool.picker.drain import drain
from swingpool.picker.fleet import Fleet
from swingpool.picker.flow import Flow
from swingpool.picker.journal import Journal
from swingpool.picker.keys import ApiKeys
from swingpool.picker.leg import PrefillClient
from swingpool.picker.members import WorkerSource
from swingpool.picker.metrics import RouterMetrics
from swingpool.picker.objectives import Objectives
from swingpool.picker.observe import observe
from swingpool.picker.peers import Peers
from swingpool.picker.probe import Prober
from swingpool.picker.request_log import RequestLog
from swingpool.picker.requests import Generations
from swingpool.picker.sleeping import Sleeping
from swingpool.picker.source_file import FileSource
from swingpool.picker.source_kubernetes import KubernetesSource
from swingpool.picker.tokens import Tokens
from swingpool.picker.tracing import SCOPE, Tracer
from swingpool.picker.traffic import Traffic
from swingpool.picker.wire import KEEP_ALIVE_S, HttpPool, Tls
from swingpool.picker.worker import Worker
from swingpool.telemetry.otlp import Exporter
from swingpool.telemetry.vllm_page import WorkerFigures
from swingpool_control import names
from swingpool_control.observation import RouterObservation
from swingpool_control.placement.dispatcher import Dispatcher
from swingpool_control.placement.objectives import with_objectives
from swingpool_control.placement.parts import Part
from swingpool_control.resources.envoy import BUFFER_LIMIT_BYTES

if TYPE_CHECKING:
    from swingpool.picker.kv_events import KVEvents

FIRST_PROBES_S = 3.0

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class PickerOptions:
    """What `swingpool picker` is told."""

    cluster: str
    namespace: str
    eds_file: Path
    pod_name: str = ""
    """What this picker is called; empty for the host's name."""
    api_keys: ApiKeys | None = None
    """Keeps the API keys that Envoy asks for; None if it asks for none."""
    spec_file: Path | None = None
    """The cluster's spec, as far as placement goes by it; without one the defaults hold."""
    profile_file: Path | None = None
    """The performance profile that the spec names by a ConfigMap."""
    workers_file: Path | None = None
    """Read the workers from here instead of from the API server."""
    inference_pool: str = ""
    """InferencePool whose InferenceObjectives say priorities; empty for none."""
    kubeconfig: Path | None = None
    grpc_host: str = "127.0.0.1"
    grpc_port: int = names.PORT_PICKER_GRPC
    grpc_socket: Path | None = None
    """Instead of the port."""
    gateway_port: int | None = None
    """Where gateways of others ask; None for nowhere."""
    gateway_certificate: Path | None = None
    """Directory of the certificate that they see."""
    worker_tls: Path | None = None
    """Directory of the certificate that workers see, and of the CA of theirs; None if all speak plain HTTP."""
    worker_tls_name: str = "worker"
    """What workers' certificates are for."""
    http_host: str = "0.0.0.0"  # noqa: S104 - the manager and Prometheus reach it on the pod's address
    http_port: int = names.PORT_PICKER_HTTP
    envoy_admin: str = f"127.0.0.1:{names.PORT_ENVOY_ADMIN}"
    authorizer: bool = False
    """Whether Envoy asks an external authorizer, so that how that goes is told."""
    kv_events: bool = False
    """Whether workers' own word of their KV caches is followed."""
    tokenize_timeout_s: float = 0.1
    """How long a prompt waits for its tokens, by which it is looked up; 0 for not at all."""
    otlp_traces_endpoint: str = ""
    """Where traces go, `http://HOST:PORT`; empty for none."""
    request_log: Path | None = None
    """Where each request is told of for simulations; `-` is standard output, None is nowhere."""
    queue_timeout_s: float = 30.0
    window_s: float = 15.0
    drain_timeout_s: float = 3600.0


async def run(options: PickerOptions) -> None:
    """Run until SIGTERM or SIGINT, then until Envoy has drained."""
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    async with contextlib.AsyncExitStack() as stack:
        connector = aiohttp.TCPConnector(limit=0, keepalive_timeout=KEEP_ALIVE_S, ttl_dns_cache=None)
        session = await stack.enter_async_context(
            aiohttp.ClientSession(
                connector=connector, timeout=aiohttp.ClientTimeout(total=None), cookie_jar=aiohttp.DummyCookieJar()
            )
        )
        source: WorkerSource
        objectives: Objectives | None = None
        peers: Peers | None = None
        if options.workers_file:
            source = FileSource(options.workers_file)
        else:
            kube = await stack.enter_async_context(Kube.load(options.kubeconfig))
            source = KubernetesSource(kube, namespace=options.namespace, cluster=options.cluster)
            peers = Peers(kube, namespace=options.namespace, cluster=options.cluster, own=_name_of(options))
            if options.inference_pool:
                objectives = Objectives(kube, namespace=options.namespace, pool=options.inference_pool)
        await Picker(options, source, session, objectives, peers).serve(stop)


class Picker:
    """One picker."""

    def __init__(
        self,
        options: PickerOptions,
        source: WorkerSource,
        session: aiohttp.ClientSession,
        objectives: Objectives | None = None,
        peers: Peers | None = None,
    ) -> None:
        self._options = options
        self._source = source
        self._objectives = objectives
        self._peers = peers
        self._session = session
        self._name = _name_of(options)
        given = profiles.read(options.spec_file, options.profile_file)
        self._classes = given.settings.classes
        self._base_names = given.base_names
        self._fleet = Fleet(Dispatcher(given.settings), given.models)
        self._eds = eds.EdsFile(options.eds_file, self._fleet)
        self._metrics = RouterMetrics()
        self._traffic = Traffic(self._metrics, window_s=options.window_s)
        self._metrics.queued.set_function(lambda: self._traffic.queued + self._fleet.dispatcher.queued)
        self._generations = Generations(self._fleet)
        self._journal = Journal()
        self._fleet.on_membership(self._generations.forget_gone)
        self._worker_tls = WorkerTls(options.worker_tls) if options.worker_tls else None
        self._secure = Tls(self._worker_tls.context, options.worker_tls_name) if self._worker_tls else None
        self._prober = Prober(self._fleet, session, on_scrape=self._scraped, tls=self._secure)
        self._kv_events = _follow_caches(self._fleet, self._metrics) if options.kv_events else None
        self._request_log = _request_log(options.request_log)
        self._tracer = self._make_tracer()
        directory = options.gateway_certificate
        self._certificate = Certificate(directory) if directory else None
        self._serving = False
        self._knows = False
        """Whether it has known its workers: before that it has nothing to say about them."""

    async def serve(self, stop: asyncio.Event) -> None:
        """Serve until `stop` is set, then until the drain is over."""
        following = asyncio.create_task(self._source.follow(self._fleet.publish))
        keys = asyncio.create_task(self._options.api_keys.follow()) if self._options.api_keys else None
        telling = [asyncio.create_task(one) for one in self._telling()]
        following.add_done_callback(lambda _: stop.set())  # it never ends by itself: if it did, say so and restart
        runner = await self._serve_http()
        stopping = asyncio.create_task(stop.wait())
        try:
            ready = asyncio.create_task(self._know_workers())
            await asyncio.wait({ready, stopping}, return_when=asyncio.FIRST_COMPLETED)
            ready.cancel()
            if not stop.is_set():
                await self._serve_grpc(stop)
        finally:
            stopping.cancel()
            if keys:
                keys.cancel()
            for one in telling:
                one.cancel()
            await asyncio.gather(*telling, return_exceptions=True)
            ended = following.done()
            following.cancel()
            await asyncio.gather(following, stopping, return_exceptions=not ended)
            await self._prober.close()
            if self._kv_events is not None:
                await self._kv_events.close()
            await runner.cleanup()

    def _telling(self) -> list[Coroutine[None, None, None]]:
        """Return what goes on in the background."""
        exporter = self._tracer.exporter if self._tracer else None
        followed = (self._request_log, exporter, self._certificate, self._worker_tls)
        told = [one.follow() for one in followed if one is not None]
        if self._objectives is not None:
            told.append(self._objectives.follow(self._prioritise))
        if self._peers is not None:
            told.append(self._peers.follow(self._mind))
        if self._options.authorizer:
            counts, troubles = self._metrics.authorizer, self._metrics.authorizer_troubles
            admin = self._options.envoy_admin
            told.append(AuthorizerWatch(self._session, admin=admin, requests=counts, troubles=troubles).follow())
        return told

    def _prioritise(self, priorities: Mapping[str, int]) -> None:
        self._fleet.dispatcher.reclassify(with_objectives(self._classes, priorities))
        self._fleet.freed()

    def _mind(self, part: Part) -> None:
        self._fleet.dispatcher.roster.among(part)
        self._fleet.freed()

    def _make_tracer(self) -> Tracer | None:
        endpoint = self._options.otlp_traces_endpoint
        if not endpoint:
            return None
        resource = {"service.name": names.picker(self._options.cluster or "swingpool"), "k8s.pod.name": self._name}
        if self._options.namespace:
            resource["k8s.namespace.name"] = self._options.namespace
        return Tracer(Exporter(endpoint + names.TRACES_PATH, resource, scope=SCOPE, session=self._session))

    async def _know_workers(self) -> None:
        """Wait for the list of workers, and for their first probes, but not for workers that are down.

        Until then nothing listens for Envoy, which so sends requests to the workers it knew last rather than nowhere.
        """
        await self._fleet.synced.wait()
        loop = asyncio.get_running_loop()
        ends_s = loop.time() + FIRST_PROBES_S
        while any(worker.unprobed for worker in self._fleet.workers()) and loop.time() < ends_s:
            await self._fleet.changed(timeout_s=ends_s - loop.time())
        self._knows = True

    async def _serve_grpc(self, stop: asyncio.Event) -> None:
        pool = HttpPool()
        self._fleet.on_membership(lambda: pool.keep_only([one.member.address for one in self._fleet.workers()]))
        flow = Flow(
            self._fleet,
            PrefillClient(pool, self._secure),
            self._generations,
            self._traffic,
            self._journal,
            queue_timeout_s=self._options.queue_timeout_s,
            request_log=self._request_log,
            tracer=self._tracer,
            tokens=self._tokens(),
        )
        log_service = accesslog.AccessLog(self._generations, self._traffic, self._request_log)
        server = rpc.Server(
            {
                extproc.PROCESS: partial(extproc.Exchange, flow),
                accesslog.STREAM: partial(accesslog.LogStream, log_service),
            },
            most_bytes=BUFFER_LIMIT_BYTES + 1024 * 1024,
        )
        if self._options.grpc_socket is not None:
            await server.start_at(self._options.grpc_socket)
        else:
            await server.start(self._options.grpc_host, self._options.grpc_port)
        asked = await self._serve_gateways(flow, log_service)
        _spare_the_collector()
        _tell_whether_compiled(self._metrics)
        self._serving = True
        log.info("serving", extra={"cluster": self._options.cluster})
        await stop.wait()
        self._serving = False
        timeout_s = self._options.drain_timeout_s
        ending = [asked.stop(grace_s=timeout_s)] if asked else []
        await asyncio.gather(drain(self._session, admin=self._options.envoy_admin, timeout_s=timeout_s), *ending)
        await server.stop(grace_s=1.0)
        pool.keep_only(())

    def _tokens(self) -> Tokens | None:
        if self._kv_events is None:
            return None
        timeout_s = self._options.tokenize_timeout_s
        return Tokens(self._fleet, self._session, timeout_s=timeout_s, base=self._base_names)

    async def _serve_gateways(self, flow: Flow, log_service: accesslog.AccessLog) -> rpc.Server | None:
        """Listen for gateways of others, if there are any."""
        if self._options.gateway_port is None:
            return None
        exchange = partial(gateway.GatewayExchange, flow, log_service)
        server = rpc.Server({extproc.PROCESS: exchange}, most_bytes=BUFFER_LIMIT_BYTES + 1024 * 1024)
        tls = self._certificate.context if self._certificate else None
        await server.start(self._options.http_host, self._options.gateway_port, tls=tls)
        return server

    async def _serve_http(self) -> web.AppRunner:
        app = http.application(
            fleet=self._fleet,
            metrics=self._metrics,
            observe=self._observe,
            journal=self._journal,
            not_ready=self._not_ready,
            sleeping=Sleeping(self._fleet, self._session, tls=self._secure),
        )
        runner = web.AppRunner(app, access_log=None, handle_signals=False)
        await runner.setup()
        await web.TCPSite(runner, self._options.http_host, self._options.http_port).start()
        return runner

    def _observe(self) -> RouterObservation | None:
        return observe(self._fleet, self._traffic, picker=self._name) if self._knows else None

    def _not_ready(self) -> str:
        if not self._fleet.synced.is_set():
            return "the list of workers has not come yet"
        if not self._eds.written:
            return "Envoy's list of workers could not be written"
        return "" if self._serving else "not serving"

    def _scraped(self, worker: Worker, before: WorkerFigures) -> None:
        if self._request_log is not None:
            self._request_log.lengths.learn(self._metrics.growth.total("output"))
        self._traffic.scraped(worker.figures, before, prefills=worker.member.role == names.ROLE_PREFILL)
        if worker.member.role == names.ROLE_DECODE:
            self._traffic.generated(worker.figures, before, predicted_gap_s=worker.predicted_gap_s())
        self._generations.forget_lost(now_s=time.monotonic())


def _name_of(options: PickerOptions) -> str:
    return options.pod_name or socket.gethostname()


def _request_log(path: Path | None) -> RequestLog | None:
    if path is None:
        return None
    return RequestLog(None if str(path) == "-" else path)


def _follow_caches(fleet: Fleet, metrics: RouterMetrics) -> "KVEvents":
    from swingpool.picker.kv_events import KVEvents  # it needs libraries that nothing else does

    found = KVEvents(fleet)
    metrics.registry.register(found)
    return found


def _spare_the_collector() -> None:
    """Have it leave alone what was made at the start, and look at what requests leave behind less often.

    Requests leave next to no cycles; a collection that walks through all modules' objects would hold up each of them.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(20_000, 20, 20)


def _tell_whether_compiled(metrics: RouterMetrics) -> None:
    interpreted = core.interpreted(core.PICKER)
    metrics.compiled.set(0 if interpreted else 1)
    if interpreted:
        why = core.why_interpreted(core.PICKER)
        log.warning("requests go through plain Python, which takes more of the processor: %s", why)
