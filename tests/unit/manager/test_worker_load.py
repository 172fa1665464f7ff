"""What draining workers say of themselves: real HTTP on loopback."""

import math
from collections.abc import AsyncIterator

import pytest
from aiohttp import web

from swingpool.kube import Object
from swingpool.telemetry.worker_load import MOST_BYTES, WorkerLoads, parse
from swingpool_control import names
from swingpool_control.figures import Unknown
from swingpool_control.observation import WorkerLoad

TEXT = """\
# HELP vllm:num_requests_running Number of requests in model execution batches.
# TYPE vllm:num_requests_running gauge
vllm:num_requests_running{engine="0",model_name="a} b"} 2.0
vllm:num_requests_running{engine="1",model_name="a} b"} 1.0 1760000000
vllm:num_requests_running_total{engine="0"} 99.0
vllm:num_requests_waiting 0.0
"""


def test_series_of_all_engines_add_up() -> None:
    assert parse(TEXT, now_unix_s=5.0) == WorkerLoad(running=3.0, waiting=0.0, scraped_unix_s=5.0)


@pytest.mark.parametrize("line", ["", "vllm:num_requests_running{} NaN", "vllm:num_requests_running ", "vllm:num_r"])
def test_what_is_missing_or_no_number_is_unknown(line: str) -> None:
    load = parse(line + "\n", now_unix_s=5.0)
    assert isinstance(load.running, Unknown)
    assert isinstance(load.waiting, Unknown)


class Worker:
    """Answers one text at /metrics."""

    def __init__(self) -> None:
        self.text, self.status, self.asked, self.port = TEXT, 200, 0, 0

    async def answer(self, request: web.Request) -> web.Response:
        assert request.path == "/metrics"
        self.asked += 1
        return web.Response(text=self.text, status=self.status)


@pytest.fixture
async def worker() -> AsyncIterator[Worker]:
    one = Worker()
    application = web.Application()
    application.add_routes([web.get("/metrics", one.answer)])
    runner = web.AppRunner(application)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    one.port = runner.addresses[0][1]
    yield one
    await runner.cleanup()


def pod(name: str, *, role: str = names.ROLE_DRAINING, address: str = "127.0.0.1", deleting: bool = False) -> Object:
    end = {"deletionTimestamp": "now"} if deleting else {}
    return {
        "metadata": {"name": name, "labels": {names.LABEL_ROLE: role}, **end},
        "status": {"podIP": address} if address else {},
    }


async def test_only_draining_workers_are_asked_and_silence_is_left_out(worker: Worker) -> None:
    loads = WorkerLoads(now_unix_s=lambda: 7.0, port=worker.port)
    try:
        pods = [
            pod("drains"),
            pod("serves", role=names.ROLE_DECODE),
            pod("ends", deleting=True),
            pod("starts", address=""),
            pod("silent", address="127.0.0.2"),
        ]
        assert await loads.observe(pods) == {"drains": WorkerLoad(running=3.0, waiting=0.0, scraped_unix_s=7.0)}
        assert worker.asked == 1
        worker.status = 500
        assert await loads.observe(pods) == {}
        worker.status, worker.text = 200, "x" * (MOST_BYTES + math.ceil(MOST_BYTES / 2))
        (load,) = (await loads.observe(pods)).values()
        assert isinstance(load.running, Unknown)
    finally:
        await loads.close()
