"""The linear model: monotone, never negative, and refused where it would not be."""

import math
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from swingpool_control.engine import profile
from swingpool_control.engine.curve import Curve
from swingpool_control.engine.linear import COEFFICIENTS, LinearModel
from swingpool_control.engine.model import (
    PerformanceModel,
    decode_step_s,
    decode_steps_added_s,
    prefill_s,
    prompt_batch,
)

MODELS = [profile.built_in(name).model() for name in profile.built_in_names()]
BENT = replace(
    MODELS[0],
    name="bent",
    step=replace(
        MODELS[0].step,
        prefill_knee_tokens=2048,
        prefill_over_token_s=1e-4,
        sequence_knee=64,
        over_sequence_s=1e-3,
    ),
)
CURVED = replace(
    MODELS[0],
    name="curved",
    step=replace(MODELS[0].step, prefill_curve=Curve(sizes=(64, 512, 2048, 4096), seconds=(0.0, 0.02, 0.02, 0.4))),
)
MODELS += [BENT, CURVED]
work = st.fixed_dictionaries(
    {
        "prefill_tokens": st.integers(0, 20_000),
        "prefill_context_tokens": st.integers(0, 10**9),
        "decode_sequences": st.integers(0, 1024),
        "decode_context_tokens": st.integers(0, 10**6),
    }
)


@pytest.mark.parametrize("model", MODELS, ids=lambda model: model.name)
@given(less=work, more=work)
def test_more_work_never_looks_faster(model: PerformanceModel, less: dict[str, int], more: dict[str, int]) -> None:
    both = {name: less[name] + more[name] for name in less}
    assert 0 <= model.step_s(**less) <= model.step_s(**both)


@pytest.mark.parametrize("model", MODELS, ids=lambda model: model.name)
@given(steps=st.integers(0, 60), sequences=st.integers(0, 2_000), context=st.integers(0, 1_000_000))
def test_many_decode_steps_take_as_long_as_one_after_the_other(
    model: PerformanceModel, steps: int, sequences: int, context: int
) -> None:
    at_once = model.decode_steps_s(steps=steps, sequences=sequences, context_tokens=context)
    added = decode_steps_added_s(model, steps=steps, sequences=sequences, context_tokens=context)
    assert at_once == pytest.approx(added, rel=1e-12)


@given(tokens=st.integers(1, 100_000), further=st.integers(0, 100_000))
def test_transfers_grow_with_tokens(tokens: int, further: int) -> None:
    for model in MODELS:
        assert model.transfer_s(tokens=0) == 0
        assert 0 < model.transfer_s(tokens=tokens) <= model.transfer_s(tokens=tokens + further)


def test_the_h200_profile_gives_what_it_was_fitted_to() -> None:
    model = profile.built_in("llama-3.1-8b-fp8-h200").model(max_batched_tokens=16_384)
    assert prefill_s(model, prompt_tokens=4096) == pytest.approx(17.9e-3 + 0.0146e-3 * 4096 + 4.6e-10 * 4096**2)
    assert decode_step_s(model, sequences=64, context_tokens=64 * 2048) == pytest.approx(
        4.35e-3 + 0.036e-3 * 64 + 3.0e-8 * 64 * 2048
    )


def test_chunks_pay_for_all_the_attention_that_a_whole_prompt_pays_for() -> None:
    model = profile.built_in("llama-3.1-8b-fp8-h200").model()
    whole = prefill_s(replace(model, max_batched_tokens=16_384), prompt_tokens=16_384)
    chunked = prefill_s(replace(model, max_batched_tokens=1024), prompt_tokens=16_384)
    bases = 15 * (model.step.base_s + model.step.prefill_base_s)
    assert chunked == pytest.approx(whole + bases)


def test_a_cached_prefix_is_not_paid_for() -> None:
    model = MODELS[0]
    assert prefill_s(model, prompt_tokens=1000, cached_tokens=1000) == 0
    assert prefill_s(model, prompt_tokens=1000, cached_tokens=900) < prefill_s(model, prompt_tokens=1000)


@pytest.mark.parametrize("model", MODELS, ids=lambda model: model.name)
@given(tokens=st.integers(1, 50_000))
def test_prompts_that_share_an_iteration_save_time_and_keep_to_its_budget(model: PerformanceModel, tokens: int) -> None:
    together, seconds = prompt_batch(model, prompt_tokens=tokens)
    alone_s = prefill_s(model, prompt_tokens=tokens)
    assert together == 1 or together * tokens <= model.max_batched_tokens < (together + 1) * tokens
    assert seconds == alone_s if together == 1 else seconds <= together * alone_s * (1 + 1e-9)


@given(work=work, factor=st.floats(0.01, 1000))
def test_faster_divides_all_times(work: dict[str, int], factor: float) -> None:
    for model in MODELS:
        fast = model.faster(factor)
        assert fast.step_s(**work) == pytest.approx(model.step_s(**work) / factor)
        assert fast.transfer_s(tokens=100) == pytest.approx(model.transfer_s(tokens=100) / factor)
        assert fast.startup_s == model.startup_s


@pytest.mark.parametrize("name", COEFFICIENTS)
@pytest.mark.parametrize("value", [-1e-9, math.nan, math.inf])
def test_coefficients_are_refused_by_name(name: str, value: float) -> None:
    changes: dict[str, Any] = {name: value}
    with pytest.raises(ValueError, match=name):
        replace(MODELS[0].step, **changes)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("kv_capacity_tokens", 0),
        ("max_batched_tokens", 0),
        ("max_sequences", -1),
        ("kv_bytes_per_token", 0),
        ("link_bytes_per_s", math.inf),
        ("link_latency_s", -1),
        ("startup_s", math.nan),
    ],
)
def test_sizes_and_rates_are_refused_by_name(name: str, value: float) -> None:
    changes: dict[str, Any] = {name: value}
    with pytest.raises(ValueError, match=name):
        replace(MODELS[0], **changes)


def test_beyond_a_knee_each_costs_more() -> None:
    def more(prefill_tokens: int, sequences: int) -> float:
        work = {
            "prefill_tokens": prefill_tokens,
            "prefill_context_tokens": 0,
            "decode_sequences": sequences,
            "decode_context_tokens": 0,
        }
        return BENT.step_s(**work) - MODELS[0].step_s(**work)

    assert more(2048, 64) == 0
    assert more(2049, 64) == pytest.approx(1e-4)
    assert more(0, 66) == pytest.approx(2e-3)
    assert more(4096, 128) == pytest.approx(0.2048 + 0.064)


def test_nothing_in_no_time_is_refused() -> None:
    with pytest.raises(ValueError, match="base_s must be more than zero"):
        replace(MODELS[0].step, base_s=0)
    with pytest.raises(ValueError, match="speedup"):
        MODELS[0].faster(0)


def test_it_is_a_performance_model() -> None:
    model: PerformanceModel = MODELS[0]
    assert isinstance(model, LinearModel)
