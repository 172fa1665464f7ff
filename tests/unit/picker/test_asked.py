"""What the picker asks of workers, and what it is asked itself."""

import asyncio

import aiohttp
from aiohttp import web
from aiohttp.test_utils import TestClient, TestServer

from swingpool.picker.fleet import Fleet
from swingpool.picker.http import application
from swingpool.picker.journal import Journal
from swingpool.picker.members import Member
from swingpool.picker.metrics import RouterMetrics
from swingpool.picker.probe import Prober
from swingpool_control.observation import RouterObservation


async def test_health_is_asked_while_metrics_do_not_come() -> None:
    """A worker that hangs amid a scrape would be noticed a second late otherwise."""
    held: list[asyncio.Event] = []

    async def health(_: web.Request) -> web.Response:
        while held:
            held.pop().set()
        return web.Response()

    async def metrics(_: web.Request) -> web.Response:
        held.append(asyncio.Event())
        await held[-1].wait()
        return web.Response(body=b"vllm:num_requests_running 3.0\n", headers={"content-type": "text/plain; charset=?"})

    app = web.Application()
    app.router.add_get("/health", health)
    app.router.add_get("/metrics", metrics)
    fleet = Fleet()
    async with TestServer(app) as server, aiohttp.ClientSession() as session:
        prober = Prober(fleet, session, on_scrape=lambda *_: None)
        fleet.publish([Member(pod="a", uid="a", address=f"127.0.0.1:{server.port}", role="decode")])
        worker = next(iter(fleet.workers()))
        async with asyncio.timeout(30):
            while worker.figures.running != 3.0:  # noqa: ASYNC110 - nobody tells of a scrape
                await asyncio.sleep(0.05)
        await prober.close()


async def test_a_picker_that_knows_no_workers_yet_tells_nothing() -> None:
    seen: list[RouterObservation | None] = [None]
    app = application(fleet=Fleet(), metrics=RouterMetrics(), observe=seen.pop, journal=Journal(), not_ready=str)
    async with TestClient(TestServer(app)) as client:
        assert (await client.get("/state")).status == 503
