"""Any bytes before Envoy, with the picker and two workers behind it: no address is told, and none that a client names
is asked."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import aiohttp
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.fuzz.strategies import BODIES, CONTENT_TYPES, HEADERS, NAMED, NAMING_HEADERS, TRANSFER
from tests.support.recorder import KEPT, Recorder, recording
from tests.support.router_stand import Stand

EXAMPLES_USUALLY, EXAMPLES_IN_FUZZING = 60, 3000
WHOLE_WITHIN_S = 0.3
"""Whoever has no answer by then has sent half a request."""
GOES_ON_WITHIN_S = 0.03
"""After what it refuses, Envoy keeps a connection for a while."""
INNER = (b"127.0.0.1", b"127.0.0.2", b"10.77.", NAMED.encode())
PATHS = st.sampled_from(
    [
        "/v1/completions", "/v1/chat/completions", "/v1/responses", "/v1/embeddings", "/v1/models", "/v1/../metrics",
        "/v1//completions", "/v1/completions?x=1", "/v1/%2e%2e/faults", "/", "*", f"http://{NAMED}:9/v1/completions",
        f"{NAMED}:9", "/v1/\x00", "/v1/é",
    ]
)  # fmt: skip
METHODS = st.sampled_from(["POST"] * 6 + ["GET", "PUT", "CONNECT", "OPTIONS", "BREW"])
EXTRA = st.sampled_from(
    [
        "",
        "",
        f"host: {NAMED}:9\r\n",
        "transfer-encoding: chunked\r\n",
        "content-length: 5\r\n",
        "te: trailers\r\n",
        "upgrade: h2c\r\nconnection: upgrade\r\n",
        "connection: x-gateway-destination-endpoint\r\n",
        "expect: 100\r\n",
    ]
)


@dataclass(frozen=True, kw_only=True)
class Case:
    """One exchange."""

    method: str
    path: str
    content_type: str
    headers: dict[str, str]
    extra: str
    body: bytes
    leg_status: int
    kept: dict[str, Any] | None

    def raw(self, canary: int) -> bytes:
        """Return what goes over the connection; hosts that are named listen, and must not hear anything."""
        lines = [f"{self.method} {self.path} HTTP/1.1", "host: router", f"content-type: {self.content_type}"]
        lines += [f"{name}: {value}" for name, value in self.headers.items()]
        lines += [f"content-length: {len(self.body)}"]
        head = "\r\n".join(lines) + "\r\n" + self.extra + "connection: close\r\n\r\n"
        named = head.replace(f"{NAMED}:9", f"127.0.0.9:{canary}").encode("latin-1", "replace")
        return named + self.body.replace(NAMED.encode(), b"127.0.0.9")


CASES = st.builds(
    Case,
    method=METHODS,
    path=PATHS,
    content_type=CONTENT_TYPES,
    headers=HEADERS,
    extra=EXTRA,
    body=BODIES,
    leg_status=st.sampled_from([200, 200, 200, 400, 500]),
    kept=st.sampled_from([KEPT, None]),
)


@dataclass
class Canary:
    """Listens where clients would have requests sent."""

    port: int = 0
    heard: list[bytes] = field(default_factory=list)

    async def listen(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Take note of a connection."""
        self.heard.append(b"connected")
        writer.close()


@asynccontextmanager
async def canary() -> AsyncIterator[Canary]:
    """Yield a listener on an address of its own."""
    found = Canary()
    server = await asyncio.start_server(found.listen, "127.0.0.9", 0)
    found.port = server.sockets[0].getsockname()[1]
    yield found
    server.close()


@pytest.mark.timeout(3600)
async def test_any_bytes_before_envoy(stand: Stand, session: aiohttp.ClientSession) -> None:
    usual = settings.default is settings.get_profile("usual")
    fuzz = settings(
        max_examples=EXAMPLES_USUALLY if usual else EXAMPLES_IN_FUZZING,
        deadline=None,
        database=None,
        suppress_health_check=list(HealthCheck),
    )
    loop, carried = asyncio.get_running_loop(), 0
    async with canary() as named, recording(stand, session) as recorder:

        @fuzz
        @given(CASES)
        def look(case: Case) -> None:
            nonlocal carried
            asyncio.run_coroutine_threadsafe(exchange(case, stand, recorder, named), loop).result(60)
            carried += bool(recorder.legs or recorder.served)

        await asyncio.to_thread(look)
        assert carried > fuzz.max_examples / 20, "workers are asked, or there is nothing to see"
        async with session.post(f"{stand.url}/v1/completions", json={"prompt": "still there?"}) as response:
            assert response.status == 200
    assert stand.picker is not None
    assert stand.picker.poll() is None
    assert stand.envoy is not None
    assert stand.envoy.poll() is None
    said = stand.log("picker")
    assert "could not be processed" not in said
    assert "fault of the picker's" not in said


async def exchange(case: Case, stand: Stand, recorder: Recorder, named: Canary) -> None:
    """Send a case and look at all that came of it."""
    recorder.forget()
    recorder.leg_status, recorder.kept = case.leg_status, case.kept
    reader, writer = await asyncio.open_connection("127.0.0.1", stand.router_port)
    try:
        writer.write(case.raw(named.port))
        await writer.drain()
        answer = await everything(reader, writer)
    except ConnectionError:
        answer = b""
    finally:
        writer.close()
    told = [inner for inner in INNER if inner in answer]
    assert not told, answer
    assert not named.heard, "nobody is asked whom a client has named"
    for request in (*recorder.legs, *recorder.served):
        assert not {name for name in request.headers if name in NAMING_HEADERS} - {"x-gateway-destination-endpoint"}
        where = request.headers.get("x-gateway-destination-endpoint", "")
        # Of a generation without a body the picker is not told: any worker refuses it.
        assert where.startswith(("127.0.0.1:", "127.0.0.2:")) or not (where or request.raw)
        check_body(request.raw, request.headers.get("content-type", ""))


async def everything(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bytes:
    """Read what Envoy answers: it drops a request whose client closes its side, and waits for one that is not whole."""
    came, patience_s = b"", WHOLE_WITHIN_S
    while True:
        try:
            async with asyncio.timeout(patience_s):
                piece = await reader.read(2**16)
        except TimeoutError:
            break
        if not piece:
            return came
        came, patience_s = came + piece, GOES_ON_WITHIN_S
    writer.write_eof()
    async with asyncio.timeout(30):
        return came + await reader.read()


def check_body(raw: bytes, content_type: str) -> None:
    """Read what a worker got as laxly as any worker may."""
    try:
        value = json.loads(raw)
    except ValueError:
        return
    if not isinstance(value, dict) or not content_type.lower().startswith("application/json"):
        return
    assert value.get(TRANSFER, KEPT) == KEPT or value[TRANSFER].get("do_remote_decode") is True
    arguments = value.get("vllm_xargs")
    assert not isinstance(arguments, dict) or TRANSFER not in arguments
