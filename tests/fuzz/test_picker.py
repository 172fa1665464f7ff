"""Any request before the picker: it answers once, sends nothing where the client wants it, and tells no address."""

import asyncio
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import orjson
from envoy.service.ext_proc.v3.external_processor_pb2 import CommonResponse, ProcessingRequest, ProcessingResponse
from hypothesis import given
from hypothesis import strategies as st

from swingpool.picker.extproc import Exchange
from swingpool.picker.fleet import Fleet
from swingpool.picker.flow import Flow
from swingpool.picker.journal import Journal
from swingpool.picker.leg import Computed, Failed, LegResult, Refused
from swingpool.picker.members import Member
from swingpool.picker.metrics import RouterMetrics
from swingpool.picker.requests import Generations
from swingpool.picker.traffic import Traffic
from swingpool.picker.worker import Worker
from swingpool_control.resources.envoy import DECISION_PATHS
from swingpool_control.resources.envoy_exchange import (
    PLACED,
    PLACED_SECOND_TRY_MS,
    PLACED_TO,
    TOLD,
    TOLD_BESIDE_BODY,
)
from tests.fuzz.strategies import BODIES, CONTENT_TYPES, HEADERS, JSON_VALUES, NAMED, PATHS, TRANSFER

WORKERS = {"10.99.0.1:8000": "prefill", "10.99.0.2:8000": "prefill", "10.99.0.3:8000": "decode"}
PARAMS = {"do_remote_prefill": True, "remote_host": "10.99.0.1", "remote_port": 5600, "remote_block_ids": [[1]]}
CHANGED = {"x-gateway-destination-endpoint", "content-length", "x-envoy-upstream-rq-per-try-timeout-ms"}
RESULTS = st.sampled_from(
    [
        Computed(kv_transfer_params=PARAMS, prompt_tokens=7),
        Computed(kv_transfer_params=None, prompt_tokens=0),
        Refused(status=400),
        Failed(why="status 500"),
        Failed(why="10.99.0.1 refused", unreachable=True),
    ]
)


@dataclass
class Legs:
    """Workers that answer legs as told, and see what the legs hold."""

    results: list[LegResult]
    bodies: list[dict[str, Any]] = field(default_factory=list)

    async def run(
        self, worker: Worker, path: str, body: bytes, *, headers: Mapping[str, str], **more: object
    ) -> LegResult:
        assert worker.member.address in WORKERS
        assert path.partition("?")[0] in DECISION_PATHS
        assert not [name for name in headers if name.startswith(("x-gateway-destination", "x-envoy", "x-prefiller"))]
        self.bodies.append(json.loads(body))
        await asyncio.sleep(0)
        return self.results.pop() if self.results else Computed(kv_transfer_params=PARAMS, prompt_tokens=3)


@dataclass
class Call:
    """Envoy's end."""

    sent: list[ProcessingResponse] = field(default_factory=list)
    over: asyncio.Event = field(default_factory=asyncio.Event)
    headers: tuple[tuple[bytes, bytes], ...] = ()

    def send(self, message: bytes) -> None:
        assert not self.over.is_set(), "nothing comes after the end"
        self.sent.append(ProcessingResponse.FromString(message))

    def end(self, status: int = 0) -> None:
        assert status == 0
        self.over.set()


def router(results: list[LegResult], workers: Mapping[str, str]) -> tuple[Flow, Legs]:
    fleet = Fleet()
    fleet.publish([Member(pod=at, uid=at, address=at, role=role) for at, role in workers.items()])
    for worker in fleet.workers():
        fleet.probed(worker, fault="")
    legs: Any = Legs(results)
    return Flow(
        fleet, legs, Generations(fleet), Traffic(RouterMetrics(), window_s=60), Journal(), queue_timeout_s=0.001
    ), legs


def head(path: str, method: str, content_type: str, headers: Mapping[str, str], *, last: bool) -> bytes:
    message = ProcessingRequest()
    message.request_headers.end_of_stream = last
    for name, value in {":path": path, ":method": method, "content-type": content_type, **headers}.items():
        message.request_headers.headers.headers.add(key=name, raw_value=value.encode("latin-1"))
    return bytes(message.SerializeToString())


def whole(body: bytes) -> bytes:
    message = ProcessingRequest()
    message.request_body.body = body
    message.request_body.end_of_stream = True
    return bytes(message.SerializeToString())


def at_once(path: str, content_type: str, headers: Mapping[str, str], body: bytes) -> bytes:
    """Return the one message that tells of a generation."""
    message = ProcessingRequest()
    message.request_body.body = body
    message.request_body.end_of_stream = True
    told = {":path": path, "content-type": content_type, **headers}
    fields = message.metadata_context.filter_metadata[TOLD].fields
    for name in TOLD_BESIDE_BODY:
        if name in told:
            fields[name].string_value = told[name]
    return bytes(message.SerializeToString())


@dataclass(frozen=True, kw_only=True)
class Case:
    """One request, and what the workers do."""

    body: bytes
    path: str
    method: str
    content_type: str
    headers: dict[str, str]
    results: list[LegResult]
    workers: list[str]
    leaves: int
    """After how many turns of the loop the client leaves; it stays if that is 4 or more."""
    at_once: bool

    @property
    def is_told_at_once(self) -> bool:
        """Whether Envoy tells of it in one message, as of all generations that it keeps whole."""
        is_decided = self.method == "POST" and self.path.partition("?")[0] in DECISION_PATHS
        return self.at_once and is_decided and bool(self.body)


