"""What a user of the official `openai` package does; runs with the clients' Python and prints what it saw as JSON."""

import asyncio
import json
import sys
from typing import Any

STREAMS = 24


def main(url: str, model: str) -> None:
    """Ask in every way that the router serves."""
    import openai  # type: ignore[import-not-found,unused-ignore]

    client: Any = openai.OpenAI(base_url=f"{url}/v1", api_key="none", max_retries=0)
    seen: dict[str, Any] = {"models": [one.id for one in client.models.list()]}
    whole = client.completions.create(model=model, prompt="one two three", max_tokens=9)
    seen["completion_tokens"] = whole.usage.completion_tokens
    said = [{"role": "user", "content": "tell me of rivers"}]
    chat = client.chat.completions.create(model=model, messages=said, max_completion_tokens=12)
    seen["chat"] = bool(chat.choices[0].message.content)
    several = client.chat.completions.create(model=model, messages=said, max_tokens=5, n=2)
    seen["choices"] = len(several.choices)
    usages, text = [], ""
    options = {"include_usage": True}
    for chunk in client.chat.completions.create(
        model=model, messages=said, max_tokens=20, stream=True, stream_options=options
    ):
        text += "".join(choice.delta.content or "" for choice in chunk.choices)
        usages += [chunk.usage.completion_tokens] if chunk.usage else []
    seen |= {"streamed_characters": len(text), "usages": len(usages)}
    try:
        client.chat.completions.create(model="nobody", messages=said)
    except openai.NotFoundError as error:
        seen["unknown_model"] = error.status_code
    try:
        client.chat.completions.create(model=model, messages=said, max_tokens=-1)
    except openai.BadRequestError as error:
        seen["bad_request"] = error.status_code
    seen["concurrent_streams"] = asyncio.run(_streams(url, model))
    print(json.dumps(seen))


async def _streams(url: str, model: str) -> int:
    """Return how many of many streams at a time came to their end."""
    import openai

    client: Any = openai.AsyncOpenAI(base_url=f"{url}/v1", api_key="none", max_retries=0)

    async def one(number: int) -> bool:
        said = [{"role": "user", "content": f"{number} " * (20 + number)}]
        finish = ""
        async for chunk in await client.chat.completions.create(
            model=model, messages=said, max_tokens=10 + number, stream=True
        ):
            finish = chunk.choices[0].finish_reason or finish
        return finish in ("stop", "length")

    return sum(await asyncio.gather(*(one(number) for number in range(STREAMS))))


if __name__ == "__main__":
    main(*sys.argv[1:])
