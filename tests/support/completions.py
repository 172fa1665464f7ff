"""A small OpenAI client that keeps everything that came, for tests that look at the protocol itself."""

import json
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import Any

import aiohttp


@dataclass
class Streamed:
    """A streamed answer."""

    status: int
    content_type: str
    chunks: list[dict[str, Any]] = field(default_factory=list)
    done: bool = False

    @property
    def text(self) -> str:
        """What was generated, of the first choice."""
        first = (choice for chunk in self.chunks for choice in chunk.get("choices", []) if choice["index"] == 0)
        return "".join(choice["text"] if "text" in choice else choice["delta"].get("content") or "" for choice in first)


async def events(response: aiohttp.ClientResponse) -> AsyncIterator[str]:
    """Yield the data of each server-sent event."""
    async for line in response.content:
        if line.startswith(b"data: "):
            yield line[len(b"data: ") :].decode().rstrip("\n")


class Client:
    """Talks to one worker."""

    def __init__(self, session: aiohttp.ClientSession, url: str, model: str) -> None:
        self.session = session
        self.url = url
        self.model = model

    async def get(self, path: str) -> aiohttp.ClientResponse:
        """Get a path, body read."""
        async with self.session.get(self.url + path) as response:
            await response.read()
            return response

    async def raw(self, path: str, body: bytes) -> tuple[int, dict[str, Any]]:
        """Post bytes; return status and JSON body."""
        headers = {"Content-Type": "application/json"}
        async with self.session.post(self.url + path, data=body, headers=headers) as response:
            return response.status, await response.json(content_type=None)

    async def post(self, path: str, **fields: Any) -> tuple[int, dict[str, Any]]:
        """Post a request for the worker's model; return status and JSON body."""
        return await self.raw(path, json.dumps({"model": self.model, "temperature": 0, **fields}).encode())

    async def completion(self, **fields: Any) -> dict[str, Any]:
        """Return a completion that must succeed."""
        status, body = await self.post("/v1/completions", **fields)
        assert status == 200, body
        return body

    async def chat(self, content: str, **fields: Any) -> dict[str, Any]:
        """Return a chat completion that must succeed."""
        status, body = await self.post("/v1/chat/completions", messages=_user(content), **fields)
        assert status == 200, body
        return body

    async def stream(self, path: str, **fields: Any) -> Streamed:
        """Return a streamed answer, whole."""
        body = {"model": self.model, "temperature": 0, "stream": True, **fields}
        if path.endswith("chat/completions") and "content" in body:
            body["messages"] = _user(str(body.pop("content")))
        async with self.session.post(self.url + path, json=body) as response:
            answer = Streamed(response.status, response.headers["Content-Type"])
            async for data in events(response):
                if data == "[DONE]":
                    answer.done = True
                else:
                    assert not answer.done, "nothing comes after [DONE]"
                    answer.chunks.append(json.loads(data))
            return answer

    async def metrics(self) -> dict[str, float]:
        """Return all samples, by name and labels as they stand in the text."""
        response = await self.get("/metrics")
        samples = {}
        for line in (await response.text()).splitlines():
            if line and not line.startswith("#"):
                name, value = line.rsplit(" ", 1)
                samples[name] = float(value)
        return samples

    async def metric(self, name: str, **labels: str) -> float:
        """Return the sum of a metric's samples that have the labels; 0 if there is none."""
        wanted = [f'{key}="{value}"' for key, value in labels.items()]
        samples = await self.metrics()
        return sum(
            value
            for sample, value in samples.items()
            if sample.split("{")[0] == name and all(label in sample for label in wanted)
        )


def _user(content: str) -> list[dict[str, str]]:
    return [{"role": "user", "content": content}]
