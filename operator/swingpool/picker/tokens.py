"""The tokens of a prompt, as a worker says them: by those it is looked up what lies where.

Prompts that come as token ids need nothing. For texts and chats a worker is asked, which knows its own tokenizer and
chat template; only for those long enough that a prefix matters, and for a short time: without tokens the estimate
counts.
"""

import itertools
import logging
import time
from array import array
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from hashlib import blake2b
from typing import Any

import aiohttp
import orjson

from swingpool.picker.fleet import Fleet
from swingpool_control.placement.chains import chain_of
from swingpool_control.placement.prompts import CHUNK_BYTES
from swingpool_control.placement.ticket import Ticket
from swingpool_control.vllm import tokenize

MOST_ASKED = 64
"""Prompts whose tokens are asked for at a time."""
MOST_REMEMBERED = 256
MOST_TOKENS_REMEMBERED = 1_000_000
FAILURES = 3
"""In a row, after which nobody is asked for a while."""
PAUSE_S = 2.0

log = logging.getLogger(__name__)


class Tokens:
    """Finds the exact blocks of prompts.

    Args:
        fleet: the workers.
        session: asks them.
        timeout_s: how long a prompt waits for its tokens; 0 asks nobody.
        base: names of the model itself; all others are adapters. Empty if that is not known.
    """

    def __init__(
        self, fleet: Fleet, session: aiohttp.ClientSession, *, timeout_s: float, base: Sequence[str] = ()
    ) -> None:
        self._told = fleet.dispatcher.roster.present.follow()
        self._roster = fleet.dispatcher.roster
        self._session = session
        self._timeout = aiohttp.ClientTimeout(total=timeout_s) if timeout_s > 0 else None
        self._base = frozenset(base)
        self._turns = itertools.count()
        self._asked = 0
        self._failures = 0
        self._pause_until_s = 0.0
        self._known: OrderedDict[bytes, array[int]] = OrderedDict()
        self._known_tokens = 0

    async def trace(self, ticket: Ticket, body: Mapping[str, Any], *, chat: bool) -> None:
        """Let a request be looked up by its exact blocks, if its tokens are known or said in time."""
        size = self._told.block_tokens
        if not size:  # no worker has told of a block
            return
        prompt = None if chat else body.get("prompt")
        if isinstance(prompt, list) and prompt and isinstance(prompt[0], int):
            tokens: Sequence[int] | None = prompt
        else:
            tokens = await self._said(body, chat=chat) if ticket.hashes else None
        if not tokens:
            return
        model, salt = body.get("model"), body.get("cache_salt")
        adapter = model if self._base and isinstance(model, str) and model not in self._base else None
        ticket.tokens = len(tokens)
        ticket.chain_tokens = size
        ticket.chain = chain_of(
            tokens, block_tokens=size, adapter=adapter, salt=salt if isinstance(salt, str) and salt else None
        )

    async def _said(self, body: Mapping[str, Any], *, chat: bool) -> Sequence[int] | None:
        """Return the tokens of a text or a chat; None if nobody says them in time."""
        asked = tokenize.request(body, chat=chat)
        if asked is None or self._timeout is None:
            return None
        raw = orjson.dumps(asked)
        if len(raw) < CHUNK_BYTES:
            return None
        key = blake2b(raw, digest_size=16).digest()
        known = self._known.get(key)
        if known is not None:
            self._known.move_to_end(key)
            return known
        if self._asked >= MOST_ASKED or time.monotonic() < self._pause_until_s:
            return None
        self._asked += 1
        try:
            tokens = await self._ask(raw)
        finally:
            self._asked -= 1
        if tokens is not None:
            self._remember(key, tokens)
        return tokens

    async def _ask(self, raw: bytes) -> "array[int] | None":
        # Prefill workers' servers have less to say to clients than those that stream tokens.
        asked = self._roster.openings.accounts or self._roster.decoders.accounts
        if not asked:
            return None
        worker = asked[next(self._turns) % len(asked)].worker
        try:
            async with self._session.post(
                f"http://{worker}{tokenize.PATH}",
                data=raw,
                headers={"content-type": "application/json"},
                timeout=self._timeout,
            ) as response:
                if response.status != 200:
                    return None  # whatever is wrong with it, its worker will say so
                tokens = tokenize.tokens(orjson.loads(await response.read()))
        except (TimeoutError, aiohttp.ClientError, ValueError) as error:
            self._failed(worker, error)
            return None
        self._failures = 0
        return tokens

    def _failed(self, worker: str, error: Exception) -> None:
        self._failures += 1
        if self._failures >= FAILURES:
            self._failures = 0
            self._pause_until_s = time.monotonic() + PAUSE_S
            log.info("no worker is asked for tokens for %g s: %s: %r", PAUSE_S, worker, error)

    def _remember(self, key: bytes, tokens: "array[int]") -> None:
        self._known[key] = tokens
        self._known_tokens += len(tokens)
        while len(self._known) > MOST_REMEMBERED or self._known_tokens > MOST_TOKENS_REMEMBERED:
            self._known_tokens -= len(self._known.popitem(last=False)[1])
