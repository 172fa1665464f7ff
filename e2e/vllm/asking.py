"""Requests whose answers are compared token by token, and how they are sent."""

import asyncio
import itertools
import json
import random
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import aiohttp

from e2e.vllm.server import MODEL

WORDS = 509
"""Words of the tiny model's tokenizer."""

FIRST_WORD = 3
"""Token id of the first word; special tokens come before it."""

PREFILL_LEG = {
    "do_remote_decode": True,
    "do_remote_prefill": False,
    "remote_engine_id": None,
    "remote_block_ids": None,
    "remote_host": None,
    "remote_port": None,
}
"""`kv_transfer_params` by which a worker keeps a prompt's blocks for another one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """One request: greedy, of an exact length."""

    number: int
    prompt: tuple[int, ...]
    """Words, by number; each is a token."""
    output_tokens: int
    stream: bool
    chat: bool
    ids: bool = False
    """Whether the prompt is sent as token ids, so that nothing is tokenized; a chat is always text."""

    def body(self) -> dict[str, Any]:
        """Return the request's body."""
        text = " ".join(f"w{word}" for word in self.prompt)
        prompt = [FIRST_WORD + word for word in self.prompt] if self.ids else text
        content = {"messages": [{"role": "user", "content": text}]} if self.chat else {"prompt": prompt}
        return {
            "model": MODEL,
            "max_tokens": self.output_tokens,
            "ignore_eos": True,
            "temperature": 0,
            "stream": self.stream,
            "return_token_ids": True,
            **content,
        }

    @property
    def path(self) -> str:
        """Where it is sent to."""
        return "/v1/chat/completions" if self.chat else "/v1/completions"


@dataclass(frozen=True, slots=True, kw_only=True)
class Answered:
    """What came back."""

    number: int
    tokens: tuple[int, ...] = ()
    error: str = ""
    """Why it failed; empty if the whole answer came."""
    seconds: float = 0.0
    first_s: float | None = None
    """Sending to first token; streams only."""
    gaps_s: tuple[float, ...] = ()
    """Between tokens; streams only."""


def drawn(
    count: int,
    *,
    seed: int,
    prompt_tokens: tuple[int, int] = (48, 320),
    output_tokens: tuple[int, int] = (12, 40),
    first: int = 0,
) -> list[Asked]:
    """Return requests of which no two share a prompt's beginning; half stream, a quarter are chats.

    They are numbered from `first` on.
    """
    rng = random.Random(seed)
    return [
        Asked(
            number=first + number,
            prompt=tuple(rng.randrange(WORDS) for _ in range(rng.randint(*prompt_tokens))),
            output_tokens=rng.randint(*output_tokens),
            stream=rng.random() < 0.5,
            chat=rng.random() < 0.25,
        )
        for number in range(count)
    ]


async def ask(session: aiohttp.ClientSession, url: str, asked: Asked) -> Answered:
    """Send one request and read its answer; failures of any kind end in the answer's `error`."""
    begin_s = time.monotonic()
    try:
        async with session.post(url + asked.path, json=asked.body()) as response:
            if response.status != 200:
                return Answered(number=asked.number, error=f"{response.status}: {(await response.text())[:300]}")
            if asked.stream:
                return await _streamed(response, asked, begin_s)
            choice = (await response.json())["choices"][0]
            return _judged(asked, list(choice["token_ids"]), choice["finish_reason"], begin_s)
    except (aiohttp.ClientError, OSError, TimeoutError, ValueError, KeyError) as error:
        return Answered(
            number=asked.number, error=f"{type(error).__name__}: {error}", seconds=time.monotonic() - begin_s
        )


async def _streamed(response: aiohttp.ClientResponse, asked: Asked, begin_s: float) -> Answered:
    tokens: list[int] = []
    times_s: list[float] = []
    reason, done = None, False
    async for line in response.content:
        data = line.removeprefix(b"data: ").strip()
        if data == b"[DONE]":
            done = True
        elif data:
            event = json.loads(data)
            if "error" in event:
                return Answered(number=asked.number, error=f"error event: {event['error']}")
            for choice in event["choices"]:
                new = choice.get("token_ids") or []
                tokens += new
                times_s += [time.monotonic()] * len(new)
                reason = choice["finish_reason"] or reason
    return _judged(asked, tokens, reason if done else "no [DONE]", begin_s, times_s)


def _judged(
    asked: Asked, tokens: list[int], reason: str | None, begin_s: float, times_s: Sequence[float] = ()
) -> Answered:
    whole = reason == "length" and len(tokens) == asked.output_tokens
    return Answered(
        number=asked.number,
        tokens=tuple(tokens),
        error="" if whole else f"{len(tokens)} of {asked.output_tokens} tokens, finish reason {reason}",
        seconds=time.monotonic() - begin_s,
        first_s=times_s[0] - begin_s if times_s else None,
        gaps_s=tuple(after - before for before, after in itertools.pairwise(times_s)),
    )


async def at_once(
    session: aiohttp.ClientSession, url: str, requests: Sequence[Asked], *, in_flight: int
) -> list[Answered]:
    """Send requests, so many at a time; return answers in their order."""
    gate = asyncio.Semaphore(in_flight)

    async def one(asked: Asked) -> Answered:
        async with gate:
            return await ask(session, url, asked)

    return list(await asyncio.gather(*(one(asked) for asked in requests)))


async def at_rate(
    session: aiohttp.ClientSession, url: str, requests: Sequence[Asked], *, per_s: float, seed: int
) -> list[Answered]:
    """Send requests as they would come by themselves, at random moments; return answers in their order."""
    rng = random.Random(seed)
    tasks = []
    due_s = time.monotonic()
    for asked in requests:
        due_s += rng.expovariate(per_s)
        await asyncio.sleep(max(0.0, due_s - time.monotonic()))
        tasks.append(asyncio.create_task(ask(session, url, asked)))
    return list(await asyncio.gather(*tasks))


async def reset_prefix_cache(session: aiohttp.ClientSession, url: str) -> None:
    """Let a server forget what it computed, so that it serves nothing from memory."""
    async with session.post(f"{url}/reset_prefix_cache") as response:
        response.raise_for_status()


async def prompt_tokens_by_source(session: aiohttp.ClientSession, url: str) -> dict[str, float]:
    """Return where a server's prompt tokens came from, since it started."""
    found: dict[str, float] = {}
    async with session.get(f"{url}/metrics") as response:
        for line in (await response.text()).splitlines():
            if line.startswith("vllm:prompt_tokens_by_source_total{"):
                labels, _, value = line.rpartition(" ")
                source = labels.split('source="')[1].split('"')[0]
                found[source] = found.get(source, 0.0) + float(value)
    return found
