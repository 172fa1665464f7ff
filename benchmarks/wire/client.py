"""A load on a router: so many connections, each sending its next request when the answer to the last one is whole.

Run as `python -m benchmarks.wire.client PORT CONNECTIONS SECONDS TOKENS`; prints one JSON object. A request counts only
if its answer has the status 200, all its tokens, and its end. Tokens that carry the time at which they were written
give the delay of each token.
"""

import asyncio
import json
import re
import sys
import time
from dataclasses import dataclass, field
from typing import cast

import uvloop

PROMPT = " ".join(["word"] * 64)
END = b"0\r\n\r\n"
STAMP = re.compile(rb"@([0-9.]+)@")
BODY = json.dumps({"model": "simulated", "prompt": PROMPT, "max_tokens": 64, "stream": True}).encode()
REQUEST = (
    b"POST /v1/completions HTTP/1.1\r\nhost: router\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n"
    % len(BODY)
) + BODY


@dataclass(slots=True)
class Found:
    """What all connections found."""

    latencies_s: list[float] = field(default_factory=list)
    delays_s: list[float] = field(default_factory=list)
    wrong: int = 0


class Connection(asyncio.Protocol):
    """One connection."""

    def __init__(self, found: Found, until_s: float, tokens: int, over: asyncio.Future[None]) -> None:
        self._found = found
        self._until_s = until_s
        self._tokens = tokens
        self._over = over
        self._parts: list[bytes] = []
        self._begun_s = 0.0
        self._transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Send the first request."""
        self._transport = cast(asyncio.Transport, transport)
        self._send()

    def data_received(self, data: bytes) -> None:
        """Gather an answer; send the next request at its end."""
        if b"@" in data:
            now = time.monotonic()
            self._found.delays_s.extend(now - float(stamp) for stamp in STAMP.findall(data))
        self._parts.append(data)
        # The end may come in a piece of its own, even in two.
        if not data.endswith(END) and (len(data) >= len(END) or not b"".join(self._parts[-2:]).endswith(END)):
            return
        answer = b"".join(self._parts)
        now = time.monotonic()
        whole = answer.startswith(b"HTTP/1.1 200") and answer.count(b"data: {") == self._tokens and b"[DONE]" in answer
        if whole:
            self._found.latencies_s.append(now - self._begun_s)
        else:
            self._found.wrong += 1
        if now < self._until_s and whole:
            self._send()
        elif not self._over.done():
            self._over.set_result(None)

    def connection_lost(self, exc: Exception | None) -> None:
        """Count a connection that was closed under a request."""
        if not self._over.done():
            self._found.wrong += 1
            self._over.set_result(None)

    def _send(self) -> None:
        self._parts = []
        self._begun_s = time.monotonic()
        cast(asyncio.Transport, self._transport).write(REQUEST)


async def load(port: int, connections: int, seconds: float, tokens: int) -> dict[str, float]:
    """Return what was found."""
    loop = asyncio.get_running_loop()
    found, begun_s = Found(), time.monotonic()
    waits: list[asyncio.Future[None]] = []
    transports = []
    for _ in range(connections):
        over: asyncio.Future[None] = loop.create_future()
        waits.append(over)
        made = lambda over=over: Connection(found, begun_s + seconds, tokens, over)  # noqa: E731
        transport, _protocol = await loop.create_connection(made, "127.0.0.1", port)
        transports.append(transport)
    done, pending = await asyncio.wait(waits, timeout=seconds + 60)
    del done
    for transport in transports:
        transport.close()
    ordered, delays = sorted(found.latencies_s), sorted(found.delays_s)
    return {
        "requests": len(ordered),
        "requests_per_s": len(ordered) / (time.monotonic() - begun_s),
        "wrong": found.wrong + len(pending),
        "p50_ms": _at(ordered, 0.50) * 1000,
        "p99_ms": _at(ordered, 0.99) * 1000,
        "token_p50_ms": _at(delays, 0.50) * 1000,
        "token_p99_ms": _at(delays, 0.99) * 1000,
    }


def _at(ordered: list[float], share: float) -> float:
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))] if ordered else 0.0


if __name__ == "__main__":
    arguments = int(sys.argv[1]), int(sys.argv[2]), float(sys.argv[3]), int(sys.argv[4])
    print(json.dumps(uvloop.run(load(*arguments))))
