"""Workers before an external router are asked for what they do, and what they do not say is unknown."""

from collections.abc import AsyncIterator

import pytest
from aiohttp import web

from swingpool.kube import Object
from swingpool.manager.store import Key
from swingpool.manager.worker_poll import FRESH_S, WorkerPoll
from swingpool.telemetry.worker_page import MOST_BYTES
from swingpool_control import names
from swingpool_control.figures import Unknown

TEXT = """vllm:num_requests_running{engine="0",model_name="m"} 2.0
vllm:num_requests_running{engine="1",model_name="m"} 1.0
vllm:num_requests_waiting{engine="0",model_name="m"} 0.0
"""
KEY = Key("ns", "chat")


class Worker:
    """Answers one text at /metrics."""

    def __init__(self) -> None:
        self.text, self.status, self.asked, self.port = TEXT, 200, 0, 0

    async def answer(self, request: web.Request) -> web.Response:
        assert request.path == "/metrics"
        self.asked += 1
        return web.Response(text=self.text, status=self.status)


class Clock:
    """Both clocks of the poll."""

    def __init__(self) -> None:
        self.now_s = 1000.0

    def __call__(self) -> float:
        return self.now_s


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


def pod(name: str, *, role: str, address: str = "127.0.0.1", component: str = names.COMPONENT_WORKER) -> Object:
    return {
        "metadata": {
            "name": name,
            "uid": f"uid-{name}",
            "labels": {names.LABEL_ROLE: role, names.LABEL_COMPONENT: component},
        },
        "status": {"conditions": [{"type": "Ready", "status": "True"}]} | ({"podIP": address} if address else {}),
    }


async def test_workers_with_an_address_are_asked_and_roles_decide_on_rotation(worker: Worker) -> None:
    clock = Clock()
    poll = WorkerPoll(monotonic=clock, now_unix_s=clock, port=worker.port)
    pods = [
        pod("drains", role=names.ROLE_DRAINING),
        pod("serves", role=names.ROLE_DECODE),
        pod("starts", role=names.ROLE_DECODE, address=""),
        pod("silent", role=names.ROLE_DECODE, address="127.0.0.2"),
        pod("router", role="", component=names.COMPONENT_ROUTER),
    ]
    try:
        seen = {one.pod: one for one in (await poll.observe(KEY, pods)).workers}
        assert seen.keys() == {"drains", "serves", "silent"}
        assert worker.asked == 2
        assert {name: one.in_rotation for name, one in seen.items()} == {
            "drains": False, "serves": True, "silent": False,
        }  # fmt: skip
        assert seen["serves"].running == 3.0
        assert isinstance(seen["silent"].running, Unknown)
        await poll.observe(KEY, pods)
        assert worker.asked == 2, "a fresh answer is not asked for again"
        clock.now_s += FRESH_S
        observation = await poll.observe(KEY, pods)
        assert isinstance(observation.requests_per_s, Unknown)
        assert "silent" in observation.requests_per_s.why
    finally:
        await poll.close()


@pytest.mark.parametrize(("status", "text"), [(500, TEXT), (200, "x" * (2 * MOST_BYTES)), (200, "")])
async def test_what_is_no_answer_says_nothing(worker: Worker, status: int, text: str) -> None:
    worker.status, worker.text = status, text
    poll = WorkerPoll(monotonic=Clock(), now_unix_s=Clock(), port=worker.port)
    try:
        [one] = (await poll.observe(KEY, [pod("odd", role=names.ROLE_DECODE)])).workers
        assert isinstance(one.running, Unknown)
        assert isinstance(one.waiting, Unknown)
    finally:
        await poll.close()
