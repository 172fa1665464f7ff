"""Sequences on decode workers in the long run: what is known of shot noise, and what a sample lacks of it."""

import math

import pytest

from swingpool_control.sizing import residents
from swingpool_control.sizing.draws import draws
from swingpool_control.sizing.traffic import one_length

LEVELS = (0.05, 0.5, 0.95)
ALIKE = one_length(prompt_tokens=1, output_tokens=1)


def test_many_poisson_arrivals_make_noise_that_is_about_normal() -> None:
    low, middle, high = residents.percentiles(*residents.moments(10_000.0, 1.0), LEVELS)
    deviation = math.sqrt(10_000.0 / 2)
    assert middle == pytest.approx(10_000.0, rel=1e-3)
    assert high - middle == pytest.approx(1.645 * deviation, rel=0.02)
    assert middle - low == pytest.approx(1.645 * deviation, rel=0.02)


def test_burstier_arrivals_make_more_noise_and_even_ones_less() -> None:
    spreads = [residents.moments(500.0, scv)[1] for scv in (0.25, 1.0, 16.0)]
    assert spreads == sorted(spreads)
    assert spreads[2] == pytest.approx(4 * spreads[1], rel=0.1)


@pytest.mark.parametrize("scv", [1.0, 16.0])
def test_a_long_sample_lacks_nothing(scv: float) -> None:
    count, fades_s = 200_000, 100.0
    sample = draws(ALIKE, scv=scv, count=count)
    beyond = residents.beyond_sample(
        sample.arrivals, sample.arrivals, scv=scv, fades_s=fades_s, levels=LEVELS, since=count // 10
    )
    deviation = math.sqrt(scv * fades_s / 2)
    assert all(abs(one) < 0.15 * deviation for one in beyond)


def test_a_short_sample_lacks_ups_and_downs() -> None:
    count, fades_s, scv = 2000, 1000.0, 16.0
    sample = draws(ALIKE, scv=scv, count=count)
    low, _, high = residents.beyond_sample(
        sample.arrivals, sample.arrivals, scv=scv, fades_s=fades_s, levels=LEVELS, since=200
    )
    assert high - low > 0
