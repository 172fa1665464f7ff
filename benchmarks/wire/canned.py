"""A stand-in for a vLLM worker that takes no time, so that what is measured is the router.

It speaks as much of vLLM's HTTP as a prefill leg and a streamed completion need: a prefill leg is answered with
`kv_transfer_params`, one that brings such with 64 tokens in one piece, or any token by token at a given rate. Run as
`python -m benchmarks.wire.canned PORT [TOKENS_PER_S TOKENS]`.
"""

import asyncio
import json
import sys
import time
from typing import cast

import uvloop

TOKENS = 64
TICK_S = 0.005

_EVENT = {"id": "cmpl-0", "object": "text_completion", "created": 0, "model": "simulated"}
_HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream; charset=utf-8\r\ntransfer-encoding: chunked\r\n\r\n"
_END = b"e\r\ndata: [DONE]\n\n\r\n0\r\n\r\n"
_METRICS = (
    b'vllm:num_requests_running{model_name="simulated"} 0\n'
    b'vllm:num_requests_waiting{model_name="simulated"} 0\n'
    b'vllm:kv_cache_usage_perc{model_name="simulated"} 0\n'
)


_NOT_SPLIT = b"HTTP/1.1 422 Unprocessable Content\r\ncontent-type: text/plain\r\ncontent-length: 0\r\n\r\n"
"""What a completion gets that comes without the parameters of a prefill leg: its router did not do its work."""


def chunk(text: str, *, last: bool) -> bytes:
    """Return one streamed token as an HTTP chunk."""
    choice = {"index": 0, "text": text, "logprobs": None, "finish_reason": "length" if last else None}
    data = b"data: " + json.dumps(_EVENT | {"choices": [choice]}).encode() + b"\n\n"
    return b"%x\r\n%b\r\n" % (len(data), data)


def plain(content_type: bytes, body: bytes) -> bytes:
    """Return a whole response."""
    return b"HTTP/1.1 200 OK\r\ncontent-type: %b\r\ncontent-length: %d\r\n\r\n%b" % (content_type, len(body), body)


def prefill_answer(port: int) -> bytes:
    """Return the answer to a prefill leg."""
    parameters = {
        "do_remote_prefill": True,
        "do_remote_decode": False,
        "remote_block_ids": [[1, 2, 3, 4]],
        "remote_engine_id": f"engine-{port}",
        "remote_request_id": "cmpl-0",
        "remote_host": "127.0.0.1",
        "remote_port": port + 10_000,
        "tp_size": 1,
    }
    choice = {"index": 0, "text": " a", "logprobs": None, "finish_reason": "length"}
    usage = {"prompt_tokens": 64, "completion_tokens": 1, "total_tokens": 65}
    content = _EVENT | {"choices": [choice], "usage": usage, "kv_transfer_params": parameters}
    return plain(b"application/json", json.dumps(content).encode())


class Worker:
    """What all connections of a worker share."""

    def __init__(self, port: int, tokens_per_s: float, tokens: int) -> None:
        self.prefill = prefill_answer(port)
        self.canned = _HEAD + b"".join(chunk(" a", last=number == TOKENS - 1) for number in range(TOKENS)) + _END
        self.every_s = 1 / tokens_per_s if tokens_per_s else 0.0
        self.tokens = tokens
        self.streams: dict[asyncio.Transport, list[float]] = {}
        """Of each stream under way: when its next token is due, and how many are left."""

    def answer(self, transport: asyncio.Transport, request: bytes) -> None:
        """Answer one request."""
        if request.startswith(b"GET /metrics"):
            transport.write(plain(b"text/plain", _METRICS))
        elif request.startswith(b"GET"):
            transport.write(plain(b"application/json", b'{"object":"list","data":[{"id":"simulated"}]}'))
        elif b'"do_remote_decode":true' in request or b'"do_remote_decode": true' in request:
            transport.write(self.prefill)
        elif not self.every_s and b"do_remote_prefill" not in request:
            transport.write(_NOT_SPLIT)
        elif self.every_s:
            transport.write(_HEAD)
            self.streams[transport] = [time.monotonic() + self.every_s, float(self.tokens)]
        else:
            transport.write(self.canned)

    async def stream(self) -> None:
        """Write the tokens that are due, each with the time at which it was written."""
        while True:
            now = time.monotonic()
            for transport, state in list(self.streams.items()):
                if state[0] > now:
                    continue
                state[0] += self.every_s
                state[1] -= 1
                transport.write(chunk(f"@{time.monotonic():.6f}@", last=state[1] == 0))
                if not state[1]:
                    transport.write(_END)
                    del self.streams[transport]
            await asyncio.sleep(TICK_S)


class Connection(asyncio.Protocol):
    """One connection: requests with a content-length, or none, one after the other."""

    def __init__(self, worker: Worker) -> None:
        self._worker = worker
        self._received = b""
        self._transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Keep the transport."""
        self._transport = cast(asyncio.Transport, transport)

    def connection_lost(self, exc: Exception | None) -> None:
        """Forget the stream under way."""
        if self._transport is not None:
            self._worker.streams.pop(self._transport, None)

    def data_received(self, data: bytes) -> None:
        """Answer every whole request."""
        transport = cast(asyncio.Transport, self._transport)
        self._received += data
        while (end := self._received.find(b"\r\n\r\n")) >= 0:
            head = self._received[:end].lower()
            length = 0
            if (at := head.find(b"content-length:")) >= 0:
                length = int(head[at + 15 :].split(b"\r\n", 1)[0])
            whole = end + 4 + length
            if len(self._received) < whole:
                return
            request, self._received = self._received[:whole], self._received[whole:]
            self._worker.answer(transport, request)


async def serve(port: int, tokens_per_s: float, tokens: int) -> None:
    """Serve until the process ends."""
    worker = Worker(port, tokens_per_s, tokens)
    server = await asyncio.get_running_loop().create_server(lambda: Connection(worker), "127.0.0.1", port, backlog=2048)
    async with server:
        if tokens_per_s:
            await worker.stream()
        await server.serve_forever()


if __name__ == "__main__":
    rate, count = (float(sys.argv[2]), int(sys.argv[3])) if len(sys.argv) > 2 else (0.0, TOKENS)
    uvloop.run(serve(int(sys.argv[1]), rate, count))
