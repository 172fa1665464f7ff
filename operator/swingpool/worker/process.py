"""A simulated worker from start to end: what runs, and how it stops."""

import asyncio
import logging
import os
import signal
import ssl
import time
import uuid
from collections.abc import Callable
from contextlib import ExitStack, suppress

import prometheus_client
from aiohttp import web

from swingpool.worker.driver import Driver
from swingpool.worker.faults import Faults
from swingpool.worker.metrics import Metrics
from swingpool.worker.options import KVEvents, Options, TlsFiles
from swingpool.worker.server import SIMULATED_VERSION, Api
from swingpool.worker.transfer import Holder, SideChannel
from swingpool_control.engine.batching import BatchingEngine
from swingpool_control.engine.blocks import ToldPool
from swingpool_control.engine.work import Limits

ANSWER_FIRST_S = 0.05
"""So long a crash or a hang waits, for its request to be answered."""
LONGEST_HANG_S = 86_400.0
CRASH_CODE = 137
"""What a process that was killed for its memory ends with."""
_MOST_HEAD_BYTES = 4 * 1024 * 1024
"""Of a request's head: vLLM's own default, `--h11-max-incomplete-event-size`."""

log = logging.getLogger(__name__)


class WorkerProcess:
    """The parts of one worker, wired together. Made within a running loop."""

    def __init__(self, options: Options) -> None:
        self._options = options
        self._loop = asyncio.get_running_loop()
        self._stack = ExitStack()
        self._stop = asyncio.Event()
        self._engine = BatchingEngine(options.model, _limits(options))
        self._metrics = Metrics(options, self._engine)
        self._faults = Faults(options.seed)
        transfer = options.kv_transfer
        self._driver = Driver(
            self._engine,
            self._metrics,
            self._faults,
            recompute_on_failure=transfer is not None and transfer.recompute_on_failure,
        )
        engine_id = str(uuid.uuid4())
        if transfer is not None:
            self._driver.side_channel = self._side_channel(engine_id)
        if options.kv_events is not None:
            self._driver.tell = self._teller(options.kv_events)
        self._api = Api(options, self._driver, self._metrics, self._faults, engine_id=engine_id, strike=self._strike)

    async def run(self) -> None:
        """Serve until SIGTERM or SIGINT, then drain.

        Raises:
            OSError: an address cannot be had.
        """
        for number in (signal.SIGTERM, signal.SIGINT):
            self._loop.add_signal_handler(number, self._on_signal)
        options = self._options
        runner = web.AppRunner(
            self._api.app(),
            access_log=None,
            handle_signals=False,
            handler_cancellation=True,
            keepalive_timeout=options.keep_alive_s,
            shutdown_timeout=1.0,
            max_line_size=_MOST_HEAD_BYTES,
            max_field_size=_MOST_HEAD_BYTES,
        )
        await runner.setup()
        try:
            side_channel = self._driver.side_channel
            if side_channel is not None:
                await side_channel.start()
            secure = _secure(options.tls) if options.tls else None
            await web.TCPSite(runner, options.host, options.port, backlog=1024, ssl_context=secure).start()
            self._announce()
            with suppress(TimeoutError):
                await asyncio.wait_for(self._stop.wait(), options.startup_delay_s)
            self._api.ready = True
            await self._stop.wait()
            await self._drain()
            if side_channel is not None:
                side_channel.stop()
        finally:
            await runner.cleanup()
            self._stack.close()

    def _announce(self) -> None:
        options = self._options
        log.info(
            "simulated vLLM %s: model %s, profile %s, %sx, %d blocks of %d tokens, listening on %s:%d",
            SIMULATED_VERSION,
            options.served_names[0],
            options.profile_name,
            options.speedup,
            self._engine.limits.total_blocks,
            options.block_size,
            options.host,
            options.port,
        )
        if options.unknown:
            log.warning("arguments without meaning here: %s", " ".join(options.unknown))

    def _on_signal(self) -> None:
        if self._stop.is_set():
            log.warning("asked to stop again: stopping at once")
            os._exit(1)
        self._stop.set()

    async def _drain(self) -> None:
        """Finish what is in flight and wait for what is kept to be pulled; new requests are refused, as by vLLM."""
        self._api.draining = True
        deadline_s = self._loop.time() + self._options.shutdown_timeout_s
        log.info("stopping: %d requests in flight, %d leases", self._api.in_flight, self._engine.leases)
        # Answers, pulls and leases end each in their own way; looking is simpler than being told, and rare.
        while self._loop.time() < deadline_s and (self._api.in_flight or not self._driver.idle):  # noqa: ASYNC110
            await asyncio.sleep(0.05)
        if not self._driver.idle:
            log.warning("stopping with work left: --shutdown-timeout %gs is over", self._options.shutdown_timeout_s)
        self._driver.fail_all()
        await asyncio.sleep(0)

    def _strike(self, kind: str, duration_s: float | None) -> None:
        """Crash, or stand still as a stopped process does: nothing is answered, nothing moves."""
        if kind == "crash":
            self._loop.call_later(ANSWER_FIRST_S, os._exit, CRASH_CODE)
        else:
            self._loop.call_later(ANSWER_FIRST_S, time.sleep, min(duration_s or LONGEST_HANG_S, LONGEST_HANG_S))

    def _teller(self, options: KVEvents) -> Callable[[], None]:
        from swingpool.worker.kv_events import Publisher  # it needs libraries that nothing else does

        pool = self._engine.pool
        assert isinstance(pool, ToldPool)  # noqa: S101 - its limits say so
        publisher = Publisher(options, pool)
        self._stack.callback(publisher.close)
        return publisher.tell

    def _side_channel(self, engine_id: str) -> SideChannel:
        options, driver = self._options, self._driver
        assert options.kv_transfer is not None  # noqa: S101 - the caller's condition

        def blocks(request_id: str) -> tuple[int, ...] | None:
            lease = driver.lease(request_id)
            return lease.blocks if lease else None

        holder = Holder(
            engine_id=engine_id,
            compatibility=f"{SIMULATED_VERSION}/{options.model_source}/{options.block_size}/{options.kv_cache_dtype}",
            blocks=blocks,
            renew=driver.renew,
            release=driver.release,
        )
        return SideChannel(
            holder, host=options.kv_transfer.side_channel_host, port=options.kv_transfer.side_channel_port
        )


def _secure(files: TlsFiles) -> ssl.SSLContext:
    """Return what makes a server of TLS as vLLM's does."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(files.certificate, files.key)
    context.verify_mode = files.clients
    if files.trust is not None:
        context.load_verify_locations(files.trust)
    return context


def _limits(options: Options) -> Limits:
    return Limits(
        block_size=options.block_size,
        total_blocks=max(1, options.model.kv_capacity_tokens // options.block_size),
        max_batched_tokens=options.model.max_batched_tokens,
        max_sequences=options.model.max_sequences,
        lease_s=options.kv_transfer.lease_s if options.kv_transfer else 1.0,
        prefix_caching=options.prefix_caching,
        told=options.kv_events is not None,
        by_priority=options.by_priority,
    )


async def serve(options: Options) -> None:
    """Run a worker until it is told to stop.

    Raises:
        OSError: an address cannot be had.
    """
    prometheus_client.disable_created_metrics()  # type: ignore[no-untyped-call]
    await WorkerProcess(options).run()
