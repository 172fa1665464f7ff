"""Traces of a real Envoy and a real picker: one tree per request, handed on to both workers, of the right length."""

import itertools
import os
import time
from collections.abc import AsyncIterator, Iterator

import aiohttp
import pytest

from e2e.ports import free_port
from swingpool_control.resources.envoy_settings import TraceExport
from tests.support.otlp import Collector, Seen, collecting
from tests.support.recorder import recording
from tests.support.router_client import ask, completion
from tests.support.router_stand import Stand
from tests.support.waiting import until_async

CALLER = "b7ad6b7169203331"
PICKER = "swingpool-picker"
PORT = free_port()


@pytest.fixture
async def collector() -> AsyncIterator[Collector]:
    """Where spans go."""
    async with collecting(PORT) as found:
        yield found


@pytest.fixture(scope="module")
def _stand(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stand]:
    export = TraceExport(host="127.0.0.1", port=PORT, service="router", sampling_ratio=0)
    directory = tmp_path_factory.mktemp("traced")
    with Stand(directory=directory, traces=export, worker_names=(("p0", "prefill"), ("d0", "decode"))) as stand:
        yield stand


@pytest.fixture
async def traced(_stand: Stand, session: aiohttp.ClientSession) -> Stand:
    """A router that traces what brings the decision, and of the rest nothing."""
    await _stand.repair(session)
    return _stand


@pytest.fixture
def trace() -> str:
    """A trace of the test's own."""
    return os.urandom(16).hex()


def parent(trace: str, flags: str = "01") -> dict[str, str]:
    return {"traceparent": f"00-{trace}-{CALLER}-{flags}", "tracestate": "vendor=1"}


async def status(session: aiohttp.ClientSession, stand: Stand, headers: dict[str, str]) -> int:
    """Send a completion, and return its answer's status."""
    async with session.post(f"{stand.url}/v1/completions", json=completion(), headers=headers) as response:
        await response.read()
        return response.status


async def whole_trace(collector: Collector, trace: str) -> dict[str, Seen]:
    """Return the spans of the one trace by name, once both processes have sent theirs."""

    async def there() -> bool:
        return bool(collector.named("request", trace_id=trace) and collector.named("ingress", trace_id=trace))

    await until_async("the trace has come", there)
    mine = [one for one in collector.spans if one.trace_id == trace]
    found = {one.name: one for one in mine}
    assert len(found) == len(mine), "each span is there once"
    return found


async def test_a_streamed_answer_is_one_tree(
    traced: Stand, collector: Collector, session: aiohttp.ClientSession, trace: str
) -> None:
    body = completion(list(range(500)), stream=True, max_tokens=30, ignore_eos=True)
    assert (await ask(session, traced.url, body, headers=parent(trace))).status == 200
    spans = await whole_trace(collector, trace)
    call = next(one for name, one in spans.items() if "ext_proc" in name)
    parents = {name: spans[name].parent_id for name in ("ingress", "request", "first_token", "generation")}
    ids = {name: one.span_id for name, one in spans.items()}
    assert parents == {
        "ingress": CALLER,
        "request": call.span_id,
        "first_token": ids["request"],
        "generation": ids["request"],
    }
    assert call.parent_id == ids["ingress"]
    assert {spans[name].parent_id for name in ("queue", "prefill", "transfer")} == {ids["first_token"]}
    assert {one.service for name, one in spans.items() if name in {*parents, "queue"} - {"ingress"}} == {PICKER}
    assert (spans["prefill"].attributes["swingpool.worker"], spans["transfer"].attributes["swingpool.worker"]) == (
        "p0", "d0",
    )  # fmt: skip
    assert spans["prefill"].attributes["gen_ai.usage.input_tokens"] == 500
    assert spans["request"].attributes["http.response.status_code"] == 200
    in_order = [spans[name] for name in ("queue", "prefill", "transfer", "generation")]
    for before, after in itertools.pairwise(in_order):
        assert before.start_ns <= before.end_ns <= after.start_ns + 1_000_000
    assert spans["first_token"].end_ns == spans["transfer"].end_ns == spans["generation"].start_ns
    assert abs(spans["request"].end_ns - spans["ingress"].end_ns) < 100e6, "as Envoy measured it, not as it was told"


async def test_both_workers_are_told_which_span_is_theirs(
    traced: Stand, collector: Collector, session: aiohttp.ClientSession, trace: str
) -> None:
    async with recording(traced, session) as recorder:
        assert await status(session, traced, parent(trace)) == 200
        [leg], [served] = recorder.legs, recorder.served
        spans = await whole_trace(collector, trace)
    assert leg.headers["traceparent"] == f"00-{trace}-{spans['prefill'].span_id}-01"
    upstream = next(one for name, one in spans.items() if name.startswith("router ") and name.endswith(" egress"))
    assert served.headers["traceparent"] == f"00-{trace}-{upstream.span_id}-01"
    assert leg.headers["tracestate"] == served.headers["tracestate"] == "vendor=1"
    assert "first_token" not in spans, "nobody sees the first token of an answer that does not stream"
    assert spans["prefill"].parent_id == spans["generation"].parent_id == spans["request"].span_id


@pytest.mark.parametrize("headers", [parent("1" * 32, "00"), {}, {"x-request-id": "mine"}])
async def test_what_is_not_traced_says_so_to_both_workers(
    traced: Stand, collector: Collector, session: aiohttp.ClientSession, trace: str, headers: dict[str, str]
) -> None:
    """A worker without a word about it would begin a trace of its own."""
    begun_ns = time.time_ns()
    async with recording(traced, session) as recorder:
        assert await status(session, traced, headers) == 200
        [leg], [served] = recorder.legs, recorder.served
        assert leg.headers["traceparent"].endswith("-00")
        assert served.headers["traceparent"].endswith("-00")
        if "x-request-id" in headers:
            assert leg.headers["x-request-id"] == served.headers["x-request-id"] == "mine"
        # What comes after it has come, and so has what came before.
        assert await status(session, traced, parent(trace)) == 200
        await whole_trace(collector, trace)
    later = [one for one in collector.spans if one.start_ns >= begun_ns]
    assert {one.trace_id for one in later} == {trace}


async def test_a_leg_that_fails_is_a_span_of_its_own(
    traced: Stand, collector: Collector, session: aiohttp.ClientSession, trace: str
) -> None:
    async with recording(traced, session) as recorder:
        recorder.leg_status = 500
        assert await status(session, traced, parent(trace)) == 200

    async def there() -> bool:
        return bool(collector.named("request", trace_id=trace))

    await until_async("the request is told", there)
    [leg] = collector.named("prefill", trace_id=trace)
    assert leg.error == "status 500"
    assert len(collector.named("queue", trace_id=trace)) == 2
    assert not collector.named("request", trace_id=trace)[0].error


async def test_requests_do_not_care_about_a_collector_that_refuses(
    traced: Stand, collector: Collector, session: aiohttp.ClientSession, trace: str
) -> None:
    collector.status = 503
    assert (await ask(session, traced.url, completion(), headers=parent(trace))).status == 200

    async def said() -> bool:
        return "spans are lost" in traced.log("picker")

    await until_async("the loss is told", said)
    assert (await ask(session, traced.url, completion(), headers=parent(trace))).status == 200
