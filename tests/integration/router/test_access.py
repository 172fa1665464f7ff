"""TLS, API keys and tenants' limits, by a real Envoy: who gets in, as whom, how often; what a changed Secret does."""

import ssl
import subprocess
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from swingpool_control import names
from swingpool_control.resources.envoy_settings import TenantLimit
from tests.support.router_stand import MODEL, Stand
from tests.support.waiting import until_async

BURST = 5


def make_certificate(directory: Path, name: str) -> None:
    """Make a certificate of its own for 127.0.0.1, as a Secret of type kubernetes.io/tls holds it."""
    fresh = directory / "fresh"
    fresh.mkdir(exist_ok=True)
    subprocess.run(
        [
            *("openssl", "req", "-x509", "-nodes", "-newkey", "rsa:2048", "-days", "2", "-subj", f"/CN={name}"),
            *("-addext", "subjectAltName=IP:127.0.0.1"),
            *("-keyout", str(fresh / "tls.key"), "-out", str(fresh / "tls.crt")),
        ],
        check=True,
        capture_output=True,
    )
    for file in ("tls.key", "tls.crt"):
        (fresh / file).rename(directory / file)


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stand]:
    """A router over TLS that wants keys and limits every client."""
    directory = tmp_path_factory.mktemp("guarded")
    tls, keys = directory / "tls", directory / "keys"
    tls.mkdir()
    keys.mkdir()
    make_certificate(tls, "first")
    (keys / "alice").write_text("sk-alice\n")
    (keys / "bob").write_text("sk-bob")
    (keys / "same-as-bob").write_text("sk-bob")
    (keys / "empty").write_text("\n")
    (keys / "..data").mkdir()
    stand = Stand(
        directory=directory,
        tls_directory=tls,
        api_keys_directory=keys,
        tenant_limit=TenantLimit(requests_per_s=0.2, burst=BURST),
        worker_names=(("p0", "prefill"), ("d0", "decode")),
    )
    with stand:
        yield stand


@pytest.fixture
async def client(guarded: Stand) -> AsyncIterator[aiohttp.ClientSession]:
    """A client that trusts no certificate but the router's."""
    assert guarded.tls_directory
    trust = ssl.create_default_context(cafile=str(guarded.tls_directory / "tls.crt"))
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(ssl=trust)) as session:
        async with aiohttp.ClientSession() as plain:
            await guarded.all_in_rotation(plain)
        yield session


async def ask(stand: Stand, client: aiohttp.ClientSession, key: str = "", **headers: str) -> tuple[int, Any, Any]:
    body = {"model": MODEL, "prompt": "who am I", "max_tokens": 2}
    sent = headers | ({"authorization": f"Bearer {key}"} if key else {})
    async with client.post(f"{stand.url}/v1/completions", json=body, headers=sent) as response:
        return response.status, await response.json(), response.headers


@pytest.mark.parametrize("key", ["", "sk-nobody", "alice", "sk-alice2"])
async def test_without_a_good_key_nobody_gets_in(guarded: Stand, client: aiohttp.ClientSession, key: str) -> None:
    status, answer, _ = await ask(guarded, client, key)
    assert status == 401
    assert answer["error"]["message"].startswith("a valid API key is needed")
    async with client.get(f"{guarded.url}/v1/models") as models:
        assert models.status == 401


async def test_a_key_lets_its_client_in_and_workers_never_see_it(guarded: Stand, client: aiohttp.ClientSession) -> None:
    status, answer, _ = await ask(guarded, client, "sk-alice")
    assert status == 200, answer
    assert answer["usage"]["completion_tokens"] == 2
    for worker in guarded.workers:
        assert "sk-alice" not in guarded.log(worker)
    assert "sk-alice" not in guarded.log("picker")


async def test_each_client_is_a_tenant_of_its_own_whatever_it_says(
    guarded: Stand, client: aiohttp.ClientSession
) -> None:
    (guarded.directory / "keys" / "greedy").write_text("sk-greedy")
    (guarded.directory / "keys" / "modest").write_text("sk-modest")

    async def known() -> bool:
        return (await ask(guarded, client, "sk-greedy"))[0] == 200

    await until_async("the new keys are good", known)
    # A new tenant with each request is what a client would say that wants more than its part.
    answers = [
        await ask(guarded, client, "sk-greedy", **{names.HEADER_TENANT: f"somebody-{number}"})
        for number in range(BURST + 2)
    ]
    assert answers[0][0] == 200
    assert answers[-1][0] == 429
    assert answers[-1][1]["error"]["message"].startswith("too many requests")
    assert answers[-1][2]["retry-after"] == "5"
    assert (await ask(guarded, client, "sk-modest"))[0] == 200


async def test_a_key_that_was_taken_out_is_worth_nothing(guarded: Stand, client: aiohttp.ClientSession) -> None:
    path = guarded.directory / "keys" / "leaver"
    path.write_text("sk-leaver")

    async def status() -> int:
        return (await ask(guarded, client, "sk-leaver"))[0]

    async def good() -> bool:
        return await status() == 200

    async def bad() -> bool:
        return await status() == 401

    await until_async("the new key is good", good)
    path.unlink()
    await until_async("the key is worth nothing", bad)


async def test_keys_are_asked_for_while_the_picker_is_away(guarded: Stand, client: aiohttp.ClientSession) -> None:
    assert guarded.picker
    guarded.picker.kill()
    guarded.picker.wait()
    try:
        assert (await ask(guarded, client))[0] == 401
        status, answer, _ = await ask(guarded, client, "sk-bob")
        assert status == 200, answer
    finally:
        guarded.start_picker()


async def test_a_renewed_certificate_is_taken_up(guarded: Stand, client: aiohttp.ClientSession) -> None:
    del client
    assert guarded.tls_directory
    make_certificate(guarded.tls_directory, "second")
    renewed = ssl.create_default_context(cafile=str(guarded.tls_directory / "tls.crt"))

    async def served() -> bool:
        async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(ssl=renewed)) as session:
            try:
                async with session.get(f"{guarded.url}/healthz") as health:
                    return health.status == 200
            except aiohttp.ClientConnectorCertificateError:
                return False

    await until_async("clients see the renewed certificate", served)
