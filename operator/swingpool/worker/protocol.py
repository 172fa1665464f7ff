"""OpenAI requests as vLLM reads them, and errors as vLLM words them."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, cast

import orjson

from swingpool.worker import text
from swingpool.worker.options import Options
from swingpool.worker.text import Prompt

DEFAULT_COMPLETION_TOKENS = 16
MOST_CHOICES = 128


class RequestError(Exception):
    """A request that gets an error for an answer."""

    def __init__(self, status: int, kind: str, message: str, *, parameter: str | None = None) -> None:
        super().__init__(message)
        self.status = status
        self.kind = kind
        self.message = message
        self.parameter = parameter

    def body(self) -> bytes:
        """Return the answer's body."""
        error = {"message": self.message, "type": self.kind, "param": self.parameter, "code": self.status}
        return orjson.dumps({"error": error})


def bad_request(message: str, *, parameter: str | None = None) -> RequestError:
    """Return the error for a request that asks for something that cannot be."""
    return RequestError(400, "BadRequestError", message, parameter=parameter)


def internal_error() -> RequestError:
    """Return the error for a request that failed in the engine; vLLM tells no more than this."""
    return RequestError(500, "InternalServerError", "Internal server error")


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """One answer to generate."""

    prompt: Prompt
    seed: int
    output_tokens: int
    finish: str
    """`stop` if it ends by itself, `length` if by the limit."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Generation:
    """A completion or chat completion that can be served."""

    chat: bool
    model: str
    choices: tuple[Choice, ...]
    """One for each prompt and answer; the answers to one prompt are neighbours."""
    answers: int
    """Answers per prompt."""
    max_tokens: int
    stream: bool
    include_usage: bool
    continuous_usage: bool
    kv_transfer_params: Mapping[str, Any] | None
    priority: int = 0
    """The smallest goes first, where the worker schedules by priority."""

    @property
    def prompt_tokens(self) -> int:
        """Tokens of all prompts, each counted once."""
        return sum(choice.prompt.tokens for choice in self.choices[:: self.answers])


def decode(body: bytes, content_type: str) -> dict[str, Any]:
    """Return a request's body.

    Raises:
        RequestError: it is not said to be JSON, or is no JSON object.
    """
    if content_type != "application/json":
        raise RequestError(400, "Bad Request", f"Unsupported media type {content_type}: must be application/json")
    try:
        data = orjson.loads(body)
    except ValueError as error:
        raise RequestError(400, "Bad Request", f"JSON decode error: {error}") from error
    if not isinstance(data, dict):
        raise RequestError(400, "Bad Request", "the body must be a JSON object")
    return cast("dict[str, Any]", data)


def parse(data: Mapping[str, Any], *, chat: bool, options: Options) -> Generation:
    """Return what a request's body asks for.

    Raises:
        RequestError: a field is missing or out of range, the model is unknown, or the context too long.
    """
    model = _model(data, options)
    prompts = _chat_prompt(data, options) if chat else _completion_prompts(data, options)
    answers = _integer(data, "n", default=1, least=1, most=MOST_CHOICES)
    limit = _max_tokens(data, chat)
    stream_options = data.get("stream_options") or {}
    if not isinstance(stream_options, dict):
        raise bad_request("stream_options must be an object", parameter="stream_options")
    if stream_options and not data.get("stream"):
        raise bad_request("stream_options can only be set when stream is true", parameter="stream_options")
    choices = tuple(_choice(data, prompt, number, limit, options) for prompt in prompts for number in range(answers))
    return Generation(
        chat=chat,
        model=model,
        choices=choices,
        answers=answers,
        max_tokens=max(1, min(limit or options.max_model_len, options.max_model_len - choices[0].prompt.tokens)),
        stream=bool(data.get("stream")),
        include_usage=bool(stream_options.get("include_usage")),
        continuous_usage=bool(stream_options.get("continuous_usage_stats")),
        kv_transfer_params=_kv_transfer_params(data),
        priority=_integer(data, "priority", default=0, least=None, most=None),
    )


def tokens_of(data: Mapping[str, Any], options: Options) -> list[int]:
    """Return the token ids of a tokenize request: of its `messages` or its `prompt`, a text.

    Raises:
        RequestError: it has neither.
    """
    _model(data, options)
    if "messages" in data:
        return text.tokens_of(_rendered(data))
    prompt = data.get("prompt")
    if not isinstance(prompt, str):
        raise bad_request("prompt must be a text", parameter="prompt")
    return text.tokens_of(prompt)


def _model(data: Mapping[str, Any], options: Options) -> str:
    model = data.get("model")
    if model is None:
        return options.served_names[0]
    if not isinstance(model, str):
        raise bad_request("model must be a string", parameter="model")
    if model not in options.served_names:
        known = ", ".join(options.served_names)
        raise RequestError(
            404, "NotFoundError", f"The model `{model}` does not exist. There is: {known}.", parameter="model"
        )
    return model


def _completion_prompts(data: Mapping[str, Any], options: Options) -> list[Prompt]:
    prompt = data.get("prompt")
    if isinstance(prompt, str) and prompt:
        return [_from_text(prompt, options)]
    if isinstance(prompt, list) and prompt:
        if _all(prompt, _is_token):
            return [_from_ids(prompt, options)]
        if _all(prompt, lambda item: isinstance(item, str) and bool(item)):
            return [_from_text(item, options) for item in prompt]
        if _all(prompt, lambda item: isinstance(item, list) and bool(item) and _all(item, _is_token)):
            return [_from_ids(item, options) for item in prompt]
    raise bad_request(
        "prompt must be a text, a list of texts, a list of token ids or a list of such lists, and not empty",
        parameter="prompt",
    )


def _chat_prompt(data: Mapping[str, Any], options: Options) -> list[Prompt]:
    return [_from_text(_rendered(data), options)]


def _rendered(data: Mapping[str, Any]) -> str:
    messages = data.get("messages")
    if not isinstance(messages, list) or not messages or not all(isinstance(item, dict) for item in messages):
        raise bad_request("messages must be a list of one or more messages", parameter="messages")
    rendered = "".join(f"<|{item.get('role', 'user')}|>\n{_content(item.get('content'))}\n" for item in messages)
    return f"{rendered}<|assistant|>\n"


def _content(content: Any) -> str:
    if content is None:
        return ""
    if isinstance(content, str):
        return content
    if isinstance(content, list):
        return "".join(str(part.get("text", "")) for part in content if isinstance(part, dict))
    raise bad_request("a message's content must be a text or a list of parts", parameter="messages")


def _choice(data: Mapping[str, Any], prompt: Prompt, number: int, asked: int | None, options: Options) -> Choice:
    """Return one answer; a limit beyond the context is lowered to it, a prompt beyond it is refused."""
    room = options.max_model_len - prompt.tokens
    if room < 1:
        raise bad_request(
            f"This model's maximum context length is {options.max_model_len} tokens. However, the prompt contains "
            f"{prompt.tokens} input tokens, which leaves no room for an output. Please shorten it.",
            parameter="input_tokens",
        )
    limit = room if asked is None else min(asked, room)
    least = _integer(data, "min_tokens", default=0, least=0, most=limit)
    seed = text.variant(prompt.seed, number)
    natural = limit + 1 if data.get("ignore_eos") else max(least, text.natural_length(seed))
    return Choice(
        prompt=prompt,
        seed=seed,
        output_tokens=min(natural, limit),
        finish="stop" if natural <= limit else "length",
    )


def _max_tokens(data: Mapping[str, Any], chat: bool) -> int | None:
    names = ("max_completion_tokens", "max_tokens") if chat else ("max_tokens",)
    for name in names:
        if data.get(name) is not None:
            return _integer(data, name, default=1, least=1, most=None)
    return None if chat else DEFAULT_COMPLETION_TOKENS


def _integer(data: Mapping[str, Any], name: str, *, default: int, least: int | None, most: int | None) -> int:
    value = data.get(name)
    if value is None:
        return default
    if isinstance(value, str) and value.removeprefix("-").isdecimal():
        value = int(value)
    if isinstance(value, bool) or not isinstance(value, int):
        raise bad_request(f"{name} must be an integer, not {value!r}", parameter=name)
    if (least is not None and value < least) or (most is not None and value > most):
        bounds = f"at least {least}" if most is None else f"between {least} and {most}"
        raise bad_request(f"{name} must be {bounds}, got {value}.", parameter=name)
    return value


def _kv_transfer_params(data: Mapping[str, Any]) -> Mapping[str, Any] | None:
    parameters = data.get("kv_transfer_params")
    if parameters is None:
        return None
    if not isinstance(parameters, dict):
        raise bad_request("kv_transfer_params must be an object", parameter="kv_transfer_params")
    return parameters


def _from_text(prompt: str, options: Options) -> Prompt:
    found = text.from_text(prompt, block_size=options.block_size, seed=options.seed)
    return _told(found, text.tokens_of(prompt), options) if options.kv_events else found


def _from_ids(ids: Sequence[int], options: Options) -> Prompt:
    found = text.from_ids(ids, block_size=options.block_size, seed=options.seed)
    return _told(found, ids, options) if options.kv_events else found


def _told(prompt: Prompt, ids: Sequence[int], options: Options) -> Prompt:
    return replace(prompt, block_hashes=text.told(ids, block_size=options.block_size))


def _is_token(item: Any) -> bool:
    return isinstance(item, int) and not isinstance(item, bool) and item >= 0


def _all(items: Sequence[Any], holds: Callable[[Any], bool]) -> bool:
    return all(map(holds, items))
