"""Fits: known coefficients come back, noise and bad points do little, and more work never looks faster."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from swingpool_control.engine import held_out
from swingpool_control.engine.fit import fit, predict, relative_errors
from swingpool_control.engine.linear import COEFFICIENTS, LinearModel, StepCost
from swingpool_control.engine.measured.point import MeasuredSet, Measurement, MeasurementError, Phase
from swingpool_control.engine.model import decode_step_s, prefill_s
from tests.support.known_models import KNOWN, model_of

BUDGET = 8192
PROMPTS = (100, 300, 600, 1000, 1500, 2000, 3000, 4000, 6000, 8000, 10_000, 16_000)
SEQUENCES = (1, 2, 4, 8, 16, 32, 64, 128, 256)
CONTEXTS = (200, 1000, 4000)


def model(step: StepCost) -> LinearModel:
    return model_of(step, budget=BUDGET)


def measure(step: StepCost, *, noise: float = 0.0, seed: int = 0) -> list[Measurement]:
    known, rng = model(step), np.random.default_rng(seed)

    def noisy(seconds: float) -> float:
        return seconds * float(1 + noise * rng.uniform(-1, 1))

    return [
        *(
            Measurement(
                seconds=noisy(prefill_s(known, prompt_tokens=n, cached_tokens=cached)),
                origin="synthetic",
                prompts=1,
                prompt_tokens=n,
                cached_tokens=cached,
            )
            for n in PROMPTS
            for cached in (0, n // 2)
        ),
        *(
            Measurement(
                seconds=noisy(decode_step_s(known, sequences=s, context_tokens=s * c)),
                origin="synthetic",
                sequences=s,
                context_tokens=c,
            )
            for s in SEQUENCES
            for c in CONTEXTS
        ),
    ]


def as_set(points: list[Measurement]) -> MeasuredSet:
    return MeasuredSet(
        name="synthetic",
        points=tuple(points),
        source="here",
        licence="none",
        max_batched_tokens=BUDGET,
        max_sequences=256,
    )


COSTS = st.builds(
    StepCost,
    base_s=st.floats(1e-3, 5e-2),
    prefill_base_s=st.floats(0, 5e-2),
    prefill_token_s=st.floats(1e-6, 5e-4),
    prefill_context_token2_s=st.floats(0, 1e-8),
    sequence_s=st.floats(0, 1e-3),
    context_token_s=st.floats(0, 1e-6),
)


def test_known_coefficients_come_back() -> None:
    found = fit(measure(KNOWN), max_batched_tokens=BUDGET)
    for name in COEFFICIENTS:
        assert getattr(found, name) == pytest.approx(getattr(KNOWN, name), rel=0.01), name


@settings(max_examples=8, deadline=None)
@given(COSTS)
def test_without_noise_nothing_is_missed(cost: StepCost) -> None:
    points = measure(cost)
    found = fit(points, max_batched_tokens=BUDGET)
    assert relative_errors(found, points, max_batched_tokens=BUDGET).max() < 0.005


@settings(max_examples=8, deadline=None)
@given(COSTS, st.integers(0, 1000))
def test_noise_is_averaged_and_more_work_never_looks_faster(cost: StepCost, seed: int) -> None:
    found = fit(measure(cost, noise=0.05, seed=seed), max_batched_tokens=BUDGET)
    assert float(np.median(relative_errors(found, measure(cost), max_batched_tokens=BUDGET))) < 0.05
    fitted = model(found)
    prefills = [prefill_s(fitted, prompt_tokens=n) for n in range(1, 30_000, 500)]
    decodes = [decode_step_s(fitted, sequences=s, context_tokens=s * 500) for s in range(1, 1000, 20)]
    for times in (prefills, decodes):
        assert times[0] > 0
        assert times == sorted(times)


@settings(max_examples=8, deadline=None)
@given(COSTS, st.sampled_from(("prefill", "decode")))
def test_a_knee_is_found_where_there_is_one(cost: StepCost, where: str) -> None:
    bent = (
        replace(cost, prefill_knee_tokens=2000, prefill_over_token_s=2 * cost.prefill_token_s + 1e-5)
        if where == "prefill"
        else replace(cost, sequence_knee=64, over_sequence_s=cost.base_s / 10)
    )
    points = measure(bent)
    found = fit(points, max_batched_tokens=BUDGET)
    errors = relative_errors(found, points, max_batched_tokens=BUDGET)
    assert float(np.median(errors)) < 0.01
    assert errors.max() < 0.1


def test_no_knee_without_need() -> None:
    found = fit(measure(KNOWN, noise=0.02), max_batched_tokens=BUDGET)
    assert (found.prefill_over_token_s, found.over_sequence_s) == (0, 0)


def test_one_bad_point_does_little() -> None:
    points = measure(KNOWN)
    points[5] = replace(points[5], seconds=points[5].seconds * 3)
    found = fit(points, max_batched_tokens=BUDGET)
    good = [point for i, point in enumerate(points) if i != 5]
    assert relative_errors(found, good, max_batched_tokens=BUDGET).max() < 0.03


@settings(max_examples=30, deadline=None)
@given(COSTS, st.integers(1, 40_000), st.integers(0, 2000))
def test_predictions_are_the_models(cost: StepCost, computed: int, cached: int) -> None:
    bent = replace(cost, prefill_knee_tokens=3000, prefill_over_token_s=1e-5, sequence_knee=10, over_sequence_s=1e-4)
    prompt = Measurement(seconds=1, origin="", prompts=1, prompt_tokens=computed + cached, cached_tokens=cached)
    sequences = 1 + computed % 100
    step = Measurement(seconds=1, origin="", sequences=sequences, context_tokens=cached)
    predicted = predict(bent, [prompt, step], max_batched_tokens=BUDGET)
    expected = prefill_s(model(bent), prompt_tokens=computed + cached, cached_tokens=cached)
    assert predicted[0] == pytest.approx(expected, rel=1e-5)
    assert predicted[1] == pytest.approx(
        decode_step_s(model(bent), sequences=sequences, context_tokens=sequences * cached)
    )


def test_mixed_steps_are_fitted_with_the_others() -> None:
    known = model(KNOWN)
    mixed = Measurement(
        seconds=known.step_s(
            prefill_tokens=512, prefill_context_tokens=512 * 256, decode_sequences=32, decode_context_tokens=32_000
        ),
        origin="synthetic",
        prompts=1,
        prompt_tokens=512,
        sequences=32,
        context_tokens=1000,
    )
    found = fit([*measure(KNOWN), mixed], max_batched_tokens=BUDGET)
    assert relative_errors(found, [mixed], max_batched_tokens=BUDGET)[0] < 0.001
    long = replace(mixed, prompt_tokens=BUDGET + 1, origin="table.csv, line 9")
    with pytest.raises(MeasurementError, match=r"table\.csv, line 9: a mixed step of 8193 prompt tokens does not fit"):
        fit([*measure(KNOWN), long], max_batched_tokens=BUDGET)


@pytest.mark.parametrize("phase", [Phase.PREFILL, Phase.DECODE])
def test_both_phases_are_needed(phase: Phase) -> None:
    points = [point for point in measure(KNOWN) if point.phase is not phase]
    with pytest.raises(MeasurementError, match=f"0 {phase} measurements; a fit needs 3 or more"):
        fit(points, max_batched_tokens=BUDGET)


def test_the_held_out_error_is_as_large_as_the_noise() -> None:
    measured = as_set(measure(KNOWN, noise=0.05))
    errors = held_out.random_halves(measured, halves=6, rng=np.random.default_rng(1))
    for phase in (Phase.PREFILL, Phase.DECODE):
        found = errors[phase]
        assert 0.01 < found.median < 0.06
        assert found.median <= found.p95 <= found.worst
        assert found.median <= found.worst_half
    carried = held_out.fit_error(errors)
    assert carried.decode_typical == round(errors[Phase.DECODE].median, 4)
    assert carried.mixed_typical is None
    assert held_out.fitted_range(measured).model_dump() == {
        "prompt_tokens": (100, 16_000),
        "context_tokens": (200, 4000),
        "sequences": (1, 256),
    }


def test_the_same_seed_gives_the_same_error() -> None:
    measured = as_set(measure(KNOWN, noise=0.05))
    first, second = (held_out.random_halves(measured, halves=4, rng=np.random.default_rng(3)) for _ in range(2))
    assert first == second


def test_too_little_to_hold_half_back() -> None:
    measured = as_set([*measure(KNOWN)[:5], *measure(KNOWN)[-20:]])
    with pytest.raises(MeasurementError, match="5 prefill measurements; to hold half of them back takes 6 or more"):
        held_out.random_halves(measured, halves=2, rng=np.random.default_rng(0))
