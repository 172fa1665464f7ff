"""A real Envoy asks authorizers over TLS: the right one alone is believed, and why another is not can be found."""

import json
import ssl
from collections.abc import AsyncIterator, Iterator
from contextlib import AbstractAsyncContextManager
from pathlib import Path

import aiohttp
import pytest

from e2e.ports import free_port
from swingpool_control.resources import envoy_upstream_tls
from swingpool_control.resources.envoy_authorizer import CERTIFICATE, TRUST
from swingpool_control.resources.envoy_settings import AuthorizerService, AuthorizerTls
from tests.support.authorizers import Authorizer, by_grpc, by_http
from tests.support.certificates import make_ca, sign
from tests.support.router_client import completion
from tests.support.router_stand import Stand
from tests.support.waiting import until_async

NAME = "authorizer.of-chat"
CLIENTS = {"Bearer sk-alice": "alice"}
ALICE = {"authorization": "Bearer sk-alice"}
KINDS = ["https", "grpcs"]
REFUSED = {"untrusted": ("others", NAME), "misnamed": ("ours", "somebody-else")}
"""Who an authorizer may say it is, by how Envoy's refusal is called."""


def _service(directory: Path, *, grpc: bool) -> AuthorizerService:
    """Return an authorizer known by our CA; by gRPC one without which requests pass."""
    files = {
        TRUST: envoy_upstream_tls.trust(TRUST, str(directory / "ours")),
        CERTIFICATE: envoy_upstream_tls.certificate(CERTIFICATE, str(directory / "router")),
    }
    for name, content in files.items():
        (directory / f"{name}.json").write_text(json.dumps(content))
    return AuthorizerService(
        host="127.0.0.1",
        port=free_port(),
        grpc=grpc,
        allows_unanswered=grpc,
        credentials=("authorization",),
        tls=AuthorizerTls(
            server_name=NAME,
            trust_file=str(directory / f"{TRUST}.json"),
            certificate_file=str(directory / f"{CERTIFICATE}.json"),
        ),
    )


@pytest.fixture(scope="module")
def stands(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Stand]]:
    workers = (("p0", "prefill"), ("d0", "decode"))
    directories = {kind: tmp_path_factory.mktemp(kind) for kind in KINDS}
    for directory in directories.values():
        for ca in ("ours", "others"):
            make_ca(directory / ca, ca)
        sign(directory / "ours", directory / "router", "router")
    found = {}
    services = {kind: _service(directory, grpc=kind == "grpcs") for kind, directory in directories.items()}
    with (
        Stand(directory=directories["https"], authorizer=services["https"], worker_names=workers) as found["https"],
        Stand(directory=directories["grpcs"], authorizer=services["grpcs"], worker_names=workers) as found["grpcs"],
    ):
        yield found


@pytest.fixture
async def session() -> AsyncIterator[aiohttp.ClientSession]:
    """A client whom the authorizer knows."""
    async with aiohttp.ClientSession(headers=ALICE, timeout=aiohttp.ClientTimeout(total=60)) as session:
        yield session


def _serve(
    stand: Stand, authorizer: Authorizer, *, ca: str = "ours", name: str = NAME, clients: str = "ours"
) -> AbstractAsyncContextManager[Authorizer]:
    """Serve as who a CA says, to those alone who show a certificate of another."""
    service = stand.authorizer
    assert service
    own = stand.directory / f"{ca}-{name}"
    sign(stand.directory / ca, own, name)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(own / "tls.crt", own / "tls.key")
    context.load_verify_locations(stand.directory / clients / "ca.crt")
    context.verify_mode = ssl.CERT_REQUIRED
    if service.grpc:
        context.set_alpn_protocols(["h2"])
    return (by_grpc if service.grpc else by_http)(authorizer, service.port, tls=context)


