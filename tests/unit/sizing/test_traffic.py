"""Sketches of lengths: they add up, in any order, and keep the means."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from swingpool_control.figures import Unknown
from swingpool_control.sizing.recent import Recent
from swingpool_control.sizing.traffic import Lengths, Traffic, independent, lengths_of, merged, one_length

TOKENS = st.integers(1, 100_000)
PAIRS = st.lists(st.tuples(TOKENS, TOKENS), min_size=1, max_size=30)


@given(PAIRS)
def test_a_sketch_keeps_means_and_weight(pairs: list[tuple[int, int]]) -> None:
    sketch = lengths_of(pairs)
    assert sketch.weight == pytest.approx(len(pairs))
    assert sketch.mean_prompt_tokens == pytest.approx(sum(prompt for prompt, _ in pairs) / len(pairs))
    assert sketch.mean_output_tokens == pytest.approx(sum(output for _, output in pairs) / len(pairs))
    assert sketch.mean_context_tokens >= min(prompt for prompt, _ in pairs)


@given(st.lists(PAIRS, min_size=1, max_size=4))
def test_sketches_add_up_in_any_order(parts: list[list[tuple[int, int]]]) -> None:
    whole = lengths_of(pair for part in parts for pair in part)
    for order in (parts, parts[::-1]):
        together = merged(lengths_of(part) for part in order)
        assert len(together.bins) == len(whole.bins)
        for one, other in zip(together.bins, whole.bins, strict=True):
            assert one.prompt_tokens == pytest.approx(other.prompt_tokens)
            assert one.output_tokens == pytest.approx(other.output_tokens)
            assert one.weight == pytest.approx(other.weight)


def test_a_long_answer_reads_its_context_more_often() -> None:
    sketch = lengths_of([(100, 10), (1000, 1000)])
    assert sketch.mean_context_tokens == pytest.approx((10 * 105 + 1000 * 1500) / 1010)


def test_independent_lengths_keep_both_means() -> None:
    sketch = independent([(100, 3), (1000, 1)], [(10, 2), (50, 2)])
    assert sketch.weight == pytest.approx(4)
    assert sketch.mean_prompt_tokens == pytest.approx(325)
    assert sketch.mean_output_tokens == pytest.approx(30)


@pytest.mark.parametrize("pairs", [[], [(-1, 1)], [(math.inf, 1)], [(1, math.nan)]])
def test_what_is_no_distribution_is_refused(pairs: list[tuple[float, float]]) -> None:
    with pytest.raises(ValueError, match=r"bin|finite|length"):
        lengths_of(pairs)


def test_traffic_out_of_range_is_refused() -> None:
    lengths = one_length(prompt_tokens=10, output_tokens=10)
    with pytest.raises(ValueError, match="requests_per_s"):
        Traffic(requests_per_s=-1, lengths=lengths)
    with pytest.raises(ValueError, match="cached_share"):
        Traffic(requests_per_s=1, lengths=lengths, cached_share=1.5)


def test_recent_requests_show_lengths_and_burstiness() -> None:
    recent = Recent()
    assert isinstance(recent.arrival_scv(now_s=0.0), Unknown)
    for number in range(200):
        at_s = 10.0 * (number // 20) + 0.01 * (number % 20)  # twenty at a time
        recent.arrived(100 if number % 2 else 300, now_s=at_s)
        recent.answered(50, 1, now_s=at_s)
    scv, lengths = recent.arrival_scv(now_s=100.0), recent.lengths(now_s=100.0)
    assert isinstance(scv, float)
    assert scv > 10
    assert isinstance(lengths, Lengths)
    assert lengths.mean_prompt_tokens == pytest.approx(200)
    assert lengths.mean_output_tokens == pytest.approx(50)
    assert isinstance(recent.arrival_scv(now_s=1000.0), Unknown)
    assert isinstance(recent.lengths(now_s=1000.0), Unknown)


def test_answers_that_have_not_ended_count() -> None:
    recent = Recent()
    for second in range(30):
        recent.arrived(100, now_s=second)
        recent.answered(20, 1, now_s=second)  # the short half of them
        recent.generated(19 + second, now_s=second)  # the others go on
    lengths = recent.lengths(now_s=30.0)
    assert isinstance(lengths, Lengths)
    assert lengths.mean_output_tokens == pytest.approx(20 * (19 + 14.5) / 19)


def test_what_was_generated_before_makes_no_answer_shorter() -> None:
    recent = Recent()
    for second in range(30):
        recent.arrived(100, now_s=second)
        recent.answered(200, 1, now_s=second)
        recent.generated(50, now_s=second)
    lengths = recent.lengths(now_s=30.0)
    assert isinstance(lengths, Lengths)
    assert lengths.mean_output_tokens == pytest.approx(200)


def test_even_arrivals_are_not_bursty() -> None:
    recent = Recent()
    for number in range(100):
        recent.arrived(10, now_s=0.5 * number)
    assert recent.arrival_scv(now_s=50.0) == pytest.approx(0.0, abs=1e-9)


def test_a_rate_that_changes_is_no_burst() -> None:
    recent = Recent()
    now_s = 0.0
    for gap_s in (0.5, 0.05):
        for _ in range(round(40 / gap_s)):
            now_s += gap_s
            recent.arrived(10, now_s=now_s)
    scv = recent.arrival_scv(now_s=now_s)
    assert isinstance(scv, float)
    assert scv < 0.5
