"""Traffic is cut into stretches that together hold all of it."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from swingpool_control.planning.stretches import LEAST_REQUESTS, MOST, stretches
from swingpool_control.simulation.traffic import Arrival

times = st.lists(st.floats(0, 100_000), min_size=1, max_size=300).map(sorted)


@given(times)
def test_no_request_is_lost_and_stretches_do_not_overlap(at_s: list[float]) -> None:
    found = stretches(Arrival(at_s=one, prompt_tokens=100, output_tokens=10) for one in at_s)
    total = sum((one.until_s - one.from_s) * one.traffic.requests_per_s for one in found)
    assert total == pytest.approx(len(at_s))
    assert len(found) <= MOST
    for before, after in pairwise(found):
        assert before.until_s <= after.from_s


@given(st.lists(st.tuples(st.integers(1, 10_000), st.integers(1, 2_000)), min_size=1, max_size=200))
def test_means_of_lengths_are_kept(lengths: list[tuple[int, int]]) -> None:
    arrivals = (
        Arrival(at_s=number * 7.0, prompt_tokens=prompt, output_tokens=output)
        for number, (prompt, output) in enumerate(lengths)
    )
    found = stretches(arrivals)
    prompts = sum(one.traffic.prompt_tokens_per_s * (one.until_s - one.from_s) for one in found)
    outputs = sum(one.traffic.output_tokens_per_s * (one.until_s - one.from_s) for one in found)
    assert prompts == pytest.approx(sum(prompt for prompt, _ in lengths))
    assert outputs == pytest.approx(sum(output for _, output in lengths))


def test_a_change_of_the_mix_is_seen() -> None:
    arrivals = [
        Arrival(at_s=number / 20, prompt_tokens=1000 if number < 1200 else 10, output_tokens=10)
        for number in range(2400)
    ]
    found = stretches(arrivals)
    assert found[0].traffic.lengths.mean_prompt_tokens == 1000
    assert found[-1].traffic.lengths.mean_prompt_tokens == 10
    assert found[0].traffic.arrival_scv == pytest.approx(0.0, abs=1e-6), "arrivals at equal distances"


def test_few_requests_make_long_stretches() -> None:
    found = stretches(Arrival(at_s=number * 10.0, prompt_tokens=10, output_tokens=10) for number in range(1000))
    counts = [(one.until_s - one.from_s) * one.traffic.requests_per_s for one in found]
    assert min(counts[:-1]) >= LEAST_REQUESTS / 2


def test_no_requests_make_no_stretches() -> None:
    assert stretches([]) == ()
