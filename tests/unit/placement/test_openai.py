"""The two legs of a request: what each worker gets, and what keeps a request in one piece."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from swingpool_control.placement.estimate import TokenRate
from swingpool_control.placement.openai import decode_leg, prefill_leg, release_leg, shape_of, without_transfer

JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-5, 5)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=9),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=5), inner, max_size=4),
    max_leaves=12,
)
FIELDS = st.sampled_from(
    ["prompt", "messages", "stream", "n", "max_tokens", "min_tokens", "echo", "stream_options", "kv_transfer_params"]
)
BODIES = st.dictionaries(FIELDS | st.text(max_size=5), JSON, max_size=8)
PARAMS = {"do_remote_prefill": True, "remote_host": "10.0.0.1", "remote_block_ids": [1, 2]}


@given(BODIES, st.booleans())
def test_any_body_has_a_shape_and_two_legs(body: dict[str, Any], chat: bool) -> None:
    before = json.dumps(body)
    shape = shape_of(body, chat=chat)
    assert shape.text_bytes >= 0
    assert shape.prompt_tokens >= 0
    leg = prefill_leg(body)
    assert (leg["max_tokens"], leg["stream"]) == (1, False)
    assert "stream_options" not in leg
    assert leg["kv_transfer_params"]["do_remote_decode"] is True
    assert decode_leg(body, PARAMS) == {**body, "kv_transfer_params": PARAMS}
    assert "kv_transfer_params" not in decode_leg(body, None)
    assert json.dumps(body) == before, "the client's body is not touched"


@given(BODIES | st.fixed_dictionaries({"vllm_xargs": st.dictionaries(FIELDS, JSON, max_size=4)}))
def test_a_clients_own_parameters_of_a_transfer_are_taken_off(body: dict[str, Any]) -> None:
    """Wherever the engine takes them from; a body without any stays the very same object."""
    before = json.dumps(body)
    clean = without_transfer(body)
    arguments = body.get("vllm_xargs")
    there = "kv_transfer_params" in body or (isinstance(arguments, dict) and "kv_transfer_params" in arguments)
    assert (clean is body) != there
    assert "kv_transfer_params" not in clean
    if isinstance(arguments, dict):
        kept = {key: value for key, value in arguments.items() if key != "kv_transfer_params"}
        assert clean["vllm_xargs"] == kept
    assert json.dumps(body) == before, "the client's body is not touched"


def test_what_nobody_waits_for_is_fetched_at_the_least_cost() -> None:
    leg = release_leg("m", PARAMS)
    assert leg["kv_transfer_params"] == PARAMS
    assert (leg["model"], leg["prompt"], leg["max_tokens"], leg["stream"]) == ("m", [1], 1, False)


@given(st.integers(1, 40))
def test_deep_bodies_are_survived(depth: int) -> None:
    deep: Any = "end"
    for _ in range(depth * 25):
        deep = {"content": [deep]}
    assert shape_of({"messages": [deep]}, chat=True).text_bytes >= 0
    assert shape_of({"prompt": [[deep]]}, chat=False).text_bytes >= 0


def test_the_prefill_leg_keeps_what_shapes_the_prompt() -> None:
    body = {
        "model": "m", "messages": [{"role": "user", "content": "hi"}], "tools": [{"type": "function"}], "stream": True,
        "stream_options": {"include_usage": True}, "max_completion_tokens": 99, "min_tokens": 5, "temperature": 0.3,
        "top_logprobs": 3, "logprobs": True,
    }  # fmt: skip
    leg = prefill_leg(body)
    assert {key: leg[key] for key in ("model", "messages", "tools", "temperature")} == {
        key: body[key] for key in ("model", "messages", "tools", "temperature")
    }
    assert (leg["max_tokens"], leg["max_completion_tokens"]) == (1, 1)
    assert not {"stream_options", "min_tokens", "logprobs", "top_logprobs"} & leg.keys()


@pytest.mark.parametrize(
    ("body", "chat", "why"),
    [
        ({"prompt": "a"}, False, ""),
        ({"prompt": [1, 2]}, False, ""),
        ({"prompt": ["one"]}, False, ""),
        ({"prompt": "a", "n": 1, "best_of": None}, False, ""),
        ({"messages": [{"role": "user", "content": "hi"}]}, True, ""),
        ({"prompt": ["one", "two"]}, False, "it holds several prompts"),
        ({"prompt": [[1], [2]]}, False, "it holds several prompts"),
        ({}, False, "it holds no prompt"),
        ({"prompt": "a"}, True, "it holds no prompt"),
        ({"prompt": "a", "n": 2}, False, "`n` asks for several answers from one prompt"),
        ({"prompt": "a", "best_of": 3}, False, "`best_of` asks for several answers from one prompt"),
        ({"prompt": "a", "use_beam_search": True}, False, "beam search asks for several answers from one prompt"),
        ({"prompt": "a", "echo": True}, False, "it asks for the prompt back"),
        ({"prompt": "a", "prompt_logprobs": 0}, False, "it asks for the prompt back"),
    ],
)
def test_what_stays_whole(body: dict[str, Any], chat: bool, why: str) -> None:
    assert shape_of(body, chat=chat).whole_because == why


def test_prompts_are_measured() -> None:
    assert shape_of({"prompt": [5] * 7}, chat=False).prompt_tokens == 7
    assert shape_of({"prompt": "äb"}, chat=False).text_bytes == 3
    parts = [{"type": "text", "text": "abcd"}, {"type": "image_url", "image_url": {"url": "data:" + "x" * 99}}]
    assert shape_of({"messages": [{"content": "ab"}, {"content": parts}]}, chat=True).text_bytes == 6


@given(st.lists(st.tuples(st.integers(-5, 10**7), st.integers(-5, 10**7)), max_size=30), st.integers(0, 10**7))
def test_estimates_stay_sane_whatever_workers_report(reports: list[tuple[int, int]], text_bytes: int) -> None:
    rate = TokenRate()
    for reported_bytes, tokens in reports:
        rate = rate.observed(text_bytes=reported_bytes, tokens=tokens)
    assert 0.02 <= rate.tokens_per_byte <= 1.0
    assert rate.tokens(text_bytes) >= 1


def test_estimates_learn() -> None:
    rate = TokenRate()
    for _ in range(200):
        rate = rate.observed(text_bytes=1000, tokens=500)
    assert abs(rate.tokens(1000) - 500) <= 5


@pytest.mark.parametrize(
    ("chat", "more", "most"),
    [
        (False, {}, 16),
        (False, {"max_tokens": 5}, 5),
        (True, {}, None),
        (True, {"max_tokens": 5}, 5),
        (True, {"max_tokens": 5, "max_completion_tokens": 7}, 7),
        (False, {"max_tokens": 5, "max_completion_tokens": 7}, 5),
        (True, {"max_tokens": "many"}, None),
        (True, {"max_tokens": 5, "n": 3}, None),
    ],
)
def test_how_long_an_answer_may_become(chat: bool, more: dict[str, Any], most: int | None) -> None:
    body = {"messages": [{"role": "user", "content": "hi"}]} if chat else {"prompt": "hi"}
    assert shape_of(body | more, chat=chat).most_output_tokens == most
