"""What a worker tells of its KV cache, as the picker keeps it, is what the worker finds there: request by request.

The cache is small, so that blocks are evicted all the time; prompts begin alike, come as token ids, text and chats, and
some of them at once, so that contents lie there more than once. Whatever `cached_tokens` an answer reports, the picker
must have known before the request was sent.
"""

import asyncio
import json
import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import aiohttp
import zmq

from e2e.ports import free_port
from e2e.vllm.asking import FIRST_WORD, WORDS
from e2e.vllm.finding import Finding
from e2e.vllm.server import BLOCK_TOKENS, MODEL, ServerOptions
from e2e.vllm.stand import Stand, client
from swingpool.picker.fleet import Fleet
from swingpool.picker.kv_feed import CatchingUp, Feed
from swingpool.picker.tokens import Tokens
from swingpool_control import names
from swingpool_control.placement.account import Account
from swingpool_control.placement.present import TOLD
from swingpool_control.placement.ticket import Ticket
from swingpool_control.placement.typical import TYPICAL

NAME = "telling"
BLOCKS = 48
LONGEST = 1024
REQUESTS = 60
AT_ONCE = 2
_HEADS = 3
_QUIET_S = 0.4
"""Without a message for so long, all has been told: a step's messages come within a tenth of a second."""
_TOKENIZE_S = 30.0


@dataclass(kw_only=True)
class _Seen:
    asked: int = 0
    told: int = 0
    """Requests whose tokens were known, with all known of the cache."""
    wrong: list[str] = field(default_factory=list)
    cached_tokens: int = 0
    prompt_tokens: int = 0


class _Follower:
    """The picker's parts that follow one server and look prompts up."""

    def __init__(self, stand: Stand, session: aiohttp.ClientSession, ports: tuple[int, int]) -> None:
        self.server = stand.servers[NAME]
        self.session = session
        fleet = Fleet()
        self.present = fleet.dispatcher.roster.present
        self.context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
        self.feed = Feed(
            self.context,
            worker=self.server.address,
            events=f"127.0.0.1:{ports[0]}",
            replay=f"127.0.0.1:{ports[1]}",
            present=self.present,
            catching_up=CatchingUp(),
        )
        account = Account(self.server.address, TYPICAL)
        fleet.dispatcher.changed(account, role=names.ROLE_PREFILL, in_rotation=True)
        self.tokens = Tokens(fleet, session, timeout_s=_TOKENIZE_S, base=(MODEL,))

    async def known(self, *, limit_s: float = 60.0) -> None:
        """Wait until all that is in the cache is known."""
        async with asyncio.timeout(limit_s):
            while not self.present.follow().knows(self.server.address):  # noqa: ASYNC110 - nobody tells
                await asyncio.sleep(0.05)

    async def caught_up(self) -> None:
        """Wait until no message comes any more."""
        before = -1
        while before != self.feed.messages:
            before = self.feed.messages
            await asyncio.sleep(_QUIET_S)

    async def ask(self, body: dict[str, Any], seen: _Seen) -> None:
        """Send a request; compare what the server finds of its prompt with what was known before."""
        chat = "messages" in body
        ticket = Ticket(0, 1, arrived_s=0.0, hashes=(1,), block_tokens=BLOCK_TOKENS)
        await self.tokens.trace(ticket, body, chat=chat)
        there = self.present.at(ticket, self.server.address, now_s=0.0)
        exact = self.present.how(ticket, self.server.address) == TOLD
        usage = (await self.post(body))["usage"]
        cached = (usage.get("prompt_tokens_details") or {}).get("cached_tokens") or 0
        seen.asked += 1
        seen.prompt_tokens += usage["prompt_tokens"]
        seen.cached_tokens += cached
        seen.told += exact
        if exact and (there != cached or ticket.tokens != usage["prompt_tokens"]):
            seen.wrong.append(
                f"request {seen.asked}{' (chat)' if chat else ''}: told {there} of {ticket.tokens} tokens, "
                f"found {cached} of {usage['prompt_tokens']}"
            )
        await self.caught_up()

    async def post(self, body: dict[str, Any]) -> dict[str, Any]:
        """Return the server's answer."""
        path = "/v1/chat/completions" if "messages" in body else "/v1/completions"
        async with self.session.post(self.server.url + path, json=body) as response:
            response.raise_for_status()
            answer: dict[str, Any] = await response.json()
            return answer


async def check(stand: Stand) -> list[Finding]:
    """Start a server that tells, and ask it in all the ways that change its cache."""
    ports = free_port(), free_port()
    config = {
        "enable_kv_cache_events": True,
        "publisher": "zmq",
        "endpoint": f"tcp://*:{ports[0]}",
        "replay_endpoint": f"tcp://*:{ports[1]}",
    }
    arguments = ("--kv-events-config", json.dumps(config), "--enable-prompt-tokens-details")
    options = ServerOptions(name=NAME, blocks=BLOCKS, longest=LONGEST, arguments=arguments)
    await asyncio.to_thread(stand.start, options)
    async with client() as session, _following(stand, session, ports) as follower:
        return [
            await _evicted(follower),
            await _emptied(follower),
            await _known_anew(stand, session, ports, follower),
            await _restarted(stand, follower),
        ]


