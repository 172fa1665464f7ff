"""What the picker tells of lengths and caches, from workers' histograms and counters."""

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from swingpool.picker.metrics import RouterMetrics
from swingpool.picker.traffic import Traffic
from swingpool.telemetry.vllm_page import NO_FIGURES, Histogram, parse
from swingpool.telemetry.windows import typical
from swingpool_control.figures import Unknown

BOUNDS = (1.0, 2.0, 5.0, 10.0, 50.0, 200.0)


@given(st.lists(st.integers(1, 200), min_size=1, max_size=50))
def test_typical_values_meet_the_mean(lengths: list[int]) -> None:
    counts = tuple(float(sum(one <= bound for one in lengths)) for bound in BOUNDS)
    several = [one for one in lengths if one > 1]
    found = typical(Histogram(bounds=BOUNDS, counts=counts, sum=float(sum(lengths))))
    assert sum(count for _, count in found) == len(several)
    assert sum(value * count for value, count in found) == pytest.approx(sum(several))


def _figures(cached: float, at_unix_s: float) -> str:
    return (
        f'vllm:prompt_tokens_by_source_total{{engine="0",source="local_cache_hit"}} {cached}\n'
        'vllm:prompt_tokens_by_source_total{engine="0",source="local_compute"} 5000\n'
        f"# at {at_unix_s}\n"
    )


def test_cached_tokens_of_prefill_workers_are_a_rate() -> None:
    traffic = Traffic(RouterMetrics(), window_s=15.0)
    assert isinstance(traffic.cached_per_s(covered_s=10.0), Unknown)
    scrapes = [NO_FIGURES, *(parse(_figures(cached, at), now_unix_s=at) for cached, at in ((100, 1.0), (400, 2.0)))]
    for before, now in itertools.pairwise(scrapes):
        traffic.scraped(now, before, prefills=True)
    traffic.scraped(scrapes[2], scrapes[1], prefills=False)  # what a decode worker had was not to be computed anyway
    assert traffic.cached_per_s(covered_s=10.0) == pytest.approx(30.0)
    restarted = parse(_figures(5, 3.0), now_unix_s=3.0)
    traffic.scraped(restarted, scrapes[2], prefills=True)
    assert traffic.cached_per_s(covered_s=10.0) == pytest.approx(30.0)
