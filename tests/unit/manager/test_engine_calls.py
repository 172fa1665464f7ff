"""Who is asked to make a worker sleep: itself, or a router's picker where it speaks TLS."""

from collections.abc import AsyncIterator
from typing import Any

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from swingpool.kube import Object
from swingpool.manager.engine_calls import EngineCalls
from swingpool_control import names
from swingpool_control.actions import EngineCall, PatchWorker
from tests.support.kubernetes import ready_status

WRITE = PatchWorker(pod="w", uid="u", expected_role=names.ROLE_ASLEEP, reason="test")
SLEEP = EngineCall(pod="w", uid="u", call="sleep", then=WRITE)


class Peers:
    """Whatever is asked on loopback, and what it answers."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.status = 200

    async def answer(self, request: web.Request) -> web.Response:
        """Keep what was asked."""
        self.asked.append(request.path_qs)
        return web.Response(status=self.status)


@pytest.fixture
async def peers() -> AsyncIterator[tuple[Peers, int]]:
    found, app = Peers(), web.Application()
    app.router.add_post("/{path:.*}", found.answer)
    async with TestServer(app, host="127.0.0.1") as server:
        assert server.port
        yield found, server.port


def pod(name: str, component: str, *labels: str, ready: bool = True) -> Object:
    status: dict[str, Any] = ready_status("127.0.0.1")
    return {
        "metadata": {
            "name": name,
            "uid": name,
            "labels": {names.LABEL_COMPONENT: component} | dict.fromkeys(labels, "true"),
        },
        "status": status if ready else {"podIP": "127.0.0.1"},
    }


async def written(port: int, worker: Object, *pods: Object) -> list[PatchWorker]:
    """Return what was written after a call."""
    found: list[PatchWorker] = []

    async def write(patch: PatchWorker) -> None:
        found.append(patch)

    calls = EngineCalls(port=port, picker_port=port)
    assert calls.start(worker, SLEEP, write, pods=pods)
    await calls.settle()
    await calls.close()
    return found


SECURE = pod("w", names.COMPONENT_WORKER, names.LABEL_TLS)
ROUTER = pod("r", names.COMPONENT_ROUTER)


async def test_a_worker_in_plain_text_is_told_itself(peers: tuple[Peers, int]) -> None:
    asked, port = peers
    assert await written(port, pod("w", names.COMPONENT_WORKER), ROUTER) == [WRITE]
    assert asked.asked == ["/sleep?level=1&mode=wait"]


async def test_one_that_speaks_tls_is_told_through_a_router_that_is_ready(peers: tuple[Peers, int]) -> None:
    asked, port = peers
    starting = pod("r0", names.COMPONENT_ROUTER, ready=False)
    assert await written(port, SECURE, SECURE, starting, ROUTER) == [WRITE]
    assert asked.asked == ["/workers/w/sleep"]


async def test_without_a_router_nobody_is_told_and_nothing_written(peers: tuple[Peers, int]) -> None:
    asked, port = peers
    assert await written(port, SECURE, SECURE) == []
    assert asked.asked == []


async def test_what_a_picker_refuses_is_not_written(peers: tuple[Peers, int]) -> None:
    asked, port = peers
    asked.status = 409
    assert await written(port, SECURE, ROUTER) == []
