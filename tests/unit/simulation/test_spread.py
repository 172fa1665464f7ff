"""Times spread by a profile's factors, around the same middle and without chance: between tokens as many as before, and
of prompts while they are computed.
"""

from dataclasses import replace
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from swingpool_control.engine import profile
from swingpool_control.engine.linear import LinearModel
from swingpool_control.engine.model import prefill_s
from swingpool_control.simulation.cluster import Simulation
from swingpool_control.simulation.histogram import Histogram
from swingpool_control.simulation.outcome import Outcome
from swingpool_control.simulation.settings import Latencies
from swingpool_control.simulation.spread import Spread, Turns
from swingpool_control.simulation.traffic import Arrival
from tests.support.simulations import STATIC, spec

FACTORS = tuple(0.75 + 0.025 * number for number in range(20))


@given(st.lists(st.tuples(st.floats(0.001, 1.0), st.integers(1, 50)), min_size=1, max_size=20))
def test_as_many_values_remain(counts: list[tuple[float, int]]) -> None:
    counted = Histogram()
    for value, count in counts:
        counted.add(value, count)
    found = Spread(FACTORS).over(counted)
    assert found.count == counted.count
    assert sum(found.buckets.values()) == counted.count


@pytest.mark.parametrize("at_a_time", [1, 3, 7, 2000])
def test_percentiles_are_those_of_the_factors_however_few_come_at_a_time(at_a_time: int) -> None:
    spread, whole = Spread(FACTORS), Histogram()
    for _ in range(4000 // at_a_time):
        part = Histogram()
        part.add(0.02, at_a_time)
        whole.include(spread.over(part))
    p5, p50, p95 = whole.percentiles((0.05, 0.5, 0.95))
    assert p5 == pytest.approx(0.02 * 0.75, rel=0.04)
    assert p50 == pytest.approx(0.02 * 0.975, rel=0.03)
    assert p95 == pytest.approx(0.02 * 1.2, rel=0.03)


def test_one_factor_changes_nothing_but_the_scale() -> None:
    counted = Histogram()
    counted.add(0.02, 10)
    (doubled,) = Spread((2.0,)).over(counted).percentiles((0.5,))
    assert doubled == pytest.approx(0.04, rel=0.01)


@given(st.lists(st.floats(0.1, 10.0), min_size=1, max_size=40), st.integers(1, 3))
def test_every_factor_has_its_turn_as_often(factors: list[float], rounds: int) -> None:
    turns = Turns(factors)
    found = [turns.next() for _ in range(rounds * len(factors))]
    assert sorted(found) == sorted(factors * rounds)
    assert found[0] == factors[len(factors) // 2]
    assert Turns(()).next() == 1.0


def ttfts_s(model: LinearModel, arrivals: list[Arrival]) -> list[float]:
    """Of every request, by one worker."""
    outcomes: list[Outcome] = []
    settings = replace(STATIC, prefix_caching=False, latencies=Latencies(hop_s=0.0))
    pools = [{"name": "decode", "role": "Decode"}]
    Simulation(
        spec(pools), arrivals, settings, failures=Random(1), known={"decode": model}, ended=outcomes.append
    ).run()
    return [one.ttft_s or 0.0 for one in sorted(outcomes, key=lambda one: one.number)]


def test_lone_prompts_take_what_the_model_says_times_a_factor_and_who_waits_waits_for_it() -> None:
    plain = profile.built_in("demo").model()
    spread = replace(plain, prefill_spread=(0.5, 1.0, 1.5, 2.0, 3.0))
    alone_s = prefill_s(plain, prompt_tokens=400)
    apart = [Arrival(10.0 * number, 400, 1) for number in range(1, 11)]
    assert ttfts_s(plain, apart) == pytest.approx([alone_s] * 10)
    assert sorted(ttfts_s(spread, apart)) == pytest.approx(
        [alone_s * factor for factor in sorted(spread.prefill_spread * 2)]
    )
    pairs = [Arrival(10.0 * number + offset_s, 400, 1) for number in range(1, 6) for offset_s in (0.0, alone_s / 100)]
    found = ttfts_s(spread, pairs)
    for first_s, second_s in zip(found[::2], found[1::2], strict=True):
        assert second_s > first_s
