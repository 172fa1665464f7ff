"""Requests through Envoy, picker and two workers each: nothing a client sees differs from a single worker's answer."""

import asyncio
import json
from typing import Any

import aiohttp
import pytest
from yarl import URL

from tests.support.router_client import ask, chat, completion
from tests.support.router_stand import MODEL, Stand
from tests.support.waiting import until_async

SPLIT = 'swingpool_router_decisions_total{kind="split"}'
WHOLE = 'swingpool_router_decisions_total{kind="whole"}'


@pytest.mark.parametrize(
    "body",
    [
        completion(),
        completion(stream=True),
        completion([11, 12, 13, 14, 15]),
        chat(),
        chat(stream=True),
        chat(stream=True, stream_options={"include_usage": True}, min_tokens=4, max_completion_tokens=6),
    ],
    ids=["completion", "completion-stream", "tokens", "chat", "chat-stream", "chat-stream-options"],
)
async def test_split_answer_equals_a_single_workers(
    stand: Stand, session: aiohttp.ClientSession, body: dict[str, Any]
) -> None:
    alone = await ask(session, f"http://{stand.workers['d0'].address}", body, headers={"x-request-id": "same"})
    before = await stand.metric(session, SPLIT)
    answer = await ask(session, stand.url, body, headers={"x-request-id": "same"})
    assert answer.status == 200
    assert (answer.text, answer.chunks, answer.usage) == (alone.text, alone.chunks, alone.usage)
    assert answer.headers["x-request-id"] == "same"
    assert await stand.metric(session, SPLIT) == before + 1


@pytest.mark.parametrize("more", [{"n": 2}, {"prompt": ["one two", "three four"]}, {"echo": True}], ids=str)
async def test_what_cannot_be_split_is_served_whole(
    stand: Stand, session: aiohttp.ClientSession, more: dict[str, Any]
) -> None:
    before = await stand.metric(session, WHOLE)
    answer = await ask(session, stand.url, completion(**more))
    assert answer.status == 200, answer.text
    assert await stand.metric(session, WHOLE) == before + 1


async def test_load_is_spread_over_both_roles(stand: Stand, session: aiohttp.ClientSession) -> None:
    before = {one.pod: (one.prefills_served, one.decodes_served) for one in (await stand.state(session)).workers}
    answers = await asyncio.gather(*(ask(session, stand.url, completion(f"{i} two three")) for i in range(12)))
    assert [answer.status for answer in answers] == [200] * 12

    async def counted() -> bool:
        workers = (await stand.state(session)).workers
        served = {w.pod: (w.prefills_served - before[w.pod][0], w.decodes_served - before[w.pod][1]) for w in workers}
        idle = all(w.decodes_in_flight == 0 and w.pending_prefill_tokens == 0 for w in workers)
        prefills, decodes = (served["p0"][0], served["p1"][0]), (served["d0"][1], served["d1"][1])
        return idle and sum(prefills) == 12 and sum(decodes) == 12 and min(*prefills, *decodes) >= 3

    await until_async("every worker has served its part, and none holds any", counted)


async def test_errors_of_workers_reach_the_client_as_they_are(stand: Stand, session: aiohttp.ClientSession) -> None:
    body = completion(model="nobody")
    alone = await ask(session, f"http://{stand.workers['d0'].address}", body)
    answer = await ask(session, stand.url, body)
    assert (answer.status, json.loads(answer.text)) == (alone.status, json.loads(alone.text))
    assert 400 <= answer.status < 500


@pytest.mark.parametrize("raw", [b"{", b"[1]", b'"text"', b"\xff\xfe", b'{"prompt": null}'])
async def test_bodies_that_make_no_sense_are_refused(stand: Stand, session: aiohttp.ClientSession, raw: bytes) -> None:
    headers = {"content-type": "application/json"}
    async with session.post(f"{stand.url}/v1/completions", data=raw, headers=headers) as response:
        assert 400 <= response.status < 500
        assert "error" in await response.json()


async def test_the_rest_of_v1_passes_through(stand: Stand, session: aiohttp.ClientSession) -> None:
    async with session.get(f"{stand.url}/v1/models") as response:
        assert response.status == 200
        assert [model["id"] for model in (await response.json())["data"]] == [MODEL]


async def test_nothing_outside_v1_is_reachable(stand: Stand, session: aiohttp.ClientSession) -> None:
    for path in ("/faults", "/metrics", "/health", "/v1", "/v1/../faults", "/%2e%2e/faults"):
        async with session.get(URL(stand.url + path, encoded=True)) as response:
            error = (await response.json())["error"]
            assert (response.status, error["code"], error["type"]) == (404, 404, "invalid_request_error"), path
    async with session.get(f"{stand.url}/healthz") as response:
        assert response.status == 200


async def test_clients_choose_no_worker(stand: Stand, session: aiohttp.ClientSession) -> None:
    named = ("x-gateway-destination-endpoint", "x-prefiller-host-port", "x-envoy-original-dst-host")
    hostile = dict.fromkeys(named, "127.0.0.1:9")
    stolen = {"do_remote_prefill": True, "remote_host": "127.0.0.1", "remote_port": 9, "remote_block_ids": [1]}
    for body in (completion(), completion(kv_transfer_params=stolen), completion(n=2, kv_transfer_params=stolen)):
        assert (await ask(session, stand.url, body, headers=hostile)).status == 200
    async with session.get(f"{stand.url}/v1/models", headers=hostile) as response:
        assert response.status == 200


async def test_a_body_of_3_mb_passes(stand: Stand, session: aiohttp.ClientSession) -> None:
    metadata = {"padding": "x" * 3_000_000}
    assert (await ask(session, stand.url, chat(metadata=metadata))).status == 200


async def test_a_client_that_leaves_during_prefill_leaves_nothing(stand: Stand, session: aiohttp.ClientSession) -> None:
    for name in ("p0", "p1"):
        await stand.fault(session, name, kind="slow", factor=2000)
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(1.0):
            await ask(session, stand.url, completion("word " * 500, max_tokens=4))

    async def idle() -> bool:
        workers = (await stand.state(session)).workers
        return all(w.prefills_in_flight == 0 and w.pending_prefill_tokens == 0 for w in workers)

    try:
        await until_async("the leg is gone from the accounting", idle, limit_s=5)
    finally:
        for name in ("p0", "p1"):
            await stand.fault(session, name)
