"""How a worker is asked for a prompt's tokens, so that they are those that it computes.

`/tokenize` takes fields of completions and of chats. A chat's template gets a few more fields of the request as
arguments, which have to be named as such there. Read from `vllm/entrypoints` of 0.32, `serve/tokenize/protocol.py` and
`openai/chat_completion/protocol.py`.
"""

from array import array
from collections.abc import Mapping
from typing import Any, Final

PATH: Final = "/tokenize"
_COMPLETION: Final = ("model", "prompt", "add_special_tokens")
_CHAT: Final = (
    *("model", "messages", "tools", "add_generation_prompt", "continue_final_message", "add_special_tokens"),
    *("chat_template", "chat_template_kwargs"),
)
_ARGUMENTS: Final = ("documents", "reasoning_effort")


def request(body: Mapping[str, Any], *, chat: bool) -> dict[str, Any] | None:
    """Return the body that asks for the tokens of a request's prompt; None for prompts that are not all text."""
    if not chat:
        return _chosen(body, _COMPLETION) if isinstance(body.get("prompt"), str) else None
    messages = body.get("messages")
    if not isinstance(messages, list) or not all(_is_text(message) for message in messages):
        return None
    found = _chosen(body, _CHAT)
    arguments = {name: body[name] for name in _ARGUMENTS if body.get(name) is not None}
    given = body.get("chat_template_kwargs")
    if "reasoning_effort" in arguments and not (isinstance(given, Mapping) and "enable_thinking" in given):
        arguments["enable_thinking"] = arguments["reasoning_effort"] != "none"
    if arguments:
        found["chat_template_kwargs"] = {**(given if isinstance(given, Mapping) else {}), **arguments}
    return found


def tokens(answer: object) -> "array[int]":
    """Return the tokens in an answer.

    Raises:
        ValueError: there are none.
    """
    found = answer.get("tokens") if isinstance(answer, dict) else None
    if not isinstance(found, list):
        raise ValueError("the answer has no list of tokens")
    try:
        return array("q", found)
    except (TypeError, OverflowError) as error:
        raise ValueError(f"tokens are numbers: {error}") from error


def _chosen(body: Mapping[str, Any], names: tuple[str, ...]) -> dict[str, Any]:
    return {name: body[name] for name in names if body.get(name) is not None}


def _is_text(message: object) -> bool:
    if not isinstance(message, Mapping):
        return False
    content = message.get("content")
    if isinstance(content, list):
        return all(isinstance(part, Mapping) and part.get("type") == "text" for part in content)
    return content is None or isinstance(content, str)