async def _ask(stand: Stand, session: aiohttp.ClientSession, key: str, request: str) -> int:
    headers = {"authorization": key, "x-request-id": request}
    async with session.post(f"{stand.url}/v1/completions", json=completion(), headers=headers) as response:
        await response.read()
        return response.status


async def _tenant(stand: Stand, session: aiohttp.ClientSession, request: str) -> str:
    async with session.get(f"http://127.0.0.1:{stand.http_port}/requests/{request}") as told:
        [entry] = await told.json()
    return str(entry["tenant"])


async def _sees(stand: Stand, session: aiohttp.ClientSession, series: str, *, beyond: float = 0.0) -> None:
    async def grown() -> bool:
        return await stand.metric(session, series) > beyond

    await until_async(f"the picker tells of {series}", grown)


@pytest.mark.parametrize("kind", KINDS)
async def test_it_is_asked_over_tls_and_sees_the_routers_certificate(
    stands: dict[str, Stand], session: aiohttp.ClientSession, kind: str
) -> None:
    stand, authorizer = stands[kind], Authorizer(CLIENTS)
    async with _serve(stand, authorizer):
        await stand.all_in_rotation(session)
        assert await _ask(stand, session, "Bearer sk-alice", f"good-{kind}") == 200
        assert await _tenant(stand, session, f"good-{kind}") == "alice"
        assert await _ask(stand, session, "Bearer sk-nobody", "bad") in (401, 403)
        for outcome in ("allowed", "denied"):
            await _sees(stand, session, f'swingpool_router_authorizer_requests_total{{outcome="{outcome}"}}')


@pytest.mark.parametrize("trouble", REFUSED)
@pytest.mark.parametrize("kind", KINDS)
async def test_nobody_else_is_asked_and_why_can_be_found(
    stands: dict[str, Stand], session: aiohttp.ClientSession, kind: str, trouble: str
) -> None:
    stand, authorizer = stands[kind], Authorizer(CLIENTS)
    ca, name = REFUSED[trouble]
    async with _serve(stand, authorizer, ca=ca, name=name):
        await _unanswered(stand, session, f"{trouble}-{kind}", trouble=trouble)
    assert not authorizer.asked


@pytest.mark.parametrize("kind", KINDS)
async def test_one_that_does_not_take_our_certificate_is_told_of(
    stands: dict[str, Stand], session: aiohttp.ClientSession, kind: str
) -> None:
    stand, authorizer = stands[kind], Authorizer(CLIENTS)
    async with _serve(stand, authorizer, clients="others"):
        await _unanswered(stand, session, f"stranger-{kind}", trouble="broke_off")
    assert not authorizer.asked


async def test_one_that_speaks_plain_text_is_not_asked(
    stands: dict[str, Stand], session: aiohttp.ClientSession
) -> None:
    stand, authorizer = stands["https"], Authorizer(CLIENTS)
    assert stand.authorizer
    async with by_http(authorizer, stand.authorizer.port):
        await _unanswered(stand, session, "plain", trouble="no_tls")
    assert not authorizer.asked


async def test_one_that_is_away_is_told_of(stands: dict[str, Stand], session: aiohttp.ClientSession) -> None:
    await _unanswered(stands["https"], session, "away", trouble="unreachable")


async def _unanswered(stand: Stand, session: aiohttp.ClientSession, request: str, *, trouble: str) -> None:
    """Check that a request goes the way of the failure mode, and that the picker says why."""
    assert stand.authorizer
    reason = f'swingpool_router_authorizer_troubles_total{{reason="{trouble}"}}'
    before = await stand.metric(session, reason)
    if stand.authorizer.allows_unanswered:
        assert await _ask(stand, session, "Bearer sk-alice", request) == 200
        assert await _tenant(stand, session, request) == ""
    else:
        assert await _ask(stand, session, "Bearer sk-alice", request) == 503
    await _sees(stand, session, 'swingpool_router_authorizer_requests_total{outcome="unanswered"}')
    await _sees(stand, session, reason, beyond=before)
