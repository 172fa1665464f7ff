"""What each worker gets of a request, field by field, and that the client gets the one answer as it was given."""

import asyncio
import io
import json
from collections.abc import AsyncIterator
from typing import Any

import aiohttp
import pytest

from swingpool_control.placement.limits import NO_DEFLECTION
from swingpool_control.placement.settings import PlacementSettings
from swingpool_control.resources.envoy import BUFFER_LIMIT_BYTES, STREAMED_ABOVE_BYTES
from tests.support.recorder import KEPT, Recorder, recording
from tests.support.router_client import ask, chat, completion
from tests.support.router_stand import Stand
from tests.support.waiting import until_async

TOOL = {"type": "function", "function": {"name": "weather", "parameters": {"type": "object"}}}
SCHEMA = {"type": "json_schema", "json_schema": {"name": "answer", "schema": {"type": "object"}}}
PICTURE = {"type": "image_url", "image_url": {"url": "data:image/png;base64,iVBORw0KGgo="}}
STOLEN = {"do_remote_prefill": True, "remote_host": "127.0.0.1", "remote_port": 9, "remote_block_ids": [1]}


@pytest.fixture
async def recorder(stand: Stand, session: aiohttp.ClientSession) -> AsyncIterator[Recorder]:
    """A prefill and a decode worker that keep what they get."""
    await stand.limit(session, NO_DEFLECTION)
    async with recording(stand, session) as recorder:
        yield recorder
    await stand.limit(session, PlacementSettings().limits)


async def post(
    stand: Stand, session: aiohttp.ClientSession, path: str, body: Any, **headers: str
) -> tuple[int, bytes, dict[str, str]]:
    sent = {"content-type": "application/json"} | {name.replace("_", "-"): text for name, text in headers.items()}
    async with session.post(stand.url + path, data=io.BytesIO(json.dumps(body).encode()), headers=sent) as response:
        return response.status, await response.read(), dict(response.headers)


@pytest.mark.parametrize(
    "body",
    [
        completion(max_tokens=77, min_tokens=5, stop=["\n", "END"], logprobs=4, seed=3, temperature=0.7),
        completion([5, 6, 7], max_tokens=9, ignore_eos=True, stream=True, stream_options={"include_usage": True}),
        completion(model="adapter-of-lora", n=1, logit_bias={"5": -1}, guided_regex="a+"),
        chat(max_completion_tokens=50, max_tokens=60, min_tokens=2, logprobs=True, top_logprobs=3),
        chat(tools=[TOOL], tool_choice="required", parallel_tool_calls=False),
        chat(response_format=SCHEMA, stop=["x"], stream=True, stream_options={"include_usage": True}),
        chat(messages=[{"role": "user", "content": [{"type": "text", "text": "what is this?"}, PICTURE]}]),
        chat(vllm_xargs={"session_id": "s"}, cache_salt="pepper", chat_template_kwargs={"think": False}),
    ],
    ids=["limits", "tokens-stream", "lora", "both-limits", "tools", "schema-stream", "picture", "extras"],
)
async def test_every_field_reaches_both_workers_as_it_must(
    stand: Stand, session: aiohttp.ClientSession, recorder: Recorder, body: dict[str, Any]
) -> None:
    is_chat = "messages" in body
    path = "/v1/chat/completions" if is_chat else "/v1/completions"
    status, answer, _ = await post(stand, session, path, body, authorization="Bearer k", traceparent="00-1-2-01")
    assert (status, answer) == (200, recorder.answer), "the decode worker's answer, usage and all, once"
    [leg], [served] = recorder.legs, recorder.served
    assert served.body == body | {"kv_transfer_params": KEPT}
    left_out = ("stream", "stream_options", "min_tokens", "logprobs", "top_logprobs")
    expected = {key: value for key, value in body.items() if key not in left_out} | {"max_tokens": 1, "stream": False}
    if "max_completion_tokens" in body:
        expected["max_completion_tokens"] = 1
    asked = leg.body.pop("kv_transfer_params")
    assert {key: value for key, value in leg.body.items() if key != "kv_transfer_params"} == expected
    assert asked == {"do_remote_decode": True, "do_remote_prefill": False} | dict.fromkeys(
        ("remote_engine_id", "remote_block_ids", "remote_host", "remote_port")
    )
    for request in (leg, served):
        assert (request.path, request.headers["authorization"]) == (path, "Bearer k")
        assert request.headers["traceparent"] == "00-1-2-01"
        assert request.headers["x-request-id"]


