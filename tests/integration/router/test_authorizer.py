"""A real Envoy asks an external authorizer: who gets in, as whom, what workers see, and what happens unanswered."""

from collections.abc import AsyncIterator, Iterator
from dataclasses import replace
from typing import Any

import aiohttp
import pytest

from e2e.ports import free_port
from swingpool_control import names
from swingpool_control.resources.envoy_settings import AuthorizerService
from tests.support.authorizers import Authorizer, by_grpc, by_http
from tests.support.recorder import Recorder, recording
from tests.support.router_client import completion
from tests.support.router_stand import Stand
from tests.support.waiting import until_async

CLIENTS = {"Bearer sk-alice": "alice", "key-of-bob": "bob"}
ALICE = {"authorization": "Bearer sk-alice"}
HTTP = AuthorizerService(
    host="127.0.0.1",
    port=free_port(),
    grpc=False,
    path="/check",
    timeout_s=1.0,
    credentials=("authorization", "x-api-key"),
)
GRPC = replace(HTTP, port=free_port(), grpc=True, path="")


@pytest.fixture(scope="module")
def stands(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Stand]]:
    workers = (("p0", "prefill"), ("d0", "decode"))
    found = {}
    with (
        Stand(directory=tmp_path_factory.mktemp("http"), authorizer=HTTP, worker_names=workers) as found["http"],
        Stand(directory=tmp_path_factory.mktemp("grpc"), authorizer=GRPC, worker_names=workers) as found["grpc"],
    ):
        yield found


@pytest.fixture
async def session() -> AsyncIterator[aiohttp.ClientSession]:
    """A client whom the authorizer knows, as long as a request says nothing else."""
    timeout = aiohttp.ClientTimeout(total=60)
    async with aiohttp.ClientSession(headers=ALICE, timeout=timeout) as session:
        yield session


@pytest.fixture(params=["http", "grpc"])
async def guarded(
    request: pytest.FixtureRequest, stands: dict[str, Stand], session: aiohttp.ClientSession
) -> AsyncIterator[tuple[Stand, Authorizer, Recorder]]:
    """A router that asks an authorizer, before workers that keep what they get."""
    stand, authorizer = stands[request.param], Authorizer(CLIENTS)
    serve = by_grpc(authorizer, GRPC.port) if request.param == "grpc" else by_http(authorizer, HTTP.port)
    async with serve, recording(stand, session) as recorder:
        authorizer.asked.clear()
        yield stand, authorizer, recorder


Guarded = tuple[Stand, Authorizer, Recorder]


async def ask(
    stand: Stand, session: aiohttp.ClientSession, headers: dict[str, str], path: str = "/v1/completions"
) -> tuple[int, str, dict[str, str]]:
    async with session.post(f"{stand.url}{path}", json=completion(), headers=headers) as response:
        return response.status, await response.text(), {name.lower(): value for name, value in response.headers.items()}


async def test_the_authorizer_says_whose_a_request_is(guarded: Guarded, session: aiohttp.ClientSession) -> None:
    stand, authorizer, recorder = guarded
    forged = {names.HEADER_TENANT: "somebody", "x-request-id": "of-alice", "x-secret": "1"}
    assert (await ask(stand, session, forged))[0] == 200
    [question] = authorizer.asked
    assert question.method == "POST"
    assert question.path == ("/v1/completions" if stand.authorizer is GRPC else "/check/v1/completions")
    assert question.headers["authorization"] == "Bearer sk-alice"
    assert names.HEADER_TENANT not in question.headers
    assert "x-secret" not in question.headers
    assert question.body == b""
    async with session.get(f"http://127.0.0.1:{stand.http_port}/requests/of-alice") as told:
        [entry] = await told.json()
    assert entry["tenant"] == "alice"
    [served] = recorder.served
    assert served.headers["x-request-id"] == "of-alice"


async def test_workers_see_no_credentials_and_nothing_else_that_it_sets(
    guarded: Guarded, session: aiohttp.ClientSession
) -> None:
    stand, _, recorder = guarded
    assert (await ask(stand, session, {"x-api-key": "key-of-bob"}))[0] == 200
    for seen in (*recorder.legs, *recorder.served):
        assert not {"authorization", "x-api-key", "x-worker-flag"} & seen.headers.keys()
        assert "key-of-bob" not in str(seen.headers)
    assert len(recorder.served) == 1, "it went where the picker said"


async def test_its_refusal_is_the_clients_answer(guarded: Guarded, session: aiohttp.ClientSession) -> None:
    stand, _, recorder = guarded
    status, text, headers = await ask(stand, session, {"authorization": "Bearer sk-nobody"})
    if stand.authorizer is GRPC:
        assert (status, text) == (403, "not yours")
    else:
        assert status == 401
        assert text == '{"error": {"message": "ask the platform team"}}'
        assert headers["www-authenticate"] == "Bearer"
        assert headers["content-type"].startswith("application/json")
        assert "x-internal" not in headers
    assert not recorder.legs
    assert not recorder.served


async def test_other_paths_are_asked_about_too_and_probes_are_not(
    guarded: Guarded, session: aiohttp.ClientSession
) -> None:
    stand, authorizer, recorder = guarded
    assert (await ask(stand, session, {"authorization": "no"}, path="/v1/embeddings"))[0] in (401, 403)
    async with session.get(f"{stand.url}/v1/models", headers={"authorization": "no"}) as models:
        assert models.status in (401, 403)
    async with session.get(f"{stand.url}/healthz", headers={"authorization": "no"}) as health:
        assert health.status == 200
    assert len(authorizer.asked) == 2
    assert not recorder.served


async def test_it_is_asked_while_the_picker_is_away(guarded: Guarded, session: aiohttp.ClientSession) -> None:
    stand, _, _ = guarded
    assert stand.picker
    stand.picker.kill()
    stand.picker.wait()
    try:
        assert (await ask(stand, session, {"authorization": "no"}))[0] in (401, 403)

        async def served() -> bool:
            return (await ask(stand, session, {}))[0] == 200

        await until_async("a worker is found by Envoy alone", served)
    finally:
        stand.start_picker()


@pytest.mark.parametrize("kind", ["http", "grpc"])
async def test_nobody_gets_in_while_nobody_answers(
    stands: dict[str, Stand], session: aiohttp.ClientSession, kind: str
) -> None:
    status, text, _ = await ask(stands[kind], session, {})
    assert status == 503
    assert "whether the request is allowed is not known" in text


@pytest.mark.parametrize("trouble", [{"hangs": True}, {"status": 500}])
async def test_an_authorizer_in_trouble_lets_nobody_in(
    stands: dict[str, Stand], session: aiohttp.ClientSession, trouble: dict[str, Any]
) -> None:
    async with by_http(Authorizer(CLIENTS, **trouble), HTTP.port):
        assert (await ask(stands["http"], session, {}))[0] == 503


async def test_with_failure_mode_allow_requests_pass_as_nobodys(
    tmp_path_factory: pytest.TempPathFactory, session: aiohttp.ClientSession
) -> None:
    lax = replace(HTTP, port=free_port(), allows_unanswered=True)
    directory = tmp_path_factory.mktemp("lax")
    with Stand(directory=directory, authorizer=lax, worker_names=(("p0", "prefill"), ("d0", "decode"))) as stand:
        await stand.all_in_rotation(session)
        status, _, _ = await ask(stand, session, {names.HEADER_TENANT: "somebody", "x-request-id": "passed"})
        assert status == 200
        async with session.get(f"http://127.0.0.1:{stand.http_port}/requests/passed") as told:
            [entry] = await told.json()
        assert entry["tenant"] == ""
