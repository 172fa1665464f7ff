"""The load generator against a server that answers as it is told: what counts as success must be whole."""

import asyncio
import json
import random
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web
from hypothesis import given
from hypothesis import strategies as st

from e2e.load.background import Load, LoadError
from e2e.load.client import prompt
from e2e.load.plan import Lengths, Phase, Plan, arrivals, from_json, to_json
from e2e.load.record import Outcome, Record
from e2e.load.runner import Run
from e2e.load.sse import TokenStream
from e2e.load.summary import percentiles, summarize
from e2e.system.waiting import wait_for


def _phase(**changes: Any) -> Phase:
    settings: dict[str, Any] = {
        "name": "only",
        "seconds": 0.3,
        "requests_per_s": 40,
        "prompt_tokens": Lengths(mean=20, sigma=0.3),
        "output_tokens": Lengths(mean=5),
        "stream_share": 0.7,
    }
    return Phase(**{**settings, **changes})


def _plan(url: str = "http://127.0.0.1:9", **changes: Any) -> Plan:
    settings: dict[str, Any] = {"url": url, "model": "m", "phases": (_phase(),), "request_timeout_s": 5}
    return Plan(**{**settings, **changes})


def _event(text: str | None, finish: str | None = None) -> bytes:
    choice = {"index": 0, "text": text or "", "finish_reason": finish}
    return b"data: " + json.dumps({"choices": [choice]}).encode() + b"\n\n"


Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


async def _answer(
    request: web.Request, *, tokens: int | None = None, finish: str = "length", done: bool = True
) -> web.StreamResponse:
    body = await request.json()
    count = body["max_tokens"] if tokens is None else tokens
    if not body["stream"]:
        return web.json_response({"choices": [{"finish_reason": finish}], "usage": {"completion_tokens": count}})
    response = web.StreamResponse(headers={"content-type": "text/event-stream"})
    await response.prepare(request)
    for number in range(count):
        await response.write(_event(f" t{number}", finish if number == count - 1 else None))
    if done:
        await response.write(b"data: [DONE]\n\n")
    return response


async def _run(handler: Handler, **changes: Any) -> list[Record]:
    app = web.Application()
    app.router.add_post("/v1/completions", handler)
    app.router.add_post("/v1/chat/completions", handler)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    try:
        host, port = runner.addresses[0][:2]
        return await Run(_plan(f"http://{host}:{port}", **changes)).go(lambda snapshot: None)
    finally:
        await runner.cleanup()


async def test_whole_answers_succeed_with_a_time_for_every_token() -> None:
    records = await _run(_answer)
    assert records
    assert all(record.succeeded for record in records), records
    for record in records:
        assert record.received_tokens == 5
        assert len(record.itl_s) == (4 if record.stream else 0)
        assert (record.ttft_s is not None) == record.stream


@pytest.mark.parametrize(
    ("answer", "outcome"),
    [
        ({"tokens": 4}, Outcome.INCOMPLETE),
        ({"finish": "stop"}, Outcome.INCOMPLETE),
        ({"done": False}, Outcome.CUT),
    ],
)
async def test_what_is_not_whole_fails(answer: dict[str, Any], outcome: Outcome) -> None:
    async def handler(request: web.Request) -> web.StreamResponse:
        return await _answer(request, **answer)

    records = await _run(handler, phases=(_phase(stream_share=1.0),))
    assert {record.outcome for record in records} == {outcome}
    assert all(record.error for record in records)


