"""What a request that cannot be served costs, and what a fault of the picker's own does."""

import asyncio
from typing import Any

import orjson
import pytest
from envoy.service.ext_proc.v3.external_processor_pb2 import ProcessingRequest, ProcessingResponse

from swingpool.picker import body, extproc, flow
from swingpool.picker.fleet import Fleet
from swingpool.picker.flow import Flow
from swingpool.picker.handover import Incoming, Route
from swingpool.picker.journal import Journal
from swingpool.picker.leg import PrefillClient
from swingpool.picker.members import Member
from swingpool.picker.metrics import RouterMetrics
from swingpool.picker.replies import Reply
from swingpool.picker.requests import Generations
from swingpool.picker.traffic import Traffic
from swingpool.picker.wire import HttpPool


def flow_of(fleet: Fleet, *, queue_timeout_s: float = 60.0) -> Flow:
    traffic = Traffic(RouterMetrics(), window_s=60)
    return Flow(
        fleet, PrefillClient(HttpPool()), Generations(fleet), traffic, Journal(), queue_timeout_s=queue_timeout_s
    )


def incoming(size: int) -> Incoming:
    text = orjson.dumps({"model": "m", "prompt": "x" * size})
    return Incoming(request_id="r", path="/v1/completions", headers={}, body=text)


async def test_the_queue_has_room_for_so_much_and_refuses_the_rest_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(flow, "MOST_QUEUED_BYTES", 100_000)
    serving = flow_of(Fleet())
    waiting = [asyncio.create_task(serving.decided(incoming(20_000), chat=False)) for _ in range(2)]
    await asyncio.sleep(0)
    for _ in range(3):
        refused = await asyncio.wait_for(serving.decided(incoming(20_000), chat=False), timeout=10)
        assert isinstance(refused, Reply)
        assert refused.status == 503
        assert ("retry-after", "5") in refused.headers
    assert not any(one.done() for one in waiting)
    waiting[0].cancel()
    await asyncio.gather(waiting[0], return_exceptions=True)
    again = asyncio.create_task(serving.passed(size=20_000))
    await asyncio.sleep(0)
    assert not again.done(), "who leaves makes room"
    for task in (waiting[1], again):
        task.cancel()
    await asyncio.gather(waiting[1], again, return_exceptions=True)


@pytest.mark.parametrize("depth", [1, 200, 253, 254, 300, 1000, 100_000])
def test_what_can_be_read_can_be_written(depth: int) -> None:
    value = body.read(b"[" * depth + b"]" * depth)
    if isinstance(value, Reply):
        assert value.status == 400
        assert depth > 250
    else:
        orjson.dumps(value)


class Answers:
    """Envoy's end of one request."""

    def __init__(self) -> None:
        self.sent: list[ProcessingResponse] = []
        self.over = False
        self.headers: list[tuple[bytes, bytes]] = []

    def send(self, message: bytes) -> None:
        self.sent.append(ProcessingResponse.FromString(message))

    def end(self) -> None:
        self.over = True


async def test_a_fault_of_the_pickers_own_is_an_answer(caplog: pytest.LogCaptureFixture) -> None:
    """Envoy would send the request on unread otherwise."""
    message = ProcessingRequest()
    message.request_headers.end_of_stream = True
    broken: Any = object()
    answers: Any = Answers()
    extproc.Exchange(broken, answers).message(message.SerializeToString())
    assert answers.sent[0].immediate_response.status.code == 500
    assert b"server_error" in answers.sent[0].immediate_response.body
    assert answers.over
    assert "could not be processed" in caplog.text


async def test_a_body_that_turns_out_empty_passes() -> None:
    fleet = Fleet()
    fleet.publish([Member(pod="a", uid="a", address="a:8000", role="decode")])
    fleet.probed(next(iter(fleet.workers())), fault="")
    route = await flow_of(fleet).carried(b"", is_json=True)
    assert isinstance(route, Route)
    assert (route.hosts, route.body, route.second_try_after_s) == (("a:8000",), None, 0.0)
