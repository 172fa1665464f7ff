"""Iterations that pass at once leave behind what they would have left one by one."""

from dataclasses import replace

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from swingpool_control.engine import profile
from swingpool_control.engine.batching import BatchingEngine
from swingpool_control.engine.work import Limits, Request
from swingpool_control.simulation.policies.catalogue import POLICIES
from swingpool_control.simulation.settings import Failures, Settings
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


@settings(max_examples=25, deadline=None, phases=(Phase.explicit, Phase.reuse, Phase.generate))
@given(arrivals=arrivals, policy=st.sampled_from(["ours", "static"]), seed=st.integers(0, 5), crashes=st.booleans())
def test_a_simulation_finds_the_same_either_way(arrivals: list[Arrival], policy: str, seed: int, crashes: bool) -> None:
    asked = Settings(
        policy=POLICIES[policy],
        failures=Failures(crashes_per_worker_hour=300 if crashes else 0, transfer_share=0.1),
    )
    at_once, ended = simulate(spec(), arrivals, asked, failures_seed=seed)
    one_by_one, ended_so = simulate(spec(), arrivals, replace(asked, coalesce=False), failures_seed=seed)
    assert [outcome.number for outcome in ended] == [outcome.number for outcome in ended_so]
    assert [(o.first_s, o.end_s, o.result) for o in ended] == [(o.first_s, o.end_s, o.result) for o in ended_so]
    # Sums of equal gaps are rounded in another order.
    assert (at_once.itl.mean_s or 0.0) == pytest.approx(one_by_one.itl.mean_s or 0.0, rel=1e-9)
    assert replace(at_once, itl=one_by_one.itl) == one_by_one
    assert (at_once.itl.count, at_once.itl.p95_s) == (one_by_one.itl.count, one_by_one.itl.p95_s)


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
        foreseen_s = fast.foresee(iteration, most=most)
        tokens = fast.complete(iteration, now_s=0.0)
        same = slow.schedule(now_s=0.0)
        assert same == iteration
        assert slow.complete(same, now_s=0.0) == tokens
        for duration_s in foreseen_s:
            repeated = slow.schedule(now_s=0.0)
            assert repeated is not None
            assert (repeated.chunks, repeated.duration_s) == (iteration.chunks, duration_s)
            assert not any(token.last for token in slow.complete(repeated, now_s=0.0))
        fast.repeat(len(foreseen_s), under_way=False)
        assert (fast.running, fast.waiting, fast.kv_usage) == (slow.running, slow.waiting, slow.kv_usage)
        assert fast.counters == slow.counters
    assert slow.idle
    assert fast.idle