async def test_statuses_and_errors_within_a_stream_are_told() -> None:
    async def refuse(request: web.Request) -> web.StreamResponse:
        return web.json_response({"error": {"message": "no worker"}}, status=503)

    async def break_off(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        await response.write(_event(" a") + b'data: {"error": {"message": "engine died"}}\n\n')
        return response

    refused = await _run(refuse)
    assert {record.status for record in refused} == {503}
    assert all(record.outcome is Outcome.REFUSED and "no worker" in record.error for record in refused)
    broken = await _run(break_off, phases=(_phase(stream_share=1.0),))
    assert all(record.outcome is Outcome.ERROR_EVENT and "engine died" in record.error for record in broken)
    assert all(record.first_token_s is not None for record in broken)


async def test_a_dead_endpoint_and_a_silent_one_fail_within_the_limit() -> None:
    async def silent(request: web.Request) -> web.StreamResponse:
        await asyncio.sleep(30)
        return web.Response()

    dead = await Run(_plan()).go(lambda snapshot: None)
    assert {record.outcome for record in dead} == {Outcome.CUT}
    hanging = await _run(silent, request_timeout_s=0.2)
    assert {record.outcome for record in hanging} == {Outcome.TIMED_OUT}


async def test_open_loop_with_a_bound() -> None:
    async def slow(request: web.Request) -> web.StreamResponse:
        await asyncio.sleep(0.6)
        return await _answer(request)

    records = await _run(slow, max_in_flight=3)
    assert sum(record.succeeded for record in records) == 3
    assert {record.outcome for record in records} == {Outcome.WHOLE, Outcome.NOT_SENT}


async def test_the_background_process_tells_its_state_and_stops_early(tmp_path: Path) -> None:
    app = web.Application()
    app.router.add_post("/v1/completions", _answer)
    app.router.add_post("/v1/chat/completions", _answer)
    runner = web.AppRunner(app)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    host, port = runner.addresses[0][:2]
    plan = _plan(f"http://{host}:{port}", phases=(_phase(seconds=60),))
    try:
        with Load(plan, tmp_path) as load:
            await asyncio.to_thread(wait_for, "a snapshot", lambda: load.last.get("sent"), limit_s=30)
            records = await asyncio.to_thread(load.stop)
    finally:
        await runner.cleanup()
    assert records
    assert all(record.succeeded for record in records)
    assert load.last["ended"]
    assert load.last["succeeded"] == len(records)


def test_a_generator_that_fails_is_told(tmp_path: Path) -> None:
    plan = _plan(phases=(_phase(prompt_tokens="no lengths"),))
    with Load(plan, tmp_path) as load, pytest.raises(LoadError, match="TypeError"):
        load.wait()


@given(st.integers(0, 2**31), st.floats(0.5, 200))
def test_arrivals_keep_order_rate_and_seed(seed: int, rate: float) -> None:
    plan = _plan(
        seed=seed, phases=(_phase(name="a", seconds=2, requests_per_s=rate), _phase(name="b", arrivals="uniform"))
    )
    found = list(arrivals(plan))
    assert found == list(arrivals(plan))
    assert [item.at_s for item in found] == sorted(item.at_s for item in found)
    assert all((item.at_s < 2) == (item.phase == "a") for item in found)
    assert [item.number for item in found] == list(range(1, len(found) + 1))
    assert sum(item.phase == "b" for item in found) in (11, 12)
    assert from_json(json.loads(json.dumps(to_json(plan)))) == plan


@given(st.floats(1, 5000), st.floats(0, 1.5), st.integers(0, 2**31))
def test_lengths_are_positive_and_bounded(mean: float, sigma: float, seed: int) -> None:
    length = Lengths(mean=mean, sigma=sigma).draw(random.Random(seed))
    assert 1 <= length <= 4 * mean + 1


def test_prompts_have_their_length_and_share_no_prefix() -> None:
    plan = _plan(phases=(_phase(prompt_tokens=Lengths(mean=6000, sigma=0.5)),))
    found = list(arrivals(plan))
    prompts = [prompt(item).split(" ") for item in found]
    assert [len(words) for words in prompts] == [item.prompt_tokens for item in found]
    assert len({words[0] for words in prompts}) == len(prompts)


@given(st.lists(st.sampled_from([_event(" a"), _event(""), _event(None, "length")]), max_size=12), st.data())
def test_tokens_are_counted_however_the_bytes_are_cut(events: list[bytes], data: st.DataObject) -> None:
    text = b"".join(events) + b"data: [DONE]\n\n"
    cuts = sorted(data.draw(st.sets(st.integers(0, len(text)), max_size=8)))
    stream = TokenStream()
    pieces = [text[start:end] for start, end in zip([0, *cuts], [*cuts, len(text)], strict=True)]
    assert sum(stream.feed(piece) for piece in pieces) == events.count(_event(" a"))
    assert stream.done
    assert stream.finish_reason == ("length" if _event(None, "length") in events else "")


@given(st.lists(st.floats(0, 100), min_size=1, max_size=300))
def test_percentiles_are_values_that_were_seen(values: list[float]) -> None:
    found = percentiles(values)
    seen = {round(value, 4) for value in values}
    assert set(found.values()) <= seen
    assert found["p99"] == round(sorted(values)[-(len(values) // 100) - 1], 4)


def test_a_summary_judges_by_the_phase_in_which_a_request_was_due() -> None:
    def record(number: int, phase: str, outcome: Outcome) -> Record:
        return Record(
            number=number, phase=phase, chat=False, stream=True, prompt_tokens=10, expected_tokens=2, due_s=number,
            sent_s=number, first_token_s=number + 0.5, received_tokens=2, outcome=outcome, itl_s=[0.02],
        )  # fmt: skip

    found = summarize([record(3, "b", Outcome.WHOLE), record(1, "a", Outcome.WHOLE), record(2, "a", Outcome.CUT)])
    assert [(item.phase, item.sent, item.succeeded, item.failed) for item in found] == [("a", 2, 1, 1), ("b", 1, 1, 0)]
    assert found[0].ttft_s == {"p50": 0.5, "p95": 0.5, "p99": 0.5}
