"""Prefill by the shape of first principles: fewer measurements do, and jumps are followed."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from swingpool_control.engine import facts, prefill_shape, roofline
from swingpool_control.engine.fit import fit, relative_errors
from swingpool_control.engine.linear import StepCost
from swingpool_control.engine.measured.point import Measurement
from tests.support.known_models import model_of

ROOFLINE = roofline.step_cost(facts.shape("llama-3.1-8b"), facts.accelerator("h200"), weight_bytes=1.0)
DECODES = [
    Measurement(seconds=5e-3 + 4e-5 * n, origin="synthetic", sequences=n, context_tokens=100) for n in (1, 8, 64, 128)
]
BUDGET = 65_536


def prefill(tokens: float, seconds: float) -> Measurement:
    return Measurement(seconds=seconds, origin="synthetic", prompts=1, prompt_tokens=tokens)


def real_s(tokens: float, *, slower: float = 1.4) -> float:
    """A machine that is slower than the roofline by one factor, on top of a base."""
    bare = replace(ROOFLINE, base_s=0.015)
    arrays = np.array([tokens]), np.array([tokens**2 / 2])
    return 0.015 + slower * (float(prefill_shape.seconds(bare, *arrays)[0]) - 0.015)


def test_with_scatter_the_shape_helps_where_few_were_measured() -> None:
    sizes = (300, 1500, 2500, 3500, 4500, 6000, 8000)
    far = [prefill(n, real_s(n)) for n in (16_000, 32_000)]
    errors: dict[bool, list[float]] = {True: [], False: []}
    for seed in range(20):
        rng = np.random.default_rng(seed)
        seen = [prefill(n, real_s(n) * float(1 + 0.03 * rng.standard_normal())) for n in sizes]
        for known, found in errors.items():
            cost = fit([*seen, *DECODES], max_batched_tokens=BUDGET, first_principles=ROOFLINE if known else None)
            found.append(float(relative_errors(cost, far, max_batched_tokens=BUDGET).max()))
    assert np.median(errors[True]) < 0.05
    assert np.median(errors[True]) < np.median(errors[False]) / 2


def test_a_jump_is_followed() -> None:
    def jumping(tokens: float) -> float:
        return real_s(tokens) * (1.7 if tokens > 3000 else 1.0)

    seen = [prefill(n, jumping(n)) for n in (128, 512, 2048, 4096, 8192, 16_384, 32_768)]
    cost = fit([*seen, *DECODES], max_batched_tokens=BUDGET, first_principles=ROOFLINE)
    assert cost.prefill_curve is not None
    between = [prefill(n, jumping(n)) for n in (256, 1024, 6000, 12_000, 24_000)]
    assert relative_errors(cost, between, max_batched_tokens=BUDGET).max() < 0.06
    beyond = [prefill(60_000, jumping(60_000))]
    assert relative_errors(cost, beyond, max_batched_tokens=BUDGET).max() < 0.25


def test_what_free_coefficients_explain_exactly_is_left_to_them() -> None:
    odd = StepCost(
        base_s=5e-3,
        prefill_base_s=0.02,
        prefill_token_s=1e-6,
        prefill_context_token2_s=1e-8,
        sequence_s=4e-5,
        context_token_s=0.0,
    )
    sizes = (100, 500, 1000, 2000, 4000, 8000, 16_000)
    arrays = np.array(sizes, dtype=float), np.array(sizes, dtype=float) ** 2 / 2
    seen = [prefill(n, float(s)) for n, s in zip(sizes, prefill_shape.seconds(odd, *arrays), strict=True)]
    cost = fit([*seen, *DECODES], max_batched_tokens=BUDGET, first_principles=ROOFLINE)
    assert cost.prefill_curve is None
    assert relative_errors(cost, seen, max_batched_tokens=BUDGET).max() < 0.005


@settings(max_examples=30, deadline=None)
@given(st.lists(st.tuples(st.integers(50, 30_000), st.floats(0.005, 20.0)), min_size=3, max_size=10))
def test_whatever_was_measured_more_work_never_looks_faster(measured: list[tuple[int, float]]) -> None:
    points = [*(prefill(tokens, seconds) for tokens, seconds in measured), *DECODES]
    cost = fit(points, max_batched_tokens=BUDGET, first_principles=ROOFLINE)
    model = model_of(cost, budget=BUDGET)
    times = [
        model.step_s(prefill_tokens=n, prefill_context_tokens=n * n // 2, decode_sequences=0, decode_context_tokens=0)
        for n in range(1, 200_000, 997)
    ]
    assert times[0] > 0
    assert times == sorted(times)
    assert times[-1] < 1e6


def test_chunked_prompts_are_left_to_free_coefficients() -> None:
    points = [*(prefill(n, real_s(n)) for n in (1000, 2000, 4000, 16_000)), *DECODES]
    assert fit(points, max_batched_tokens=8192, first_principles=ROOFLINE) == fit(points, max_batched_tokens=8192)


def test_a_curve_is_predicted_with_chunks() -> None:
    seen = [prefill(n, real_s(n) * (1.7 if n > 3000 else 1.0)) for n in (128, 512, 2048, 4096, 8192, 16_384)]
    cost = fit([*seen, *DECODES], max_batched_tokens=BUDGET, first_principles=ROOFLINE)
    assert cost.prefill_curve is not None
    two = [prefill(8192, 1.0)]
    chunked, whole = (relative_errors(cost, two, max_batched_tokens=budget)[0] + 1 for budget in (4096, 8192))
    assert chunked != pytest.approx(whole)