@asynccontextmanager
async def _following(stand: Stand, session: aiohttp.ClientSession, ports: tuple[int, int]) -> AsyncIterator[_Follower]:
    follower = _Follower(stand, session, ports)
    task = asyncio.create_task(follower.feed.follow())
    try:
        await follower.known()
        yield follower
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        follower.context.destroy(linger=0)


def _bodies(count: int, seed: int) -> list[dict[str, Any]]:
    """Return requests of 430 to 590 tokens, most of which share a beginning with others.

    Texts are long enough for their tokens to be asked for.
    """
    rng = random.Random(seed)
    heads = [[rng.randrange(WORDS) for _ in range(rng.randrange(390, 460))] for _ in range(_HEADS)]
    found: list[dict[str, Any]] = []
    for _ in range(count):
        words = [*rng.choice(heads), *(rng.randrange(WORDS) for _ in range(rng.randrange(70, 130)))]
        if rng.random() < 0.3:
            words = words[: len(words) // BLOCK_TOKENS * BLOCK_TOKENS]  # the last block is computed once more
        text = " ".join(f"w{word}" for word in words)
        content: dict[str, Any] = rng.choice(
            [
                {"prompt": [FIRST_WORD + word for word in words]},
                {"prompt": text},
                {"messages": [{"role": "user", "content": text}]},
            ]
        )
        found.append({"model": MODEL, "max_tokens": rng.randrange(1, 50), "temperature": 0, **content})
    return found


async def _evicted(follower: _Follower) -> Finding:
    seen, rng = _Seen(), random.Random(71)
    for body in _bodies(REQUESTS, seed=70):
        if rng.random() < 0.15:  # several at once compute the same blocks, each for itself
            await asyncio.gather(*(follower.post(body | {"max_tokens": 2}) for _ in range(AT_ONCE)))
            await follower.caught_up()
        await follower.ask(body, seen)
    return Finding(
        claim="what a worker tells of its KV cache is what it finds there, block by block, as blocks come and go",
        holds=not seen.wrong and seen.told >= 0.9 * seen.asked and seen.cached_tokens > 0,
        figures={
            "requests": seen.asked,
            "told": seen.told,
            "wrong": len(seen.wrong),
            "prompt_tokens": seen.prompt_tokens,
            "cached_tokens": seen.cached_tokens,
            "messages": follower.feed.messages,
            "gaps": follower.feed.gaps,
        },
        notes=tuple(seen.wrong),
    )


async def _emptied(follower: _Follower) -> Finding:
    seen, bodies = _Seen(), _bodies(6, seed=72)
    for body in bodies:
        await follower.ask(body, seen)
    async with follower.session.post(f"{follower.server.url}/reset_prefix_cache") as response:
        response.raise_for_status()
    short = {"model": MODEL, "prompt": [FIRST_WORD] * 5, "max_tokens": 1}
    await follower.post(short)  # what changed is told with the next step
    await follower.caught_up()
    left = follower.present.follow().count(follower.server.address)
    found_before = seen.cached_tokens
    await follower.ask(bodies[-1], seen)
    return Finding(
        claim="a worker whose cache was reset says so, and finds nothing",
        holds=not seen.wrong and left == 0 and seen.cached_tokens == found_before,
        figures={"requests": seen.asked, "wrong": len(seen.wrong), "blocks_left": left},
        notes=tuple(seen.wrong),
    )


async def _known_anew(
    stand: Stand, session: aiohttp.ClientSession, ports: tuple[int, int], follower: _Follower
) -> Finding:
    """A picker that comes later is told all again."""
    bodies = _bodies(6, seed=73)
    seen = _Seen()
    for body in bodies:
        await follower.ask(body, seen)
    async with _following(stand, session, ports) as other:
        await other.caught_up()
        address = follower.server.address
        known = [one.present.follow().count(address) for one in (follower, other)]
        for body in bodies:
            await other.ask(body, seen)
    return Finding(
        claim="whoever follows a worker later is told again what lies there",
        holds=not seen.wrong and known[0] == known[1] > 0,
        figures={"requests": seen.asked, "wrong": len(seen.wrong), "blocks": known[0], "blocks_told_again": known[1]},
        notes=tuple(seen.wrong),
    )


async def _restarted(stand: Stand, follower: _Follower) -> Finding:
    told, address = follower.present.follow(), follower.server.address
    before = told.count(address)
    await asyncio.to_thread(stand.servers[NAME].stop)
    async with asyncio.timeout(30.0):
        while told.knows(address):  # noqa: ASYNC110 - nobody tells
            await asyncio.sleep(0.05)
    await asyncio.to_thread(stand.servers[NAME].start)
    await asyncio.to_thread(stand.servers[NAME].await_health)
    await follower.known()
    await follower.caught_up()
    left, seen = told.count(address), _Seen()
    for body in _bodies(6, seed=73):
        await follower.ask(body, seen)
    return Finding(
        claim="a worker that restarted has nothing of what it told before",
        holds=not seen.wrong and before > 0 and left < before,
        figures={"requests": seen.asked, "wrong": len(seen.wrong), "blocks_before": before, "blocks_after": left},
        notes=tuple(seen.wrong),
    )
