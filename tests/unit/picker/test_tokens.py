"""A prompt's tokens: from the prompt, from a worker that answers in time, or not at all, and never by waiting long."""

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import aiohttp
import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from swingpool.picker import tokens as module
from swingpool.picker.fleet import Fleet
from swingpool.picker.tokens import Tokens
from swingpool_control import names
from swingpool_control.placement.account import Account
from swingpool_control.placement.cache_events import Stored
from swingpool_control.placement.chains import chain_of
from swingpool_control.placement.prompts import CHUNK_BYTES
from swingpool_control.placement.ticket import Ticket
from swingpool_control.placement.typical import TYPICAL

SIZE = 4
LONG = "word " * CHUNK_BYTES
Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


class Stand:
    """A worker that says tokens, and who asks it."""

    def __init__(self, tokens: Tokens, asked: list[dict[str, Any]]) -> None:
        self.tokens = tokens
        self.asked = asked

    async def trace(self, body: dict[str, Any], *, chat: bool = False, long: bool = True) -> Ticket:
        """Return a request's ticket, as it is placed."""
        ticket = Ticket(0, 50, arrived_s=0.0, hashes=(1,) if long else (), block_tokens=8)
        await self.tokens.trace(ticket, body, chat=chat)
        return ticket


@pytest.fixture
async def make() -> AsyncIterator[Callable[..., Awaitable[Stand]]]:
    """Starts a worker that answers as a handler does, and makes who asks it."""
    opened: list[TestServer | aiohttp.ClientSession] = []

    async def started(answer: Any = None, *, handler: Handler | None = None, timeout_s: float = 30.0) -> Stand:
        asked: list[dict[str, Any]] = []

        async def tokenize(request: web.Request) -> web.StreamResponse:
            asked.append(await request.json())
            return web.json_response(answer) if handler is None else await handler(request)

        app = web.Application()
        app.router.add_post("/tokenize", tokenize)
        server = TestServer(app)
        await server.start_server()
        session = aiohttp.ClientSession()
        opened.extend((session, server))
        fleet = Fleet()
        account = Account(f"{server.host}:{server.port}", TYPICAL)
        fleet.dispatcher.changed(account, role=names.ROLE_PREFILL, in_rotation=True)
        found = Tokens(fleet, session, timeout_s=timeout_s, base=("base",))
        told = fleet.dispatcher.roster.present.follow()
        told.begin("w")
        told.take("w", Stored(keys=(1,), parent=None, tokens=[0] * SIZE, block_tokens=SIZE))
        return Stand(found, asked)

    yield started
    for one in opened:
        await one.close()


async def test_token_ids_need_nobody(make: Callable[..., Awaitable[Stand]]) -> None:
    stand = await make()
    ticket = await stand.trace({"model": "base", "prompt": list(range(10))}, long=False)
    assert ticket.chain == chain_of(range(10), block_tokens=SIZE)
    assert (ticket.tokens, ticket.chain_tokens) == (10, SIZE)
    assert not stand.asked


async def test_adapters_and_salts_count(make: Callable[..., Awaitable[Stand]]) -> None:
    stand = await make()
    ids = list(range(10))
    ticket = await stand.trace({"model": "sql", "prompt": ids, "cache_salt": "mine"})
    assert ticket.chain == chain_of(ids, block_tokens=SIZE, adapter="sql", salt="mine")


async def test_a_worker_is_asked_once_for_a_long_text(make: Callable[..., Awaitable[Stand]]) -> None:
    stand = await make({"tokens": list(range(9)), "count": 9})
    body = {"model": "base", "prompt": LONG, "max_tokens": 3}
    for _ in range(2):
        assert (await stand.trace(body)).chain == chain_of(range(9), block_tokens=SIZE)
    assert stand.asked == [{"model": "base", "prompt": LONG}]
    await stand.trace({"model": "base", "messages": [{"role": "user", "content": LONG}]}, chat=True)
    assert json.dumps(stand.asked[-1]).count("word") == CHUNK_BYTES
    assert not (await stand.trace({"model": "base", "prompt": "short"}, long=False)).chain
    assert len(stand.asked) == 2


@pytest.mark.parametrize("answer", [{}, [], {"tokens": "x"}, None])
async def test_odd_answers_leave_the_estimate(make: Callable[..., Awaitable[Stand]], answer: Any) -> None:
    stand = await make(answer)
    assert not (await stand.trace({"prompt": LONG})).chain


async def test_refusals_leave_the_estimate(make: Callable[..., Awaitable[Stand]]) -> None:
    async def refuse(_: web.Request) -> web.StreamResponse:
        return web.Response(status=400)

    stand = await make(handler=refuse)
    assert not (await stand.trace({"prompt": LONG})).chain


async def test_who_says_nothing_in_time_is_left_alone_for_a_while(make: Callable[..., Awaitable[Stand]]) -> None:
    async def hang(_: web.Request) -> web.StreamResponse:
        await asyncio.Event().wait()
        raise AssertionError

    stand = await make(handler=hang, timeout_s=0.05)
    for number in range(2 * module.FAILURES):
        assert not (await stand.trace({"prompt": f"{number}{LONG}"})).chain
    assert len(stand.asked) == module.FAILURES


async def test_nobody_is_asked_if_that_is_not_wanted_or_of_no_use(make: Callable[..., Awaitable[Stand]]) -> None:
    stand = await make({"tokens": [1] * 9}, timeout_s=0)
    assert not (await stand.trace({"prompt": LONG})).chain
    stand = await make({"tokens": [1] * 9})
    stand.tokens._told.block_tokens = 0  # no worker has told of a block
    assert not (await stand.trace({"prompt": LONG})).chain
    assert not (await stand.trace({"prompt": list(range(10))})).chain
    assert not stand.asked


async def test_little_is_remembered(make: Callable[..., Awaitable[Stand]], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MOST_TOKENS_REMEMBERED", 20)
    stand = await make({"tokens": [1] * 9})
    for number in (1, 2, 3, 1):
        assert (await stand.trace({"prompt": f"{number}{LONG}"})).chain
    assert len(stand.asked) == 4, "the first was forgotten for the third"
    assert stand.tokens._known_tokens == 18
