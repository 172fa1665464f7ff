"""Percentiles from a histogram lie within its resolution; counts and means are exact."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from swingpool_control.simulation.histogram import RATIO, Histogram, merged

values = st.lists(st.floats(1e-5, 1e4), min_size=1, max_size=200)


@given(values=values, share=st.floats(0.01, 1.0))
def test_percentiles_are_nearest_ranks(values: list[float], share: float) -> None:
    histogram = Histogram()
    for value in values:
        histogram.add(value)
    exact = sorted(values)[max(1, math.ceil(share * len(values))) - 1]
    (found,) = histogram.percentiles([share])
    assert found == pytest.approx(exact, rel=RATIO - 1)
    assert histogram.mean == pytest.approx(sum(values) / len(values))


@given(parts=st.lists(values, max_size=4))
def test_merging_counts_all(parts: list[list[float]]) -> None:
    whole, pieces = Histogram(), []
    for part in parts:
        pieces.append(Histogram())
        for value in part:
            pieces[-1].add(value)
            whole.add(value)
    together = merged(pieces)
    assert (together.buckets, together.count, together.largest) == (whole.buckets, whole.count, whole.largest)


def test_nothing_has_no_percentile() -> None:
    assert Histogram().percentiles([0.5, 0.9]) == [None, None]
    assert Histogram().mean is None
