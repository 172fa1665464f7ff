"""An OpenAI request's two legs: what of its body each worker gets, and when it must stay whole.

The rules are those of vLLM's per-request handshake: the prefill leg computes one token and keeps its blocks for whoever
holds the parameters that it answers with; the decode leg is the client's own request plus those parameters.
"""

from collections.abc import Mapping
from typing import Any

Body = dict[str, Any]

KV_TRANSFER = "kv_transfer_params"
ENGINE_ARGUMENTS = "vllm_xargs"
"""Field whose entries vLLM takes for arguments of its engine, those of a transfer among them."""

PRIORITY = "priority"

_ASK_TO_KEEP = {
    "do_remote_decode": True,
    "do_remote_prefill": False,
    "remote_engine_id": None,
    "remote_block_ids": None,
    "remote_host": None,
    "remote_port": None,
}
COMPLETION_TOKENS = 16
"""What a completion gets that says no `max_tokens`; a chat gets what fits into the model's context."""

_NOT_IN_PREFILL = ("stream_options", "min_tokens", "logprobs", "top_logprobs")


class RequestShape:
    """What the picker needs to know of a request's body.

    Args:
        stream: whether its answer comes token by token.
        text_bytes: UTF-8 bytes of the prompt's text, roughly; 0 if the prompt is given as tokens.
        prompt_tokens: length of a prompt that is given as tokens; 0 if it is given as text.
        whole_because: why the request cannot be split between two workers; empty if it can.
        most_output_tokens: what its answer may have at most; None if it says nothing of that, or wants several answers.
    """

    __slots__ = ("most_output_tokens", "prompt_tokens", "stream", "text_bytes", "whole_because")

    def __init__(
        self, *, stream: bool, text_bytes: int, prompt_tokens: int, whole_because: str, most_output_tokens: int | None
    ) -> None:
        self.stream = stream
        self.text_bytes = text_bytes
        self.prompt_tokens = prompt_tokens
        self.whole_because = whole_because
        self.most_output_tokens = most_output_tokens


def shape_of(body: Mapping[str, Any], *, chat: bool) -> RequestShape:
    """Look at a request's body; anything malformed is left for a worker to refuse.

    Args:
        body: the decoded body.
        chat: whether it is for /v1/chat/completions.
    """
    if chat:
        prompt_tokens, text_bytes, several = 0, _text_bytes(body.get("messages")), False
    else:
        prompt_tokens, text_bytes, several = _prompt(body.get("prompt"))
    whole_because = _whole_because(body, chat=chat, several=several)
    return RequestShape(
        stream=body.get("stream") is True,
        text_bytes=text_bytes,
        prompt_tokens=prompt_tokens,
        whole_because=whole_because,
        most_output_tokens=None if whole_because else _most_output_tokens(body, chat=chat),
    )


def without_transfer(body: Body) -> Body:
    """Return a client's body without parameters of a transfer, which name a host to fetch from; itself if it has none.

    vLLM takes them from two places, and in the second one anything but an object ends its engine.
    """
    arguments = body.get(ENGINE_ARGUMENTS)
    inner = arguments if isinstance(arguments, dict) and KV_TRANSFER in arguments else None
    if inner is None and KV_TRANSFER not in body:
        return body
    kept = {key: value for key, value in body.items() if key != KV_TRANSFER}
    if inner is not None:
        kept[ENGINE_ARGUMENTS] = {key: value for key, value in inner.items() if key != KV_TRANSFER}
    return kept


def prefill_leg(body: Mapping[str, Any], *, priority: int | None = None) -> Body:
    """Return the body by which a worker computes the prompt, generates one token and keeps the blocks.

    Args:
        body: the client's.
        priority: what a worker that orders by priority is told, the smallest first; None tells it nothing.
    """
    leg = {key: value for key, value in body.items() if key not in _NOT_IN_PREFILL}
    leg["stream"] = False
    leg["max_tokens"] = 1
    if "max_completion_tokens" in body:
        leg["max_completion_tokens"] = 1
    leg[KV_TRANSFER] = dict(_ASK_TO_KEEP)
    if priority is not None:
        leg[PRIORITY] = priority
    return leg


def decode_leg(
    body: Mapping[str, Any], kv_transfer_params: Mapping[str, Any] | None, *, priority: int | None = None
) -> Body:
    """Return the client's body with the prefill leg's parameters, or with none: a client's own never get through."""
    leg = {key: value for key, value in body.items() if key != KV_TRANSFER}
    if kv_transfer_params is not None:
        leg[KV_TRANSFER] = dict(kv_transfer_params)
    if priority is not None:
        leg[PRIORITY] = priority
    return leg


def release_leg(model: object, kv_transfer_params: Mapping[str, Any]) -> Body:
    """Return the body by which a worker fetches what was kept for a request that nobody waits for any more.

    Blocks are freed once they were fetched; one token as a prompt lets the worker fetch one block at most, and is too
    little to be cached as anybody's prefix.
    """
    return {
        "model": model,
        "prompt": [1],
        "max_tokens": 1,
        "stream": False,
        KV_TRANSFER: dict(kv_transfer_params),
    }


def error_body(message: str, *, kind: str, code: int) -> Body:
    """Return an error as OpenAI's API words it."""
    return {"error": {"message": message, "type": kind, "param": None, "code": code}}


def _whole_because(body: Mapping[str, Any], *, chat: bool, several: bool) -> str:
    if several:
        return "it holds several prompts"
    if not (body.get("messages") if chat else body.get("prompt")):
        return "it holds no prompt"
    for field in ("n", "best_of"):
        if body.get(field) not in (None, 1):
            return f"`{field}` asks for several answers from one prompt"
    if body.get("use_beam_search"):
        return "beam search asks for several answers from one prompt"
    if body.get("prompt_logprobs") is not None or body.get("echo"):
        return "it asks for the prompt back"
    return ""


def _most_output_tokens(body: Mapping[str, Any], *, chat: bool) -> int | None:
    said = body.get("max_tokens")
    if chat and body.get("max_completion_tokens") is not None:
        said = body["max_completion_tokens"]
    if said is None and not chat:
        return COMPLETION_TOKENS
    return said if isinstance(said, int) and said > 0 else None


def _prompt(prompt: object) -> tuple[int, int, bool]:
    """Return a completion prompt's tokens, text bytes, and whether it is several prompts."""
    if isinstance(prompt, str):
        return 0, _bytes(prompt), False
    if not isinstance(prompt, list) or not prompt:
        return 0, 0, False
    if isinstance(prompt[0], int):
        return len(prompt), 0, False
    tokens = sum(len(part) for part in prompt if isinstance(part, list))
    text_bytes = sum(_bytes(part) for part in prompt if isinstance(part, str))
    return tokens, text_bytes, len(prompt) > 1


def _text_bytes(value: object, *, depth: int = 4) -> int:
    """Return the bytes of the text in messages: in `content`, or in the text parts of a `content` that is a list."""
    if isinstance(value, str):
        return _bytes(value)
    if depth == 0:
        return 0
    if isinstance(value, list):
        return sum(_text_bytes(item, depth=depth - 1) for item in value)
    if isinstance(value, Mapping):
        return sum(_text_bytes(value.get(key), depth=depth - 1) for key in ("content", "text"))
    return 0


def _bytes(text: str) -> int:
    return len(text) if text.isascii() else len(text.encode("utf-8", "surrogatepass"))
