"""Sends one request and judges its answer."""

import asyncio
import itertools
import json
import random
import time
from typing import Any

import aiohttp

from e2e.load.plan import Arrival, Plan
from e2e.load.record import Outcome, Record
from e2e.load.sse import TokenStream

_LETTERS = "abcdefghijklmnopqrstuvwxyz0123456789"
_WORDS = ["".join(letters) for letters in itertools.product(_LETTERS, repeat=3)]
"""With the space between two of them four characters each: a token of the simulated workers."""
_RUN_OF_WORDS = 500
_ERROR_TEXT = 400


def prompt(arrival: Arrival) -> str:
    """Return a prompt of as many words as the arrival asks for tokens, unlike any other from its first word on."""
    rng = random.Random(arrival.number)
    words = [_WORDS[arrival.number % len(_WORDS)]]
    while len(words) < arrival.prompt_tokens:
        start = rng.randrange(len(_WORDS) - _RUN_OF_WORDS)
        words += _WORDS[start : start + min(_RUN_OF_WORDS, arrival.prompt_tokens - len(words))]
    return " ".join(words)


def request(arrival: Arrival, *, model: str) -> tuple[str, dict[str, Any]]:
    """Return path and body of a request."""
    body: dict[str, Any] = {
        "model": model,
        "max_tokens": arrival.output_tokens,
        "ignore_eos": True,
        "temperature": 0,
        "stream": arrival.stream,
    }
    if arrival.chat:
        return "/v1/chat/completions", body | {"messages": [{"role": "user", "content": prompt(arrival)}]}
    return "/v1/completions", body | {"prompt": prompt(arrival)}


class Client:
    """Sends requests over one session; `start` is the loop's clock at the start of the run."""

    def __init__(self, session: aiohttp.ClientSession, plan: Plan, *, start: float) -> None:
        self._session = session
        self._plan = plan
        self._start = start

    def _now_s(self) -> float:
        return time.monotonic() - self._start

    async def send(self, arrival: Arrival, record: Record) -> None:
        """Send a request and fill its record; errors of any kind end there."""
        path, body = request(arrival, model=self._plan.model)
        try:
            async with asyncio.timeout(self._plan.request_timeout_s):
                record.sent_s = self._now_s()
                async with self._session.post(
                    self._plan.url + path, data=json.dumps(body), headers=self._plan.headers
                ) as response:
                    record.status = response.status
                    if response.status != 200:
                        record.outcome = Outcome.REFUSED
                        record.error = (await response.text(errors="replace"))[:_ERROR_TEXT]
                    elif arrival.stream:
                        await self._read_stream(response, record)
                    else:
                        self._read_whole(await response.json(), record)
        except TimeoutError:
            record.outcome = Outcome.TIMED_OUT
            record.error = f"no whole answer in {self._plan.request_timeout_s:g} s"
        except (aiohttp.ClientError, OSError, ValueError) as error:
            record.outcome = Outcome.CUT
            record.error = f"{type(error).__name__}: {error}"[:_ERROR_TEXT]
        record.ended_s = self._now_s()

    async def _read_stream(self, response: aiohttp.ClientResponse, record: Record) -> None:
        stream = TokenStream()
        async for data in response.content.iter_any():
            tokens = stream.feed(data)
            if not tokens:
                continue
            now_s = self._now_s()
            if record.last_token_s is None:
                record.first_token_s = now_s
            else:
                record.itl_s.append(now_s - record.last_token_s)
            record.itl_s.extend([0.0] * (tokens - 1))
            record.last_token_s = now_s
            record.received_tokens += tokens
        judge(record, finish_reason=stream.finish_reason, error=stream.error, ended=stream.done)

    def _read_whole(self, answer: dict[str, Any], record: Record) -> None:
        choices = answer.get("choices") or [{}]
        record.received_tokens = int((answer.get("usage") or {}).get("completion_tokens", 0))
        judge(record, finish_reason=str(choices[0].get("finish_reason") or ""), error="", ended=True)


def judge(record: Record, *, finish_reason: str, error: str, ended: bool) -> None:
    """Set a record's outcome from what its answer held."""
    if error:
        record.outcome, record.error = Outcome.ERROR_EVENT, error[:_ERROR_TEXT]
    elif not ended:
        record.outcome = Outcome.CUT
        record.error = f"the stream ended after {record.received_tokens} tokens without [DONE]"
    elif finish_reason != "length" or record.received_tokens != record.expected_tokens:
        record.outcome = Outcome.INCOMPLETE
        record.error = (
            f"{record.received_tokens} of {record.expected_tokens} tokens, finish reason {finish_reason or 'missing'}"
        )
    else:
        record.outcome = Outcome.WHOLE
