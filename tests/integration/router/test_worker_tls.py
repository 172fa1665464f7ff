"""Mutual TLS between a real Envoy, a real picker and workers: both legs, probes and scrapes; nobody else gets in."""

import json
import ssl
import subprocess
from collections.abc import AsyncIterator, Iterator

import aiohttp
import pytest

from swingpool.picker.certificate import WorkerTls
from swingpool_control import names
from swingpool_control.figures import Unknown
from swingpool_control.reserve.mark import Mark, State
from swingpool_control.vllm.probes import started_command
from tests.support.certificates import make_ca, sign
from tests.support.router_client import ask, completion
from tests.support.router_stand import Stand, WorkerProcess
from tests.support.waiting import until_async

NAME = "worker.of-chat"


@pytest.fixture(scope="module")
def _secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stand]:
    directory = tmp_path_factory.mktemp("secured")
    for ca in ("ours", "others"):
        make_ca(directory / ca, ca)
    sign(directory / "ours", directory / "worker", NAME)
    sign(directory / "ours", directory / "client", "router")
    sign(directory / "others", directory / "stranger", NAME)
    sign(directory / "ours", directory / "misnamed", "somebody-else")
    with Stand(directory=directory, worker_tls=directory, worker_tls_name=NAME) as stand:
        yield stand


@pytest.fixture
async def secured(_secured: Stand, session: aiohttp.ClientSession) -> AsyncIterator[Stand]:
    """A router and four workers that speak TLS."""
    await _secured.repair(session)
    yield _secured
    for worker in _secured.workers.values():
        worker.tls = "worker"
    _secured.list_workers()


@pytest.mark.parametrize("stream", [False, True])
async def test_both_legs_go_over_tls(secured: Stand, session: aiohttp.ClientSession, stream: bool) -> None:
    computed = await secured.metric(session, 'swingpool_router_prefill_leg_seconds_count{outcome="computed"}')
    for _ in range(4):
        answer = await ask(session, secured.url, completion(list(range(300)), stream=stream))
        assert answer.status == 200, answer.text
        assert answer.text
    after = await secured.metric(session, 'swingpool_router_prefill_leg_seconds_count{outcome="computed"}')
    assert after == computed + 4
    for worker in (await secured.state(session)).workers:
        assert not isinstance(worker.kv_usage, Unknown), "its metrics are read"


async def test_workers_speak_to_nobody_without_a_certificate(secured: Stand, session: aiohttp.ClientSession) -> None:
    worker = secured.workers["d0"]
    bare = ssl.create_default_context(cafile=str(secured.directory / "ours" / "ca.crt"))
    bare.check_hostname = False
    with pytest.raises((aiohttp.ClientError, ssl.SSLError, OSError)):
        async with session.get(f"https://{worker.address}/v1/models", ssl=bare) as response:
            await response.read()
    with pytest.raises(aiohttp.ClientError):
        async with session.get(f"http://{worker.address}/v1/models") as response:
            await response.read()


@pytest.mark.parametrize("identity", ["stranger", "misnamed"])
async def test_a_worker_that_cannot_show_who_it_is_gets_nothing(
    secured: Stand, session: aiohttp.ClientSession, identity: str
) -> None:
    secured.restart_worker("d0", tls=identity)

    async def out() -> bool:
        return "no TLS with it" in (await secured.worker(session, "d0")).why_not

    try:
        await until_async("it is out of rotation", out)
        for _ in range(4):
            answer = await ask(session, secured.url, completion(list(range(300))))
            assert answer.status == 200, answer.text
    finally:
        secured.restart_worker("d0", tls="worker")


async def test_workers_of_both_kinds_serve_side_by_side(secured: Stand, session: aiohttp.ClientSession) -> None:
    for name in ("p0", "d0"):
        secured.restart_worker(name, tls="")
    await secured.all_in_rotation(session)
    before = {name: (await secured.worker(session, name)).decodes_served for name in ("d0", "d1")}

    async def both_served() -> bool:
        answer = await ask(session, secured.url, completion(list(range(300))))
        assert answer.status == 200, answer.text
        return all([(await secured.worker(session, name)).decodes_served > before[name] for name in before])

    await until_async("workers with TLS and without have served", both_served)
    for name in ("p0", "d0"):
        secured.restart_worker(name, tls="worker")
    await secured.all_in_rotation(session)


def test_a_workers_own_probe_shows_its_own_certificate(secured: Stand) -> None:
    worker: WorkerProcess = secured.workers["p1"]
    command = started_command(f"https://{worker.address}", own=str(secured.directory / "worker"))
    assert subprocess.run(command, check=False, timeout=60).returncode == 0
    command = started_command(f"https://{worker.address}", own=str(secured.directory / "stranger"))
    assert subprocess.run(command, check=False, timeout=60, capture_output=True).returncode != 0


def test_a_renewed_certificate_is_taken_up_and_a_broken_one_is_not(secured: Stand) -> None:
    directory = secured.directory / "renewed"
    sign(secured.directory / "ours", directory, "router")
    certificate = WorkerTls(directory)
    sign(secured.directory / "others", directory, "router")
    certificate.look()
    trusted = {json.dumps(one["subject"]) for one in certificate.context.get_ca_certs()}
    assert len(trusted) == 2, "the new CA is trusted, and the old one until the next start"
    (directory / "tls.crt").write_text("no certificate")
    certificate.look()
    assert certificate.context.cert_store_stats()["x509_ca"] == 2


async def test_a_worker_is_put_to_sleep_and_woken_as_its_pod_says_and_not_otherwise(
    secured: Stand, session: aiohttp.ClientSession
) -> None:
    worker = secured.workers["d1"]

    async def told(call: str, pod: str = "d1") -> int:
        url = f"http://127.0.0.1:{secured.http_port}/workers/{pod}/{call}"
        async with session.post(url) as answer:
            return answer.status

    async def sleeps() -> bool:
        own = WorkerTls(secured.directory / "client").context
        url = f"https://{worker.address}/is_sleeping"
        async with session.get(url, ssl=own, server_hostname=NAME) as answer:
            return bool((await answer.json())["is_sleeping"])

    async def marked(state: State) -> None:
        worker.asleep = Mark(state=state, since_unix_s=0.0, restarts=0).to_json()
        worker.role = names.ROLE_ASLEEP
        secured.list_workers()

    async def once_seen(call: str) -> None:
        async def done() -> bool:
            return await told(call) == 200

        await until_async("the picker has seen the mark", done)

    try:
        assert await told("sleep", pod="nobody") == 404
        assert [await told(call) for call in ("sleep", "wake")] == [409, 409]
        await marked(State.FALLING_ASLEEP)
        await once_seen("sleep")
        assert await sleeps()
        await marked(State.WAKING)

        async def refuses_sleep() -> bool:
            return await told("sleep") == 409

        await until_async("who wakes is not put to sleep", refuses_sleep)
        assert await told("wake") == 200
        assert not await sleeps()
    finally:
        await secured.repair(session)