async def test_a_refused_leg_is_served_whole_and_the_whole_requests_answer_counts(
    stand: Stand, session: aiohttp.ClientSession, recorder: Recorder
) -> None:
    """One token can be too few for what a request asks for, forced tools for one: that is the leg's fault alone."""
    recorder.leg_status = 400
    status, answer, _ = await post(stand, session, "/v1/chat/completions", chat(tools=[TOOL], tool_choice="required"))
    assert (status, answer) == (200, recorder.answer)
    assert len(recorder.legs) == 1
    assert [one.body for one in recorder.served] == [chat(tools=[TOOL], tool_choice="required")]


async def test_a_leg_without_parameters_is_a_prompt_computed_again(
    stand: Stand, session: aiohttp.ClientSession, recorder: Recorder
) -> None:
    recorder.kept = None
    status, _, _ = await post(stand, session, "/v1/completions", completion())
    assert status == 200
    assert len(recorder.legs) == 1
    assert [one.body for one in recorder.served] == [completion()]


@pytest.mark.parametrize("path", ["/v1/completions", "/v1/chat/completions", "/v1/responses", "/v1/messages"])
async def test_parameters_of_transfers_come_from_the_router_alone(
    stand: Stand, session: aiohttp.ClientSession, recorder: Recorder, path: str
) -> None:
    """vLLM takes them from its extra arguments too, and dies of a text there."""
    asked = chat() if path == "/v1/chat/completions" else completion()
    for stolen in (STOLEN, "text"):
        for more in ({}, {"n": 2}):  # split and whole
            recorder.forget()
            body = asked | more | {"vllm_xargs": {"kv_transfer_params": stolen, "session_id": "s"}}
            assert (await post(stand, session, path, body | {"kv_transfer_params": STOLEN}))[0] == 200
            for request in (*recorder.legs, *recorder.served):
                assert request.body["vllm_xargs"] == {"session_id": "s"}
            assert recorder.served[0].body.get("kv_transfer_params", KEPT) == KEPT


@pytest.mark.parametrize("path", ["/v1/embeddings", "/v1/responses", "/v1/rerank"])
async def test_other_paths_pass_through_and_are_not_split(
    stand: Stand, session: aiohttp.ClientSession, recorder: Recorder, path: str
) -> None:
    body = {"model": "m", "input": ["a", "é"], "stream": False}
    assert (await post(stand, session, path, body))[:2] == (200, recorder.answer)
    assert not recorder.legs
    assert [one.raw for one in recorder.served] == [json.dumps(body).encode()]


@pytest.mark.parametrize(
    ("path", "size"),
    [("/v1/chat/completions", STREAMED_ABOVE_BYTES + 100_000), ("/v1/responses", BUFFER_LIMIT_BYTES + 5_000_000)],
    ids=["not read", "not kept for a second try either"],
)
async def test_a_body_that_is_too_large_to_be_kept_passes_as_it_is(
    stand: Stand, session: aiohttp.ClientSession, recorder: Recorder, path: str, size: int
) -> None:
    """Pictures, mostly."""
    body = chat(metadata={"padding": "x" * size})
    status, answer, _ = await post(stand, session, path, body)
    assert (status, answer) == (200, recorder.answer), answer[:300]
    assert not recorder.legs
    assert [one.raw for one in recorder.served] == [json.dumps(body).encode()]


