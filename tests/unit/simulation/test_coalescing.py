"""Iterations that pass at once leave behind what they would have left one by one."""

import math
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import Phase, example, given, settings
from hypothesis import strategies as st

from swingpool_control.engine import profile
from swingpool_control.engine.batching import BatchingEngine
from swingpool_control.engine.work import Limits, Request
from swingpool_control.simulation.policies.catalogue import POLICIES
from swingpool_control.simulation.settings import Failures, Latencies, Settings
from swingpool_control.simulation.traffic import Arrival
from tests.support.simulations import simulate, spec

MODEL = profile.built_in("demo").model()

arrivals = st.lists(
    st.tuples(
        st.integers(0, 8_000_000).map(lambda micros: micros * 1.000173e-6),
        st.integers(1, 300),
        st.integers(1, 120),
        st.integers(0, 3),
    ),
    min_size=1,
    max_size=25,
    unique_by=lambda one: one[0],  # of things that happen at one moment either order is right
).map(
    lambda drawn: [
        Arrival(at_s, prompt, output, (family,) if family else (), 16)
        for at_s, prompt, output, family in sorted(drawn, key=lambda one: one[0])
    ]
)

SILENT = [
    Arrival(at_s, prompt, output, (family,) if family else (), 16)
    for at_s, prompt, output, family in (
        (0.000279048267, 111, 11, 0),
        (0.000284049132, 17, 100, 2),
        (0.000331057263, 143, 7, 1),
        (0.000386066778, 1, 24, 2),
        (0.000708122484, 185, 4, 2),
        (0.00376065048, 1, 59, 2),
        (0.004863841299, 227, 25, 0),
        (0.011956068042, 117, 56, 0),
        (0.069036941325, 280, 103, 1),
        (0.334663886838, 177, 4, 3),
        (4.195028614419, 248, 100, 2),
    )
]
"""The last one runs on a worker that is silent at a scrape, the last before a window ends."""


@settings(max_examples=25, deadline=None, phases=(Phase.explicit, Phase.reuse, Phase.generate))
@given(arrivals=arrivals, policy=st.sampled_from(["ours", "static"]), seed=st.integers(0, 5), trouble=st.booleans())
@example(arrivals=SILENT, policy="static", seed=2, trouble=True)
def test_a_simulation_finds_the_same_either_way(arrivals: list[Arrival], policy: str, seed: int, trouble: bool) -> None:
    asked = Settings(
        policy=POLICIES[policy],
        failures=Failures(
            crashes_per_worker_hour=300 * trouble,
            hangs_per_worker_hour=300 * trouble,
            hang_s=1.03,
            slow_per_worker_hour=300 * trouble,
            slow_s=2.01,
            silences_per_worker_hour=300 * trouble,
            transfer_share=0.1,
        ),
        fabric_links=0.5 if trouble else math.inf,
        # Iterations that begin at a decision last round times: they would end at the very moment of a later reading,
        # and count before it or after it by how their durations were added up.
        swing_period_s=1.0000917,
        latencies=Latencies(scrape_period_s=1.0000311),
    )
    at_once, ended = simulate(spec(), arrivals, asked, failures_seed=seed)
    one_by_one, ended_so = simulate(spec(), arrivals, replace(asked, coalesce=False), failures_seed=seed)
    assert [(outcome.number, outcome.result) for outcome in ended] == [(o.number, o.result) for o in ended_so]
    # Many durations at once are rounded otherwise than one after the other.
    assert [outcome.end_s for outcome in ended] == pytest.approx([outcome.end_s for outcome in ended_so])
    firsts = [[outcome.first_s or -1.0 for outcome in each] for each in (ended, ended_so)]
    assert firsts[0] == pytest.approx(firsts[1])
    assert flattened(at_once) == pytest.approx(flattened(one_by_one))


def flattened(value: Any, name: str = "") -> dict[str, Any]:
    """All figures of a result by their path."""
    if isinstance(value, dict):
        return {
            key: found for part, inner in value.items() for key, found in flattened(inner, f"{name}.{part}").items()
        }
    if isinstance(value, list | tuple):
        return flattened(dict(enumerate(value)), name)
    if hasattr(value, "__dataclass_fields__"):
        return flattened({field: getattr(value, field) for field in value.__dataclass_fields__}, name)
    return {name: value}


@settings(max_examples=60, deadline=None)
@given(
    lengths=st.lists(st.tuples(st.integers(1, 40), st.integers(1, 40)), min_size=1, max_size=6),
    blocks=st.integers(20, 60),
    most=st.integers(1, 50),
    prefix_caching=st.booleans(),
)
def test_repeating_equals_iterating(
    lengths: list[tuple[int, int]], blocks: int, most: int, prefix_caching: bool
) -> None:
    limits = Limits(
        block_size=4,
        total_blocks=blocks,
        max_batched_tokens=64,
        max_sequences=4,
        lease_s=30.0,
        prefix_caching=prefix_caching,
    )
    slow, fast = BatchingEngine(MODEL, limits), BatchingEngine(MODEL, limits)
    for engine in (slow, fast):
        for number, (prompt, output) in enumerate(lengths):
            engine.add(Request(id=str(number), prompt_tokens=prompt, output_tokens=output))
    while (iteration := fast.schedule(now_s=0.0)) is not None:
        chunks, foreseen = fast.chunks, min(most, fast.foresee())
        durations_s = [fast.following_s(number + 1) - fast.following_s(number) for number in range(1 + foreseen)]
        fast.repeat(foreseen)
        for number in range(1 + foreseen):
            same = slow.schedule(now_s=0.0)
            assert same is not None
            assert slow.chunks == chunks
            if foreseen:
                assert same.duration_s == pytest.approx(durations_s[number])
            if number < foreseen:
                assert not any(token.last for token in slow.complete(now_s=0.0))
        assert same is not None
        assert same.decode_sequences == iteration.decode_sequences
        assert fast.complete(now_s=0.0) == slow.complete(now_s=0.0)
        assert (fast.running, fast.waiting, fast.kv_usage) == (slow.running, slow.waiting, slow.kv_usage)
        assert fast.counters == slow.counters
    assert slow.idle
    assert fast.idle
