"""Answers as vLLM forms them. Chunks of a stream are rendered once per answer; each token is then cut into them."""

from dataclasses import dataclass

import orjson

from swingpool.worker import text
from swingpool.worker.protocol import Generation

DONE = b"data: [DONE]\n\n"


@dataclass(frozen=True, slots=True, kw_only=True)
class Envelope:
    """What all chunks or the one answer to a request have in common."""

    id: str
    created_unix_s: int
    generation: Generation

    def head(self, kind: str) -> dict[str, object]:
        """Return the first fields of every body."""
        return {"id": self.id, "object": kind, "created": self.created_unix_s, "model": self.generation.model}


def usage(prompt_tokens: int, output_tokens: int) -> dict[str, object]:
    """Return what a request used."""
    return {
        "prompt_tokens": prompt_tokens,
        "total_tokens": prompt_tokens + output_tokens,
        "completion_tokens": output_tokens,
    }


def chunk_kind(generation: Generation) -> str:
    """Return the `object` of a stream's chunks."""
    return "chat.completion.chunk" if generation.chat else "text_completion"


def event(body: object) -> bytes:
    """Return a server-sent event."""
    return b"data: " + orjson.dumps(body) + b"\n\n"


def framed(payload: bytes) -> bytes:
    """Return bytes in HTTP/1.1's chunked encoding."""
    return b"%x\r\n%b\r\n" % (len(payload), payload)


class TokenFrames:
    """The framed events of one answer's tokens."""

    __slots__ = ("_after", "_before", "_envelope", "_index")

    def __init__(self, envelope: Envelope, index: int) -> None:
        self._envelope = envelope
        self._index = index
        blank = "\x00"
        before, after = event(self._body(blank, None)).rsplit(orjson.dumps(blank)[1:-1], 1)
        length = len(before) + text.CHARACTERS_PER_TOKEN + len(after)
        self._before = b"%x\r\n%b" % (length, before)
        self._after = after + b"\r\n"

    def opening(self) -> bytes:
        """Return what comes before the first token: a chat's role."""
        if not self._envelope.generation.chat:
            return b""
        choice = {"index": self._index, "delta": {"role": "assistant", "content": ""}}
        choice |= {"logprobs": None, "finish_reason": None}
        head = self._envelope.head("chat.completion.chunk")
        return framed(event({**head, "choices": [choice], "prompt_token_ids": None, "prompt_text": None}))

    def token(self, word: bytes) -> bytes:
        """Return a token that is not the last."""
        return self._before + word + self._after

    def counted(self, word: bytes, finish: str | None, prompt_tokens: int, output_tokens: int) -> bytes:
        """Return a token with what was used up to it."""
        body = self._body(word.decode("ascii"), finish)
        return framed(event({**body, "usage": usage(prompt_tokens, output_tokens)}))

    def last(self, word: bytes, finish: str) -> bytes:
        """Return the last token, with why it is."""
        return framed(event(self._body(word.decode("ascii"), finish)))

    def _body(self, word: str, finish: str | None) -> dict[str, object]:
        generation = self._envelope.generation
        choice: dict[str, object] = {"index": self._index}
        choice |= {"delta": {"content": word}} if generation.chat else {"text": word}
        choice |= {"logprobs": None, "finish_reason": finish}
        if finish or not generation.chat:
            choice["stop_reason"] = None
        if not generation.chat:
            choice["prompt_token_ids"] = None
        choice["token_ids"] = None
        return {**self._envelope.head(chunk_kind(generation)), "choices": [choice]}


def usage_event(envelope: Envelope, output_tokens: int) -> bytes:
    """Return the event that closes a stream whose client wants to know what was used."""
    generation = envelope.generation
    body = {**envelope.head(chunk_kind(generation)), "choices": []}
    return framed(event({**body, "usage": usage(generation.prompt_tokens, output_tokens)}))


def whole(envelope: Envelope, kv_transfer_params: dict[str, object] | None) -> bytes:
    """Return the answer to a request that is not streamed."""
    generation = envelope.generation
    choices: list[dict[str, object]] = []
    for index, choice in enumerate(generation.choices):
        content = text.answer(choice.seed, choice.output_tokens)
        body: dict[str, object] = {"index": index}
        if generation.chat:
            body["message"] = {"role": "assistant", "content": content, "refusal": None, "tool_calls": []}
        else:
            body["text"] = content
        body |= {"logprobs": None, "finish_reason": choice.finish, "stop_reason": None, "token_ids": None}
        choices.append(body)
    output_tokens = sum(choice.output_tokens for choice in generation.choices)
    return orjson.dumps(
        {
            **envelope.head("chat.completion" if generation.chat else "text_completion"),
            "choices": choices,
            "service_tier": None,
            "system_fingerprint": None,
            "usage": {**usage(generation.prompt_tokens, output_tokens), "prompt_tokens_details": None},
            "kv_transfer_params": kv_transfer_params,
        }
    )
