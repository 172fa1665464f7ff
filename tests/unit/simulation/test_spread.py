"""Times between tokens spread by a profile's factors: as many as before, around the same middle, and without chance."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from swingpool_control.simulation.histogram import Histogram
from swingpool_control.simulation.spread import Spread

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
