"""Whatever comes over a connection: from workers, as an answer to a leg; from Envoy, as an access log."""

import asyncio
import itertools
from collections.abc import Sequence

from envoy.data.accesslog.v3.accesslog_pb2 import HTTPAccessLogEntry
from google.protobuf.message import DecodeError
from hypothesis import given
from hypothesis import strategies as st

from swingpool.picker.accesslog import AccessLog
from swingpool.picker.fleet import Fleet
from swingpool.picker.metrics import RouterMetrics
from swingpool.picker.requests import Generations
from swingpool.picker.traffic import Traffic
from swingpool.picker.wire import BrokenError, Errand, Response, _Connection
from swingpool.telemetry.vllm_page import parse
from tests.support.wire import said

LINES = st.sampled_from(
    [
        b"HTTP/1.1 200 OK", b"HTTP/1.0 500 no", b"HTTP/1.1 100 Continue", b"HTTP/2 200", b"content-length: 5",
        b"content-length: -1", b"content-length: 99999999999999999999", b"transfer-encoding: chunked",
        b"connection: close", b"content-type: \xff", b":", b"", b"\x00", b"5", b"hello", b"0", b"-5", b"ffffffffff",
        b"5;x=y", b"zz", b'{"kv_transfer_params": {}}',
    ]
)  # fmt: skip
ANSWERS = st.lists(LINES, max_size=12).map(b"\r\n".join) | st.binary(max_size=60)


class Transport(asyncio.Transport):
    """Takes what is written, and ends when told."""

    def __init__(self) -> None:
        super().__init__()
        self.ended = False

    def write(self, data: bytes | bytearray | memoryview) -> None:
        assert data

    def is_closing(self) -> bool:
        return self.ended

    def abort(self) -> None:
        self.ended = True

    def write_eof(self) -> None:
        pass


def pieces(data: bytes, cuts: Sequence[int]) -> list[bytes]:
    """Return data in pieces that end where the cuts say."""
    at = [0, *sorted({min(cut, len(data)) for cut in cuts}), len(data)]
    return [data[start:end] for start, end in itertools.pairwise(at) if end > start]


@given(
    answers=st.lists(ANSWERS, min_size=1, max_size=2),
    cuts=st.lists(st.integers(0, 80), max_size=4),
    leaves=st.booleans(),
    breaks=st.booleans(),
)
async def test_any_answer_is_one_or_is_broken(
    answers: list[bytes], cuts: list[int], leaves: bool, breaks: bool
) -> None:
    """However an answer is cut into pieces, what is made of it is the same."""
    outcomes = {await outcome(b"\r\n".join(answers), cuts if split else [], leaves, breaks) for split in (0, 1)}
    assert len(outcomes) == 1


async def outcome(data: bytes, cuts: Sequence[int], leaves: bool, breaks: bool) -> tuple[int, str, bytes] | str:
    connection, transport, late = _Connection(), Transport(), list[Response]()
    connection.connection_made(transport)
    asking = connection.exchange(b"POST / HTTP/1.1\r\n\r\n")
    await asyncio.sleep(0)
    if leaves:
        asking.cancel()
        await asyncio.gather(asking, return_exceptions=True)
        connection.leave(Errand(late.append, lambda: True))
    for piece in pieces(data, cuts):
        if not transport.is_closing():
            connection.data_received(piece)
    if breaks:
        connection.connection_lost(None)
    if leaves:
        assert len(late) <= 1
        return said(late[0]) if late else "nothing"
    if not connection._waiter or not connection._waiter.done():
        asking.cancel()
        await asyncio.gather(asking, return_exceptions=True)
        return "unfinished"
    try:
        return said(await asking)
    except BrokenError:
        return "broken"


@given(st.binary(max_size=80) | st.text(max_size=80).map(lambda text: text.encode()))
async def test_any_entry_of_the_access_log(data: bytes) -> None:
    fleet = Fleet()
    log = AccessLog(Generations(fleet), Traffic(RouterMetrics(), window_s=60))
    entry = HTTPAccessLogEntry()
    try:
        entry.ParseFromString(data)
    except DecodeError:  # what is no entry does not come this far
        entry = HTTPAccessLogEntry()
    entry.request.request_id = data.decode("latin-1")
    log.entry(entry)


WORDS = ("vllm:", "num_requests_running", "{", "}", "le=", '"', " ", "\n", "NaN", "1e999", "-1", "#", "vllm:x 3")


@given(st.text(max_size=80) | st.lists(st.sampled_from(WORDS), max_size=12).map("".join))
def test_any_metrics_of_a_worker(text: str) -> None:
    parse(text, now_unix_s=1.0)
