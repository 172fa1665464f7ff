"""How a prompt's tokens are asked for: with all that its chat template looks at."""

from typing import Any

import pytest

from swingpool_control.vllm import tokenize

MESSAGES = [{"role": "user", "content": "hello"}]


def test_a_text_is_asked_for_as_it_is() -> None:
    body = {"model": "m", "prompt": "hello", "max_tokens": 3, "add_special_tokens": False}
    assert tokenize.request(body, chat=False) == {"model": "m", "prompt": "hello", "add_special_tokens": False}


def test_a_chat_is_asked_for_with_what_its_template_gets() -> None:
    tools = [{"type": "function", "function": {"name": "f"}}]
    body = {"model": "m", "messages": MESSAGES, "tools": tools, "temperature": 0, "chat_template_kwargs": {"a": 1}}
    wanted: dict[str, Any] = {name: body[name] for name in ("model", "messages", "tools", "chat_template_kwargs")}
    assert tokenize.request(body, chat=True) == wanted
    more = {"documents": [{"text": "d"}], "reasoning_effort": "low"}
    asked = tokenize.request(body | more, chat=True)
    assert asked is not None
    assert asked["chat_template_kwargs"] == {"a": 1, **more, "enable_thinking": True}
    asked = tokenize.request(body | more | {"chat_template_kwargs": {"enable_thinking": False}}, chat=True)
    assert asked is not None
    assert asked["chat_template_kwargs"] == {**more, "enable_thinking": False}


@pytest.mark.parametrize(
    ("body", "chat"),
    [
        ({"prompt": [1, 2]}, False),
        ({"prompt": ["a", "b"]}, False),
        ({}, False),
        ({}, True),
        ({"messages": ["hello"]}, True),
        ({"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "x"}}]}]}, True),
        ({"messages": [{"role": "user", "content": 7}]}, True),
    ],
)
def test_prompts_that_are_not_all_text_are_not_asked_for(body: dict[str, Any], chat: bool) -> None:
    assert tokenize.request(body, chat=chat) is None


def test_parts_that_are_text_are_text() -> None:
    body = {"messages": [{"role": "user", "content": [{"type": "text", "text": "x"}]}, {"role": "assistant"}]}
    assert tokenize.request(body, chat=True) == body


def test_answers_without_tokens_are_refused() -> None:
    assert list(tokenize.tokens({"tokens": [1, 2], "count": 2})) == [1, 2]
    for answer in (None, {}, {"tokens": "x"}, {"tokens": ["x"]}, {"tokens": [2**70]}):
        with pytest.raises(ValueError, match="tokens"):
            tokenize.tokens(answer)
