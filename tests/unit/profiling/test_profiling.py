"""The pure parts of profiling: which points, how often, and what samples come to."""

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from swingpool.profiling.estimate import (
    FACTORS,
    LEAST_REPEATS,
    MOST_REPEATS,
    enough,
    estimate,
    likely,
    pooled_spread,
    spread,
)
from swingpool.profiling.journal import Journal, JournalError
from swingpool.profiling.plan import DECODE_ROOM, SHARE_OF_KV, Bounds, Kind, Point, points
from swingpool.profiling.points import slowed_s, step_s, together
from swingpool.profiling.result import link, spread_of_prompts
from swingpool.profiling.target import Target, of_pod
from swingpool.profiling.wire import Timed, WorkerError

BOUNDS = st.builds(
    Bounds,
    longest=st.integers(64, 32_768),
    kv_capacity_tokens=st.integers(256, 1_000_000),
    max_batched_tokens=st.integers(64, 16_384),
    max_sequences=st.integers(1, 64),
    max_prompt_tokens=st.integers(16, 16_384),
)


@given(BOUNDS, st.booleans())
def test_no_point_asks_for_more_than_is_allowed(bounds: Bounds, pair: bool) -> None:
    found = points(bounds, pair=pair)
    assert len(set(found)) == len(found)
    for point in found:
        tokens = point.prompt_tokens + point.sequences * (point.context_tokens + DECODE_ROOM)
        assert tokens <= max(1, bounds.kv_capacity_tokens * SHARE_OF_KV)
        assert point.sequences <= bounds.max_sequences
        assert max(point.prompt_tokens, point.context_tokens) <= bounds.max_prompt_tokens
        assert max(point.prompt_tokens, point.context_tokens) < bounds.longest
        assert point.kind is not Kind.TRANSFER or pair


def test_every_kind_is_measured() -> None:
    bounds = Bounds(
        longest=4096, kv_capacity_tokens=100_000, max_batched_tokens=2048, max_sequences=16, max_prompt_tokens=2000
    )
    assert {point.kind for point in points(bounds, pair=True)} == set(Kind)


def test_a_late_sample_moves_no_estimate() -> None:
    assert estimate([1.0, 1.01, 0.99, 1.0, 9.0]).seconds == 1.0


@given(st.lists(st.floats(0.001, 10.0), max_size=30))
def test_it_is_repeated_often_enough_and_not_for_ever(samples: list[float]) -> None:
    if len(samples) < LEAST_REPEATS:
        assert not enough(samples)
    if len(samples) >= MOST_REPEATS:
        assert enough(samples)


def test_a_spread_is_told_by_factors_that_are_equally_likely() -> None:
    even = [0.01 + 0.0001 * number for number in range(201)]
    factors = spread(even)
    assert len(factors) == FACTORS
    assert factors == tuple(sorted(factors))
    assert factors[0] == pytest.approx(0.51, abs=0.01)
    assert factors[-1] == pytest.approx(1.49, abs=0.01)
    assert spread([0.01] * 5) == (), "a handful tells nothing"
    assert pooled_spread([even, [10 * gap_s for gap_s in even]]) == pytest.approx(factors, abs=0.01)
    jumpy = [0.01] * 180 + [0.02] * 20
    assert pooled_spread([[0.01] * 200] * 4 + [jumpy] * 6) == (1.0,) * 47 + (2.0,) * 3, "tails are kept"
    assert pooled_spread([[0.01] * 5]) == ()


@given(st.lists(st.sampled_from([0.0, 1e-9, 0.005, 0.01]), min_size=100, max_size=300))
def test_factors_are_above_zero_though_tokens_may_come_together(gaps_s: list[float]) -> None:
    assert all(factor > 0 for factor in pooled_spread([gaps_s]))


@given(st.lists(st.floats(0.001, 1.0), min_size=1, max_size=300))
def test_likely_values_are_some_of_them_in_their_order(values: list[float]) -> None:
    found = likely(values)
    assert len(found) == min(FACTORS, len(values))
    assert set(found) <= set(values)
    assert list(found) == sorted(found)
    assert likely(found) == found


