"""Asks every worker whether it lives and what it does: /health twice a second, /metrics once.

A refused connection or a bad answer takes a worker out of rotation at once; silence does after two tries in a row,
which is within 3 s of the moment it hangs: neither question waits for the other's answer. One good answer puts it back.
"""

import asyncio
import logging
import time
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from dataclasses import replace

import aiohttp

from swingpool.picker.fleet import Fleet
from swingpool.picker.leg import end_overdue
from swingpool.picker.wire import Tls
from swingpool.picker.worker import Worker
from swingpool.telemetry import worker_page
from swingpool.telemetry.vllm_page import WorkerFigures, parse
from swingpool_control.figures import Unknown

INTERVAL_S = 0.5
TIMEOUT_S = 1.0
RETRY_S = 0.1
SILENCES = 2
SCRAPE_INTERVAL_S = 1.0
STALE_AFTER_S = 5.0
"""Figures older than this are unknown."""

Scraped = Callable[[Worker, WorkerFigures], None]
"""Told after each scrape: the worker, and its figures of before."""

log = logging.getLogger(__name__)


class Prober:
    """Runs two tasks per worker; workers come and go with the fleet's membership.

    Args:
        fleet: the workers.
        session: asks them.
        on_scrape: told after each scrape.
        tls: how those are asked that speak TLS.
    """

    def __init__(
        self, fleet: Fleet, session: aiohttp.ClientSession, *, on_scrape: Scraped, tls: Tls | None = None
    ) -> None:
        self._fleet = fleet
        self._session = session
        self._on_scrape = on_scrape
        self._tls = tls
        self._tasks: dict[Worker, tuple[asyncio.Task[None], ...]] = {}
        fleet.on_membership(self.follow)

    def follow(self) -> None:
        """Start tasks for new workers; they end by themselves once their worker is gone."""
        self._tasks = {worker: tasks for worker, tasks in self._tasks.items() if not all(one.done() for one in tasks)}
        for worker in self._fleet.workers():
            if worker not in self._tasks:
                self._tasks[worker] = (
                    asyncio.create_task(self._probe_for_ever(worker), name=f"probe {worker.member.pod}"),
                    asyncio.create_task(self._scrape_for_ever(worker), name=f"scrape {worker.member.pod}"),
                )

    async def close(self) -> None:
        """End all tasks."""
        tasks = [task for both in self._tasks.values() for task in both]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _exists(self, worker: Worker) -> bool:
        return self._fleet.get(worker.member.address) is worker

    async def _probe_for_ever(self, worker: Worker) -> None:
        silences = 0
        while self._exists(worker):
            fault, silent = await self._health(worker)
            silences = silences + 1 if silent else 0
            if not silent or silences >= SILENCES:
                self._fleet.probed(worker, fault=fault)
            await asyncio.sleep(RETRY_S if 0 < silences < SILENCES else INTERVAL_S)

    async def _scrape_for_ever(self, worker: Worker) -> None:
        while self._exists(worker):
            try:
                await self._scrape(worker)
            except Exception:
                # Whatever a worker may answer, its figures must not stand still for ever.
                log.exception("the metrics of a worker cannot be read", extra={"worker": worker.member.pod})
            if _forget_stale(worker):
                self._fleet.scraped(worker)
            end_overdue(worker, now_s=time.monotonic())
            await asyncio.sleep(SCRAPE_INTERVAL_S)

    def _asked(self, worker: Worker, path: str) -> AbstractAsyncContextManager[aiohttp.ClientResponse]:
        address = worker.member.address
        if self._tls is None or not worker.member.tls:
            return self._session.get(f"http://{address}{path}")
        return self._session.get(
            f"https://{address}{path}", ssl=self._tls.context, server_hostname=self._tls.server_name
        )

    async def _health(self, worker: Worker) -> tuple[str, bool]:
        """Return what is wrong, empty if nothing, and whether it was silence, which may pass."""
        try:
            async with asyncio.timeout(TIMEOUT_S), self._asked(worker, "/health") as response:
                if response.status == 200:
                    return "", False
                return f"it answers /health with {response.status}", False
        except TimeoutError:
            return f"it has not answered /health within {TIMEOUT_S:g} s, {SILENCES} times in a row", True
        except (aiohttp.ClientConnectorSSLError, aiohttp.ClientConnectorCertificateError) as error:
            return f"no TLS with it: {error}", False
        except aiohttp.ClientConnectorError as error:
            return f"it cannot be connected to: {error.os_error.strerror or error.os_error}", False
        except aiohttp.ClientError as error:
            # An idle connection that the worker closed just now looks like this; a dead worker does so twice.
            return f"it broke off the connection: {type(error).__name__}", True

    async def _scrape(self, worker: Worker) -> None:
        """Read the metrics; a failure says nothing of the worker's health, and leaves the figures to grow stale."""
        try:
            async with asyncio.timeout(TIMEOUT_S), self._asked(worker, "/metrics") as response:
                text = await worker_page.read(response)
        except (TimeoutError, aiohttp.ClientError):
            return
        if text is None:
            return
        before, now_unix_s = worker.figures, time.time()
        worker.scraped(parse(text, now_unix_s=now_unix_s), now_unix_s=now_unix_s)
        self._fleet.scraped(worker)
        self._on_scrape(worker, before)


def _forget_stale(worker: Worker) -> bool:
    scraped = worker.figures.scraped_unix_s
    if (
        isinstance(scraped, Unknown)
        or time.time() - scraped < STALE_AFTER_S
        or isinstance(worker.figures.running, Unknown)
    ):
        return False
    stale = Unknown(f"its last scrape is older than {STALE_AFTER_S:g} s")
    worker.figures = replace(worker.figures, running=stale, waiting=stale, kv_usage=stale)
    return True
