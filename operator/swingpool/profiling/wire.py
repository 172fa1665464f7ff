"""Requests to one worker whose every token is timed."""

import json
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import aiohttp

from swingpool_control.placement.openai import KV_TRANSFER, prefill_leg

COMPLETIONS = "/v1/completions"


class WorkerError(RuntimeError):
    """The worker answered with an error, or not at all: nothing more is asked of it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Timed:
    """One answer. Times are of the monotonic clock, in seconds."""

    sent_s: float
    token_s: tuple[float, ...]
    """When each token came; several that came together have one time."""

    @property
    def ttft_s(self) -> float:
        """Sending to first token."""
        return self.token_s[0] - self.sent_s


class WorkerClient:
    """Talks to one worker.

    Args:
        session: carries no time limit of its own; every request here has one.
        url: the worker's HTTP API.
        model: what the worker calls its model.
        timeout_s: for one request.
    """

    def __init__(self, session: aiohttp.ClientSession, url: str, model: str, *, timeout_s: float) -> None:
        self._session = session
        self._url = url.rstrip("/")
        self._model = model
        self._timeout = aiohttp.ClientTimeout(total=timeout_s, sock_connect=10)

    async def stream(
        self,
        prompt: Sequence[int],
        *,
        tokens: int,
        kv_transfer_params: Mapping[str, Any] | None = None,
        on_tokens: Callable[[int], None] | None = None,
    ) -> Timed:
        """Generate so many tokens after a prompt of token ids; tell `on_tokens` each time how many there are.

        Raises:
            WorkerError: an error, or fewer tokens.
        """
        body = self._body(prompt, tokens) | {"stream": True, "return_token_ids": True}
        if kv_transfer_params is not None:
            body[KV_TRANSFER] = dict(kv_transfer_params)
        times: list[float] = []
        sent_s = time.monotonic()
        try:
            async with self._session.post(self._url + COMPLETIONS, json=body, timeout=self._timeout) as response:
                if response.status != 200:
                    raise WorkerError(f"{self._url} answered {response.status}: {(await response.text())[:300]}")
                async for line in response.content:
                    now_s = time.monotonic()
                    if line.startswith(b"data: {"):
                        times += [now_s] * _tokens(json.loads(line[6:]))
                        if on_tokens is not None:
                            on_tokens(len(times))
        except (aiohttp.ClientError, OSError, TimeoutError, ValueError) as error:
            raise WorkerError(f"{self._url}: {type(error).__name__}: {error}") from error
        if len(times) != tokens:
            raise WorkerError(f"{self._url} generated {len(times)} tokens of {tokens}")
        return Timed(sent_s=sent_s, token_s=tuple(times))

    async def prefill_leg(self, prompt: Sequence[int]) -> Mapping[str, Any]:
        """Compute a prompt for another worker; return the parameters with which that one fetches its KV cache.

        Raises:
            WorkerError: an error, or the worker exchanges no KV cache.
        """
        answer = await self.post(COMPLETIONS, prefill_leg(self._body(prompt, 1)))
        params = answer.get(KV_TRANSFER)
        if not isinstance(params, dict):
            raise WorkerError(f"{self._url} keeps no KV cache for others: it runs without a connector")
        return params

    async def post(self, path: str, body: Mapping[str, Any]) -> dict[str, Any]:
        """Post JSON and return the answer.

        Raises:
            WorkerError: an error.
        """
        return await self._json("POST", path, body)

    async def get(self, path: str) -> dict[str, Any]:
        """Return a JSON answer.

        Raises:
            WorkerError: an error.
        """
        return await self._json("GET", path, None)

    async def metrics(self) -> str:
        """Return the worker's metrics.

        Raises:
            WorkerError: an error.
        """
        try:
            async with self._session.get(f"{self._url}/metrics", timeout=self._timeout) as response:
                response.raise_for_status()
                return await response.text()
        except (aiohttp.ClientError, OSError, TimeoutError) as error:
            raise WorkerError(f"{self._url}/metrics: {type(error).__name__}: {error}") from error

    async def _json(self, method: str, path: str, body: Mapping[str, Any] | None) -> dict[str, Any]:
        try:
            async with self._session.request(method, self._url + path, json=body, timeout=self._timeout) as response:
                if response.status != 200:
                    raise WorkerError(f"{self._url}{path} answered {response.status}: {(await response.text())[:300]}")
                answer = await response.json(content_type=None)
        except (aiohttp.ClientError, OSError, TimeoutError, ValueError) as error:
            raise WorkerError(f"{self._url}{path}: {type(error).__name__}: {error}") from error
        if not isinstance(answer, dict):
            raise WorkerError(f"{self._url}{path} answered with no object")
        return answer

    def _body(self, prompt: Sequence[int], tokens: int) -> dict[str, Any]:
        return {
            "model": self._model,
            "prompt": list(prompt),
            "max_tokens": tokens,
            "min_tokens": tokens,
            "ignore_eos": True,
            "temperature": 0,
        }


def _tokens(event: dict[str, Any]) -> int:
    """Return how many tokens an event brought; workers that name no token ids send one token an event."""
    if "error" in event:
        raise WorkerError(f"an error within the stream: {event['error']}")
    count = 0
    for choice in event["choices"]:
        ids = choice.get("token_ids")
        count += len(ids) if isinstance(ids, list) else bool(choice.get("text"))
    return count
