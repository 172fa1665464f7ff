"""Waits between tries: they grow, stay bounded, and never come at the same moment for all."""

from hypothesis import given
from hypothesis import strategies as st

from swingpool.kube.backoff import delay_s


@given(st.integers(1, 10_000))
def test_a_delay_is_bounded_and_spread(failures: int) -> None:
    bound_s = min(8.0, 0.5 * 2.0 ** min(failures - 1, 16))
    delays = [delay_s(failures, first_s=0.5, longest_s=8.0) for _ in range(8)]
    assert all(bound_s / 2 <= delay <= bound_s for delay in delays)
    assert len(set(delays)) > 1
