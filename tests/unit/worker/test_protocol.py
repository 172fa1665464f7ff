"""Requests as vLLM reads them, and what broken ones are told."""

from typing import Any

import pytest

from swingpool.worker import options, protocol
from swingpool.worker.protocol import Generation, RequestError

OPTIONS = options.parse(["--served-model-name", "chat", "other", "--max-model-len", "1000"], {})


def completion(**fields: Any) -> Generation:
    return protocol.parse({"prompt": "x" * 40, **fields}, chat=False, options=OPTIONS)


def chat(**fields: Any) -> Generation:
    return protocol.parse({"messages": [{"role": "user", "content": "hi"}], **fields}, chat=True, options=OPTIONS)


def test_defaults() -> None:
    one = completion()
    assert one.model == "chat"
    assert (one.prompt_tokens, one.max_tokens, one.answers, one.stream) == (10, 16, 1, False)
    assert chat().max_tokens == 1000 - chat().prompt_tokens


def test_an_answer_ends_by_itself_or_by_its_limit() -> None:
    limited = completion(max_tokens=5, ignore_eos=True).choices[0]
    assert (limited.output_tokens, limited.finish) == (5, "length")
    free = completion(max_tokens=990).choices[0]
    assert free.finish == "stop"
    assert free.output_tokens < 990
    forced = completion(max_tokens=990, min_tokens=free.output_tokens + 7).choices[0]
    assert (forced.output_tokens, forced.finish) == (free.output_tokens + 7, "stop")
    assert completion(max_tokens=free.output_tokens).choices[0].finish == "stop"
    assert completion(max_tokens=free.output_tokens - 1).choices[0].finish == "length"


def test_a_limit_beyond_the_context_is_lowered_to_it() -> None:
    lowered = completion(max_tokens=5000, ignore_eos=True)
    assert (lowered.max_tokens, lowered.choices[0].output_tokens) == (990, 990)


def test_a_number_in_quotes_is_a_number() -> None:
    assert completion(max_tokens="5").max_tokens == 5


def test_a_priority_may_be_below_zero_and_must_be_whole() -> None:
    assert (completion().priority, chat(priority=-3).priority) == (0, -3)
    with pytest.raises(RequestError, match="priority must be an integer"):
        completion(priority=0.5)


def test_the_newer_limit_goes_first_in_chats() -> None:
    assert chat(max_tokens=50, max_completion_tokens=7).max_tokens == 7
    assert completion(max_tokens=50, max_completion_tokens=7).max_tokens == 50


def test_prompts_of_every_form() -> None:
    assert completion(prompt=[5, 6, 7]).prompt_tokens == 3
    assert completion(prompt=[[5, 6, 7], [8]]).prompt_tokens == 4
    assert completion(prompt=["abcd", "abcdefgh"]).prompt_tokens == 3
    several = completion(prompt=["abcd", "abcdefgh"], n=2)
    assert [choice.prompt.tokens for choice in several.choices] == [1, 1, 2, 2]
    assert several.prompt_tokens == 3


def test_content_in_parts_is_content() -> None:
    parts = [{"type": "text", "text": "h"}, {"type": "text", "text": "i"}]
    assert chat(messages=[{"role": "user", "content": parts}]).choices == chat().choices


@pytest.mark.parametrize(
    ("fields", "parameter", "status"),
    [
        ({"model": "nope"}, "model", 404),
        ({"model": 5}, "model", 400),
        ({"prompt": ""}, "prompt", 400),
        ({"prompt": ["a", ""]}, "prompt", 400),
        ({"prompt": []}, "prompt", 400),
        ({"prompt": None}, "prompt", 400),
        ({"prompt": ["a", 1]}, "prompt", 400),
        ({"prompt": [[]]}, "prompt", 400),
        ({"prompt": [True]}, "prompt", 400),
        ({"prompt": [-1]}, "prompt", 400),
        ({"max_tokens": 0}, "max_tokens", 400),
        ({"max_tokens": "many"}, "max_tokens", 400),
        ({"max_tokens": "-5"}, "max_tokens", 400),
        ({"prompt": "x" * 4000, "max_tokens": None}, "input_tokens", 400),
        ({"n": 0}, "n", 400),
        ({"n": True}, "n", 400),
        ({"min_tokens": 6, "max_tokens": 5}, "min_tokens", 400),
        ({"stream_options": {"include_usage": True}}, "stream_options", 400),
        ({"stream": True, "stream_options": 7}, "stream_options", 400),
        ({"kv_transfer_params": []}, "kv_transfer_params", 400),
    ],
)
def test_refusals_name_the_parameter(fields: dict[str, Any], parameter: str, status: int) -> None:
    with pytest.raises(RequestError) as caught:
        completion(**fields)
    assert (caught.value.parameter, caught.value.status) == (parameter, status)


@pytest.mark.parametrize("messages", [None, [], "hi", ["hi"], [{"role": "user", "content": 5}]])
def test_broken_messages(messages: object) -> None:
    with pytest.raises(RequestError, match="message"):
        chat(messages=messages)


@pytest.mark.parametrize("body", [b"", b"{", b"[]", b"\xff"])
def test_what_is_no_json_object(body: bytes) -> None:
    with pytest.raises(RequestError) as caught:
        protocol.decode(body, "application/json")
    assert caught.value.status == 400


def test_what_is_not_said_to_be_json() -> None:
    with pytest.raises(RequestError, match="must be application/json"):
        protocol.decode(b"{}", "application/x-www-form-urlencoded")
