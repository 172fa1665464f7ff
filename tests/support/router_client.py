"""Requests to an OpenAI API, and answers as tests compare them."""

import io
import json
from dataclasses import dataclass
from typing import Any

import aiohttp

from tests.support.router_stand import MODEL

_JSON = {"content-type": "application/json"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What came back."""

    status: int
    headers: dict[str, str]
    text: str
    """The generated text; of an error, the whole body."""
    chunks: int = 0
    usage: dict[str, Any] | None = None


def completion(prompt: str | list[int] = "one two three", **more: Any) -> dict[str, Any]:
    """Return a completion's body."""
    return {"model": MODEL, "prompt": prompt, "max_tokens": 8, "temperature": 0} | more


def chat(text: str = "one two three", **more: Any) -> dict[str, Any]:
    """Return a chat completion's body."""
    return {"model": MODEL, "messages": [{"role": "user", "content": text}], "max_tokens": 8, "temperature": 0} | more


async def ask(
    session: aiohttp.ClientSession, url: str, body: dict[str, Any], *, headers: dict[str, str] | None = None
) -> Answer:
    """Send a body to where its shape belongs, and read the whole answer."""
    path = "/v1/chat/completions" if "messages" in body else "/v1/completions"
    data = io.BytesIO(json.dumps(body).encode())
    async with session.post(url + path, data=data, headers=_JSON | (headers or {})) as response:
        kept = {name.lower(): value for name, value in response.headers.items()}
        if response.status != 200:
            return Answer(status=response.status, headers=kept, text=await response.text())
        if body.get("stream"):
            return await _streamed(response, kept)
        answer = await response.json()
        return Answer(status=200, headers=kept, text=_text(answer["choices"][0]), usage=answer["usage"])


async def _streamed(response: aiohttp.ClientResponse, headers: dict[str, str]) -> Answer:
    text, chunks, usage, done = "", 0, None, False
    async for line in response.content:
        data = line.decode().removeprefix("data: ").strip()
        done = done or data == "[DONE]"
        if data and data != "[DONE]":
            event = json.loads(data)
            usage = event.get("usage") or usage
            chunks += 1
            text += "".join(_text(choice) for choice in event["choices"])
    assert done, "the stream ended without [DONE]"
    return Answer(status=response.status, headers=headers, text=text, chunks=chunks, usage=usage)


def _text(choice: dict[str, Any]) -> str:
    said = choice.get("message") or choice.get("delta") or choice
    return said.get("content") or said.get("text") or ""
