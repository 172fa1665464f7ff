"""Clients that leave: each sends a request and closes its connection after a moment of its own, heard or not."""

import asyncio
import json
import random
from collections import Counter
from dataclasses import dataclass

import aiohttp

from e2e.load.client import request
from e2e.load.plan import Arrival

_AT_ONCE = 32
LONGEST_S = 1.5


@dataclass(frozen=True, slots=True, kw_only=True)
class Left:
    """What was under way when clients left."""

    before_headers: int
    amid_answer: int
    answered: int
    """Answers that were whole before their client left."""


def leave(url: str, model: str, *, clients: int, seed: int = 0) -> Left:
    """Let so many clients leave, some at a time, each after at most `LONGEST_S`."""
    return asyncio.run(_leave(url, model, clients=clients, seed=seed))


async def _leave(url: str, model: str, *, clients: int, seed: int) -> Left:
    counts: Counter[str] = Counter()
    numbers = iter(range(clients))
    connector = aiohttp.TCPConnector(limit=0, force_close=True)
    async with aiohttp.ClientSession(connector=connector) as session:

        async def work() -> None:
            for number in numbers:
                counts[await _one(session, url, model, number, random.Random(f"{seed} {number}"))] += 1

        await asyncio.gather(*(work() for _ in range(_AT_ONCE)))
    return Left(before_headers=counts["before"], amid_answer=counts["amid"], answered=counts["answered"])


async def _one(session: aiohttp.ClientSession, url: str, model: str, number: int, rng: random.Random) -> str:
    arrival = Arrival(
        number=number,
        phase="leaving",
        at_s=0.0,
        prompt_tokens=rng.randint(20, 600),
        output_tokens=rng.randint(1, 60),
        stream=rng.random() < 0.7,
        chat=rng.random() < 0.5,
    )
    path, body = request(arrival, model=model)
    headers = {"content-type": "application/json"}
    came = "before"
    # Most leave early, where two legs meet.
    patience_s = LONGEST_S * rng.random() ** 3
    try:
        async with (
            asyncio.timeout(patience_s),
            session.post(url + path, data=json.dumps(body), headers=headers) as answer,
        ):
            came = "amid"
            await answer.read()
            came = "answered"
    except (TimeoutError, aiohttp.ClientError, OSError):
        pass
    return came
