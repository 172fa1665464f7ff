"""A prompt's beginning as a chain of hashes, so that prompts that begin alike are known before anyone tokenizes them.

Hashes are this process's own and say nothing elsewhere.
"""

from collections.abc import Iterator, Mapping
from typing import Any, Final

CHUNK_BYTES: Final = 2048
"""Characters under one hash; the last, partial piece has none."""
MOST_CHUNKS: Final = 128
"""Of a longer prompt only the beginning is looked at."""
_TOKENS_AS_CHARACTERS: Final = 4


def chain_of(body: Mapping[str, Any], *, chat: bool) -> tuple[int, ...]:
    """Return the chain hashes of a request's prompt, first to last; none if it has several prompts, or none.

    Args:
        body: the decoded body.
        chat: whether it is for /v1/chat/completions.
    """
    last = hash((body.get("model") if isinstance(body.get("model"), str) else "", chat))
    if not chat:
        prompt = body.get("prompt")
        if isinstance(prompt, str):
            return _chain(prompt, last, CHUNK_BYTES)
        if isinstance(prompt, list) and prompt and isinstance(prompt[0], int):
            return _chain_of_tokens(prompt, last)
        return ()
    tools = body.get("tools")
    if tools:
        last = hash((last, repr(tools)))
    return _chain("".join(_texts(body.get("messages"))), last, CHUNK_BYTES)


def _chain(text: str, last: int, each: int) -> tuple[int, ...]:
    found = []
    for start in range(0, min(len(text) // each, MOST_CHUNKS) * each, each):
        last = hash((last, text[start : start + each]))
        found.append(last)
    return tuple(found)


def _chain_of_tokens(tokens: list[Any], last: int) -> tuple[int, ...]:
    each = CHUNK_BYTES // _TOKENS_AS_CHARACTERS
    found = []
    for start in range(0, min(len(tokens) // each, MOST_CHUNKS) * each, each):
        last = hash((last, repr(tokens[start : start + each])))
        found.append(last)
    return tuple(found)


def _texts(messages: object) -> Iterator[str]:
    if not isinstance(messages, list):
        return
    for message in messages:
        if not isinstance(message, Mapping):
            continue
        yield f"\x00{message.get('role')}\x00"
        content = message.get("content")
        if isinstance(content, str):
            yield content
        elif isinstance(content, list):
            for part in content:
                text = part.get("text") if isinstance(part, Mapping) else None
                yield text if isinstance(text, str) else repr(part)