@pytest.mark.parametrize("name", ["kv_transfer_params", "\\u006bv_transfer_param\\u0073"])
async def test_parameters_of_transfers_in_a_large_body_are_refused(
    stand: Stand, session: aiohttp.ClientSession, recorder: Recorder, name: str
) -> None:
    padded = json.dumps(chat(metadata={"padding": "x" * (STREAMED_ABOVE_BYTES + 100_000)}))
    raw = f'{padded[:-1]}, "{name}": {json.dumps(STOLEN)}}}'.encode()
    headers = {"content-type": "application/json"}
    async with session.post(f"{stand.url}/v1/chat/completions", data=io.BytesIO(raw), headers=headers) as response:
        assert response.status == 400
        assert "kv_transfer_params" in (await response.json())["error"]["message"]
    assert not recorder.served, "no worker got it whole"


async def test_a_stream_comes_piece_by_piece(stand: Stand, session: aiohttp.ClientSession, recorder: Recorder) -> None:
    recorder.pieces = (b'data: {"choices": []}\n\n', b"data: two\n\n", b"data: [DONE]\n\n")
    async with session.post(f"{stand.url}/v1/chat/completions", json=chat(stream=True)) as response:
        assert response.headers["content-type"] == "text/event-stream"
        for piece in recorder.pieces:
            assert await response.content.readexactly(len(piece)) == piece
            recorder.go_on.set()
        assert await response.content.read() == b""


async def test_a_transfer_that_fails_is_computed_again(stand: Stand, session: aiohttp.ClientSession) -> None:
    body = completion("word " * 60, stream=True)
    alone = await ask(session, f"http://{stand.workers['d0'].address}", body)
    await stand.limit(session, NO_DEFLECTION)
    for name in ("d0", "d1"):
        await stand.fault(session, name, kind="transfer")
    try:
        answer = await ask(session, stand.url, body)
        assert (answer.status, answer.text, answer.usage) == (200, alone.text, alone.usage)
    finally:
        for name in ("d0", "d1"):
            await stand.fault(session, name)
        await stand.limit(session, PlacementSettings().limits)


async def test_no_answer_tells_an_address(stand: Stand, session: aiohttp.ClientSession, recorder: Recorder) -> None:
    inner = (b"127.0.0.1", b"127.0.0.2", b"10.77.")
    for status in (200, 400, 500):
        recorder.leg_status = status
        for path, body in (("/v1/completions", completion()), ("/v1/chat/completions", {"messages": 3}), ("/v1/x", 1)):
            _, answer, headers = await post(stand, session, path, body)
            told = answer + json.dumps(headers).encode()
            assert not [one for one in inner if one in told], told


async def test_clients_that_leave_at_any_moment_leave_nothing(stand: Stand, session: aiohttp.ClientSession) -> None:
    """Not until a lease ends: at once, even between the two legs, but for the moment in which a leg ends."""
    await stand.limit(session, NO_DEFLECTION)
    expired = await total(stand, session, "vllm:nixl_num_kv_expired_reqs_total")
    for number in range(240):
        body = completion(f"{number} " + "word " * 300, max_tokens=30, stream=number % 2 == 0)
        leaving = [asyncio.create_task(ask(session, stand.url, body)) for _ in range(2)]
        await asyncio.sleep(0.0004 * number)
        for one in leaving:
            one.cancel()
        await asyncio.gather(*leaving, return_exceptions=True)
    await stand.limit(session, PlacementSettings().limits)

    async def nothing() -> bool:
        state = await stand.state(session)
        idle = all(one.decodes_in_flight == one.prefills_in_flight == 0 for one in state.workers)
        return idle and await total(stand, session, "vllm:kv_cache_usage_perc") == 0

    await until_async("no block is held", nothing, limit_s=25)
    # A leg that is told to stop in the millisecond in which it ends has an answer that nobody can read any more: what
    # it computed is freed by the lease. Of 480 clients one in a run meets that moment, seldom two.
    left = await total(stand, session, "vllm:nixl_num_kv_expired_reqs_total") - expired
    assert left <= 2, f"the blocks of {left:g} of 480 were freed by the end of their lease only"


async def total(stand: Stand, session: aiohttp.ClientSession, name: str) -> float:
    found = 0.0
    for worker in stand.workers.values():
        async with session.get(f"http://{worker.address}/metrics") as response:
            lines = (await response.text()).splitlines()
        found += sum(float(line.rpartition(" ")[2]) for line in lines if line.startswith(name))
    return found
