"""vLLM's metrics by version, and percentiles that say how far they may be off."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from swingpool_control.vllm.metrics import METRICS, Kind, percentile
from swingpool_control.vllm.versions import Version


@pytest.mark.parametrize("minor", range(11, 33))
def test_every_version_tells_its_load_and_its_latencies(minor: int) -> None:
    for key in ("running", "waiting", "kv_usage", "ttft", "itl", "generated_tokens"):
        assert METRICS[key].name(Version(0, minor)) is not None


def test_old_and_new_names() -> None:
    assert METRICS["by_source"].name(Version(0, 15)) is None
    assert METRICS["by_source"].name(Version(0, 16)) == "vllm:prompt_tokens_by_source"
    assert [one.name for one in METRICS["itl"].names][1] == "vllm:time_per_output_token_seconds"
    assert METRICS["cache_info"].kind is Kind.INFO


@given(
    st.lists(st.floats(0.001, 4.0), min_size=1, max_size=200),
    st.lists(st.floats(0.01, 5.0), min_size=1, max_size=12, unique=True),
    st.sampled_from([0.5, 0.9, 0.95, 0.99]),
)
def test_the_true_percentile_lies_within_the_bounds(values: list[float], cuts: list[float], share: float) -> None:
    bounds = (*sorted(cuts), math.inf)
    counts = tuple(float(sum(value <= bound for value in values)) for bound in bounds)
    found = percentile(bounds, counts, share)
    assert found is not None
    true = sorted(values)[max(0, math.ceil(share * len(values)) - 1)]
    assert found.least <= true <= found.most
    assert found.least <= found.value <= found.most


def test_nothing_has_no_percentile() -> None:
    assert percentile((1.0, math.inf), (0.0, 0.0), 0.5) is None
    assert percentile((), (), 0.5) is None
    with pytest.raises(ValueError, match="within 0 and 1"):
        percentile((1.0,), (1.0,), 95)


def test_the_last_bucket_says_only_that_it_is_above() -> None:
    found = percentile((1.0, math.inf), (0.0, 4.0), 0.5)
    assert found is not None
    assert (found.value, found.least, found.most, found.error) == (1.0, 1.0, math.inf, math.inf)