CASES = st.builds(
    Case,
    body=BODIES,
    path=PATHS,
    method=st.sampled_from(["POST"] * 8 + ["GET", "PUT"]),
    content_type=CONTENT_TYPES,
    headers=HEADERS,
    results=st.lists(RESULTS, max_size=4),
    workers=st.lists(st.sampled_from(sorted(WORKERS)), unique=True),
    leaves=st.integers(0, 40),
    at_once=st.booleans(),
)


@given(CASES)
async def test_any_request_is_answered_once_and_safely(case: Case) -> None:
    workers = {address: WORKERS[address] for address in case.workers}
    flow, legs = router(list(case.results), workers)
    call: Any = Call()
    exchange = Exchange(flow, call)
    if case.is_told_at_once:
        exchange.message(at_once(case.path, case.content_type, case.headers, case.body))
    else:
        exchange.message(head(case.path, case.method, case.content_type, case.headers, last=not case.body))
        if not call.over.is_set() and case.body:
            exchange.message(whole(case.body))
    exchange.ended()
    if case.leaves < 4:
        for _ in range(case.leaves):
            await asyncio.sleep(0)
        exchange.gone()
        call.over.set()
        await asyncio.sleep(0)
    await asyncio.wait_for(call.over.wait(), 60)
    check_legs(legs)
    is_read = case.method == "POST" and case.content_type.lower().startswith("application/json")
    for answer in call.sent:
        check_answer(answer, case.body, workers, is_read=is_read)
    assert case.leaves < 4 or call.sent
    check_accounts(flow)


def check_legs(legs: Legs) -> None:
    for leg in legs.bodies:
        assert NAMED not in json.dumps([leg[TRANSFER], arguments(leg).get(TRANSFER)])
        assert leg["max_tokens"] == 1


def check_answer(answer: ProcessingResponse, body: bytes, workers: Mapping[str, str], *, is_read: bool) -> None:
    if answer.HasField("immediate_response"):
        reply = answer.immediate_response
        assert reply.status.code in (400, 429, 503), reply
        told = reply.body + b"".join(one.header.raw_value for one in reply.headers.set_headers)
        assert b"10.99." not in told
        assert orjson.loads(reply.body)["error"]["code"] == reply.status.code
        return
    common: CommonResponse = (
        answer.request_body.response if answer.HasField("request_body") else answer.request_headers.response
    )
    changed = {one.header.key: one.header.raw_value.decode() for one in common.header_mutation.set_headers}
    assert changed.keys() <= CHANGED
    placed = dict(answer.dynamic_metadata.fields[PLACED].struct_value.fields)
    assert placed.keys() <= {PLACED_TO, PLACED_SECOND_TRY_MS}
    hosts = placed[PLACED_TO].string_value if placed else changed.get("x-gateway-destination-endpoint")
    if hosts is None:
        return  # it goes on to the body
    assert set(hosts.split(",")) <= set(workers)
    sent = common.body_mutation.body or body
    if common.body_mutation.body and not placed:
        assert changed["content-length"] == str(len(sent))
    if is_read and answer.HasField("request_body"):
        check_forwarded(sent)


def check_forwarded(sent: bytes) -> None:
    """Read what a worker gets as laxly as any worker may."""
    try:
        value = json.loads(sent)
    except ValueError:
        return
    if isinstance(value, dict):
        assert value.get(TRANSFER, PARAMS) == PARAMS
        assert TRANSFER not in arguments(value)


def arguments(value: dict[str, Any]) -> dict[str, Any]:
    found = value.get("vllm_xargs")
    return found if isinstance(found, dict) else {}


def check_accounts(flow: Flow) -> None:
    """What was not handed over is accounted for nowhere."""
    accounts = list(flow._fleet.dispatcher.roster.accounts())
    assert sum(one.prefills_in_flight for one in accounts) == 0
    assert sum(one.pending_prefill_tokens for one in accounts) == 0
    handed_over = sum(one.decodes_in_flight for one in accounts)
    assert handed_over == sum(len(alike) for alike in flow._generations._by_id.values())
    assert flow._fleet.dispatcher.queued == 0
    assert flow._queued_bytes == 0


@given(st.lists(st.binary(max_size=60), max_size=3))
async def test_messages_that_are_no_messages(messages: list[bytes]) -> None:
    flow, _ = router([], WORKERS)
    call: Any = Call()
    exchange = Exchange(flow, call)
    for message in messages:
        if not call.over.is_set():
            exchange.message(message)
    exchange.gone()


@given(st.lists(JSON_VALUES, max_size=3), st.sampled_from([100, 200, 302, 404, 500]), st.booleans())
async def test_any_answer_to_a_leg(values: list[Any], status: int, named: bool) -> None:
    from swingpool.picker.leg import _result
    from swingpool.picker.wire import Response

    for value in values:
        answer = {TRANSFER: value, "usage": value} if named else value
        result = _result(Response(status, "application/json", json.dumps(answer).encode()))
        assert isinstance(result, Computed | Refused | Failed)
        if isinstance(result, Computed):
            assert result.kv_transfer_params is None or isinstance(result.kv_transfer_params, dict)