def test_how_prompts_spread_is_told_over_all_lengths() -> None:
    factors = [0.8 + 0.01 * number for number in range(41)]
    samples = {
        Point(kind=Kind.PREFILL, prompt_tokens=tokens): tuple(1e-3 * tokens * factor for factor in factors)
        for tokens in (50, 100, 400)
    }
    found = spread_of_prompts(samples | {Point(kind=Kind.TRANSFER, prompt_tokens=100): (9.0, 0.1) * 30})
    assert len(found) == FACTORS
    assert found[0] == pytest.approx(0.8, abs=0.03)
    assert found[-1] == pytest.approx(1.2, abs=0.03)
    assert spread_of_prompts({}) == ()


def test_a_step_is_the_time_in_which_all_generate_by_its_tokens() -> None:
    early = Timed(sent_s=0.0, token_s=tuple(0.1 * number for number in range(20)))
    late = Timed(sent_s=0.5, token_s=tuple(1.0 + 0.1 * number for number in range(20)))
    assert step_s(together([early, late])) == pytest.approx(0.1)
    with pytest.raises(WorkerError, match="fewer than"):
        together([early, Timed(sent_s=1.7, token_s=(1.8, 1.9, 2.0))])


def test_a_prompt_beside_shows_as_the_longest_gap() -> None:
    stream = Timed(sent_s=0.0, token_s=(0.0, 0.1, 0.2, 0.9, 1.0))
    assert slowed_s([stream], Timed(sent_s=0.25, token_s=(0.85,))) == pytest.approx(0.7)
    with pytest.raises(WorkerError, match="had ended"):
        slowed_s([stream], Timed(sent_s=2.0, token_s=(3.0,)))


def test_the_link_is_what_a_transfer_takes_beyond_the_last_token() -> None:
    samples = {
        Point(kind=Kind.TRANSFER, prompt_tokens=tokens): (0.01 + 0.03 + tokens * 1e-4,) * 3
        for tokens in (100, 400, 900)
    }
    found = link(samples, lambda context: 0.03)
    assert found is not None
    assert found.latency_s == pytest.approx(0.01)
    assert found.token_s == pytest.approx(1e-4)
    assert link({}, lambda context: 0.03) is None


def test_a_journal_goes_on_where_it_was(tmp_path: Path) -> None:
    path, point = tmp_path / "journal", Point(kind=Kind.DECODE, sequences=2, context_tokens=64)
    Journal(path, {"version": "1"}).add(point, (0.1, 0.2))
    assert Journal(path, {"version": "1"}).samples == {point: (0.1, 0.2)}
    again, other = Journal(path, {"version": "1"}), Point(kind=Kind.DECODE, sequences=1, context_tokens=64)
    again.add(other, (0.1,), gaps_s=(0.9, 1.1))
    again.add(other, (0.1, 0.2), gaps_s=(1.2,))
    assert again.gaps_s == Journal(path, {"version": "1"}).gaps_s == {other: (0.9, 1.1, 1.2)}
    with pytest.raises(JournalError, match="another worker"):
        Journal(path, {"version": "2"})
    path.write_text("no journal\n")
    with pytest.raises(JournalError, match="remove it"):
        Journal(path, {"version": "1"})


def test_a_pod_tells_its_address_and_its_start() -> None:
    ready = {"type": "Ready", "status": "True", "lastTransitionTime": "2026-01-01T00:02:30Z"}
    pod: dict[str, Any] = {
        "metadata": {"name": "chat-decode-1", "creationTimestamp": "2026-01-01T00:00:00Z"},
        "status": {"podIP": "10.0.0.7", "conditions": [ready], "containerStatuses": [{"restartCount": 0}]},
    }
    assert of_pod(pod) == Target(url="http://10.0.0.7:8000", startup_s=150.0)
    pod["status"]["containerStatuses"] = [{"restartCount": 2}]
    assert of_pod(pod).startup_s is None
    pod["status"] = {}
    with pytest.raises(WorkerError, match="no address"):
        of_pod(pod)
