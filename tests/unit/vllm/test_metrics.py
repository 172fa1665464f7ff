"""vLLM's metrics by version, and percentiles that say how far they may be off."""

import math
import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from swingpool.telemetry.vllm_page import parse as parse_page
from swingpool_control.figures import Unknown
from swingpool_control.vllm.metrics import METRICS, Kind, percentile
from swingpool_control.vllm.versions import Version, parse


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


PAGES = sorted((Path(__file__).parent / "pages").glob("*.txt"))
"""Pages of real versions, without the metrics that nobody here reads; named by version."""


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.stem))
def test_the_pages_of_real_versions_have_what_the_table_says(page: Path) -> None:
    version = parse(page.stem)
    assert version is not None
    text = page.read_text()
    kinds = dict(re.findall(r"^# TYPE (\S+) (\S+)$", text, re.MULTILINE))
    for metric in METRICS.values():
        name = metric.name(version)
        if name is None:
            continue
        shown = f"{name}_total" if metric.kind is Kind.COUNTER else name
        assert kinds[shown] == ("gauge" if metric.kind is Kind.INFO else metric.kind)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.stem))
def test_the_picker_reads_the_pages_of_real_versions(page: Path) -> None:
    figures = parse_page(page.read_text(), now_unix_s=1.0)
    assert not any(isinstance(one, Unknown) for one in (figures.running, figures.waiting, figures.kv_usage))
    assert figures.ttft_s is not None
    assert figures.itl_s is not None
    assert figures.output_tokens is not None


def test_the_engines_of_one_worker_add_up() -> None:
    """Data parallel ranks show as engines: counts add up, shares are averaged."""
    page = PAGES[-1].read_text()
    both = page + page.replace('engine="0"', 'engine="1"')
    one, two = parse_page(page, now_unix_s=1.0), parse_page(both, now_unix_s=1.0)
    assert one.ttft_s is not None
    assert two.ttft_s is not None
    assert two.ttft_s.count == 2 * one.ttft_s.count
    assert two.kv_usage == one.kv_usage
