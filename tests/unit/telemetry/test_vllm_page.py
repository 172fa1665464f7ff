"""Reading workers' metrics: present and former names, several engines, and what is not there."""

import math

from hypothesis import given
from hypothesis import strategies as st

from swingpool.picker.observe import mean_output_tokens
from swingpool.telemetry.vllm_page import Histogram, parse
from swingpool.telemetry.windows import combined, percentiles_in, percentiles_of
from swingpool_control.figures import Unknown

PAGE = """\
# HELP vllm:num_requests_running x
vllm:num_requests_running{engine="0",model_name="a b"} 2.0
vllm:num_requests_running{engine="1",model_name="a b"} 1.0
vllm:num_requests_waiting{engine="0",model_name="a} b"} 4.0
vllm:kv_cache_usage_perc{engine="0"} 0.5
vllm:kv_cache_usage_perc{engine="1"} 0.7
vllm:prompt_tokens_by_source_total{source="local_compute"} 70.0
vllm:prompt_tokens_by_source_total{source="external_kv_transfer"} 30.0
vllm:inter_token_latency_seconds_bucket{le="0.01"} 1.0
vllm:inter_token_latency_seconds_bucket{le="0.1"} 3.0
vllm:inter_token_latency_seconds_bucket{le="+Inf"} 4.0
vllm:inter_token_latency_seconds_sum 1.25
vllm:inter_token_latency_seconds_count 4.0
python_info 1.0
"""


def test_the_present_names() -> None:
    figures = parse(PAGE, now_unix_s=5.0)
    assert (figures.running, figures.waiting, figures.kv_usage) == (3.0, 4.0, 0.6)
    assert figures.transferred_tokens == 30.0
    assert figures.itl_s == Histogram(bounds=(0.01, 0.1, math.inf), counts=(1.0, 3.0, 4.0), sum=1.25)
    assert figures.scraped_unix_s == 5.0
    assert figures.output_tokens is None


def test_the_former_names() -> None:
    former = PAGE.replace("kv_cache_usage_perc", "gpu_cache_usage_perc")
    former = former.replace("inter_token_latency_seconds", "time_per_output_token_seconds")
    figures = parse(former, now_unix_s=5.0)
    assert figures.kv_usage == 0.6
    assert figures.itl_s == parse(PAGE, now_unix_s=5.0).itl_s


def test_what_is_missing_or_no_number_is_unknown() -> None:
    nothing = parse("", now_unix_s=1.0)
    assert nothing.running == Unknown("vllm:num_requests_running is missing")
    assert isinstance(nothing.kv_usage, Unknown)
    broken = parse(
        "vllm:num_requests_running NaN\nvllm:num_requests_waiting +Inf\nvllm:kv_cache_usage_perc x\n", now_unix_s=1
    )
    assert isinstance(broken.running, Unknown)
    assert isinstance(broken.waiting, Unknown)
    assert isinstance(broken.kv_usage, Unknown)


@given(st.text())
def test_any_text_is_survived(text: str) -> None:
    parse("vllm:num_requests_running" + text, now_unix_s=1.0)


def histogram(*values: float, bounds: tuple[float, ...] = (0.01, 0.025, 0.05, 0.1, 1.0)) -> Histogram:
    every = (*bounds, math.inf)
    return Histogram(bounds=every, counts=tuple(float(sum(v <= b for v in values)) for b in every), sum=sum(values))


VALUES = st.lists(st.floats(0.0001, 0.99), min_size=1, max_size=60)


@given(VALUES, VALUES)
def test_growth_is_what_came_in_between(before: list[float], after: list[float]) -> None:
    grown = histogram(*before, *after).since(histogram(*before))
    assert grown.counts == histogram(*after).counts
    assert math.isclose(grown.sum, sum(after), abs_tol=1e-9)


def test_a_restart_takes_nothing_away() -> None:
    assert histogram(0.02).since(histogram(0.02, 0.03)) == histogram(0.02)


@given(VALUES)
def test_percentiles_lie_in_the_bucket_of_the_exact_ones(values: list[float]) -> None:
    told = percentiles_in(histogram(*values), name="latency")
    assert told.count == len(values)
    ordered = sorted(values)
    bounds = (0.0, 0.01, 0.025, 0.05, 0.1, 1.0)
    for figure, share in ((told.p50, 0.5), (told.p95, 0.95)):
        exact = ordered[max(0, math.ceil(share * len(ordered)) - 1)]
        upper = next(bound for bound in bounds[1:] if exact <= bound)
        lower = max(bound for bound in bounds if bound < upper)
        assert isinstance(figure, float)
        assert lower - 1e-9 <= figure <= upper + 1e-9


def test_percentiles_within_a_wide_bucket_meet_the_mean() -> None:
    """All values are 27 ms, in a bucket from 25 to 50 ms: its middle would tell an objective of 40 ms as missed."""
    told = percentiles_in(histogram(*[0.027] * 100), name="latency")
    assert isinstance(told.p95, float)
    assert told.p95 < 0.04


def test_beyond_the_last_bucket_is_unknown() -> None:
    told = percentiles_in(histogram(0.02, 5.0), name="latency")
    assert isinstance(told.p50, float)
    assert isinstance(told.p99, Unknown)


def test_nothing_observed_is_unknown_not_zero() -> None:
    assert isinstance(percentiles_in(Histogram(), name="latency").p50, Unknown)
    assert isinstance(percentiles_of([], name="latency").p99, Unknown)
    assert percentiles_of([3.0, 1.0, 2.0], name="latency").p50 == 2.0


@given(VALUES, VALUES)
def test_histograms_of_different_buckets_add_up(first: list[float], second: list[float]) -> None:
    both = combined([histogram(*first), histogram(*second, bounds=(0.03, 0.5))])
    assert both.count == len(first) + len(second)
    assert list(both.counts) == sorted(both.counts)


def test_prefill_legs_do_not_count_as_answers() -> None:
    tokens = histogram(1, 1, 1, 20, 40, bounds=(1.0, 2.0, 50.0))
    assert mean_output_tokens(tokens) == 30.0
    assert isinstance(mean_output_tokens(histogram(1, 1, bounds=(1.0, 2.0))), Unknown)
    assert isinstance(mean_output_tokens(Histogram()), Unknown)
