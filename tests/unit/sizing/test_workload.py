"""Work that arrivals find: closed forms, a long walk, and what must hold of any queue."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from swingpool_control.sizing.workload import found_sojourns, sojourns

LEVELS = (0.5, 0.9, 0.95, 0.99)
EXPONENTIAL = -np.log(1 - (np.arange(2000) + 0.5) / 2000)
ONE, NONE = np.ones(len(EXPONENTIAL)), np.zeros(len(EXPONENTIAL))


@pytest.mark.parametrize("load", [0.3, 0.7, 0.95])
def test_m_m_1(load: float) -> None:
    found = sojourns(EXPONENTIAL, NONE, ONE, scv=1.0, load=load, levels=LEVELS)
    exact = [max(0.0, -math.log((1 - level) / load) / (1 - load)) for level in LEVELS]
    assert found == pytest.approx(exact, rel=0.01, abs=0.05)


def test_even_arrivals_of_equal_work_never_wait() -> None:
    assert sojourns(np.ones(1), np.zeros(1), np.ones(1), scv=0.01, load=0.5, levels=(0.99,)) == pytest.approx(
        [0.0], abs=0.1
    )


@pytest.mark.parametrize(("scv", "load"), [(0.25, 0.8), (4.0, 0.6), (16.0, 0.3)])
def test_a_long_walk_finds_the_same(scv: float, load: float) -> None:
    random, count = np.random.default_rng(0), 1_000_000
    gaps = random.gamma(1 / scv, scv, count) / load
    work = random.choice(EXPONENTIAL, count)
    assert sojourns(EXPONENTIAL, 3 * EXPONENTIAL, ONE, scv=scv, load=load, levels=LEVELS) == pytest.approx(
        found_sojourns(gaps, work, 3 * work, levels=LEVELS, since=50_000), rel=0.06, abs=0.1
    )


@settings(max_examples=20, deadline=None)
@given(scv=st.floats(0.05, 20.0), load=st.floats(0.05, 0.97), more=st.floats(1.0, 1.03))
def test_more_load_never_waits_less(scv: float, load: float, more: float) -> None:
    least, most = (sojourns(EXPONENTIAL, NONE, ONE, scv=scv, load=one, levels=LEVELS) for one in (load, load * more))
    assert all(two >= one - 0.1 for one, two in zip(least, most, strict=True))
