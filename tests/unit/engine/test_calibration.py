"""Calibration: slow, bounded, blind to noise and to what is unknown; and applied, it is what was observed."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from swingpool_control.engine import profile
from swingpool_control.engine.calibration import (
    DEAD_BAND,
    FARTHEST,
    LEAST,
    LONGEST_STEP_S,
    MOST,
    TIME_CONSTANT_S,
    Calibration,
    Evidence,
    corrected,
    update,
)
from swingpool_control.engine.model import decode_step_s, prefill_s
from swingpool_control.figures import Figure, Unknown

MODEL = profile.built_in("llama-3.1-8b-fp8-h200").model()


def evidence(ratio: float, *, values: int = 1000) -> Evidence:
    return Evidence(observed_s=0.02 * ratio, predicted_s=0.02, values=values)


def after(memory: Calibration, ratio: float, *, updates: int, period_s: float = 15.0) -> Calibration:
    start = memory.at_unix_s or 0.0
    for step in range(updates):
        memory = update(memory, {"decode": evidence(ratio)}, now_unix_s=start + step * period_s)
    return memory


def test_a_lasting_difference_is_taken_over_in_minutes_and_not_at_once() -> None:
    soon, later = after(Calibration(), 1.3, updates=5), after(Calibration(), 1.3, updates=400)
    assert 1.0 < soon.decode < 1.05
    assert later.decode == pytest.approx(1.3, rel=DEAD_BAND)
    assert later.prefill == 1.0


def test_what_is_near_does_not_move_it() -> None:
    found = after(Calibration(), 1 + DEAD_BAND * 0.9, updates=1000)
    assert found.decode == 1.0
    assert "within 5% of what was predicted" in found.why["decode"]


@given(st.lists(st.tuples(st.floats(0.2, 5.0), st.floats(0, 3600)), max_size=40))
def test_it_stays_within_its_bounds_and_moves_little_at_a_time(looks: list[tuple[float, float]]) -> None:
    memory, now = Calibration(), 1e9
    for ratio, passed_s in looks:
        now += passed_s
        before = memory.decode
        memory = update(memory, {"decode": evidence(ratio)}, now_unix_s=now)
        assert LEAST <= memory.decode <= MOST
        farthest = (1 - math.exp(-LONGEST_STEP_S / TIME_CONSTANT_S)) * math.log(FARTHEST * MOST)
        assert abs(math.log(memory.decode / before)) <= farthest + 1e-9
        if ratio > before:
            assert memory.decode >= before
        if ratio < before:
            assert memory.decode <= before


UNKNOWN = Unknown("the router is away")


@pytest.mark.parametrize(
    ("observed_s", "predicted_s", "values", "why"),
    [
        (UNKNOWN, 0.02, 1000, "the router is away"),
        (0.03, UNKNOWN, 1000, "the router is away"),
        (0.03, 0.02, 3, "3 values were observed"),
        (math.nan, 0.02, 1000, "observed nan s"),
        (0.0, 0.02, 1000, "observed 0.0 s"),
        (0.03, 0.0, 1000, "predicted 0.0 s"),
        (2.0, 0.02, 1000, "another workload or a fault"),
        (0.0001, 0.02, 1000, "another workload or a fault"),
    ],
)
def test_what_is_no_evidence_leaves_it(observed_s: Figure, predicted_s: Figure, values: int, why: str) -> None:
    memory = Calibration(decode=1.2, at_unix_s=0.0)
    found = update(
        memory,
        {"decode": Evidence(observed_s=observed_s, predicted_s=predicted_s, values=values)},
        now_unix_s=30.0,
    )
    assert found.decode == 1.2
    assert why in found.why["decode"]
    assert found.why["prefill"] == "nothing was observed"


def test_the_first_look_only_starts_the_clock_and_a_clock_set_back_does_nothing() -> None:
    first = update(Calibration(), {"decode": evidence(1.4)}, now_unix_s=1000.0)
    assert first.decode == 1.0
    assert update(first, {"decode": evidence(1.4)}, now_unix_s=500.0).decode == 1.0


@given(st.floats(LEAST, MOST), st.floats(LEAST, MOST), st.integers(1, 256), st.integers(1, 16_000))
def test_applied_it_multiplies_what_each_role_takes(prefill: float, decode: float, sequences: int, tokens: int) -> None:
    model = corrected(MODEL, Calibration(prefill=prefill, decode=decode))
    was = decode_step_s(MODEL, sequences=sequences, context_tokens=tokens)
    assert decode_step_s(model, sequences=sequences, context_tokens=tokens) == pytest.approx(decode * was)
    alone = prefill_s(model, prompt_tokens=tokens)
    assert alone == pytest.approx(prefill * prefill_s(MODEL, prompt_tokens=tokens))


def test_without_correction_it_is_the_very_model() -> None:
    assert corrected(MODEL, Calibration()) is MODEL
