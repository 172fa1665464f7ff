"""Durations and money as users write them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from swingpool_control.api.quantities import money, seconds


@pytest.mark.parametrize(
    ("text", "expected"),
    [("500ms", 0.5), ("1m30s", 90.0), ("0s", 0.0), ("1.5h", 5400.0), ("1h1m1s1ms", 3661.001), ("0.25s", 0.25)],
)
def test_seconds(text: str, expected: float) -> None:
    assert seconds(text) == pytest.approx(expected)


@pytest.mark.parametrize("text", ["", "5", "-1s", "1 s", "1d", "s", "1s\n", "1e3s", ".5s", "1234567s"])
def test_no_duration(text: str) -> None:
    with pytest.raises(ValueError, match="is not a duration such as 500ms"):
        seconds(text)


@given(h=st.integers(0, 999), m=st.integers(0, 999), s=st.integers(0, 999), ms=st.integers(0, 999))
def test_parts_of_a_duration_add_up(h: int, m: int, s: int, ms: int) -> None:
    assert seconds(f"{h}h{m}m{s}s{ms}ms") == pytest.approx(h * 3600 + m * 60 + s + ms / 1000)


@given(units=st.integers(0, 10**9), millionths=st.integers(0, 999_999))
def test_money(units: int, millionths: int) -> None:
    assert money(f"{units}.{millionths:06}") == pytest.approx(units + millionths / 1e6)


@pytest.mark.parametrize("text", ["", "-1", "$3", "3,50", "1.", "1.1234567", "1e3", "NaN"])
def test_no_money(text: str) -> None:
    with pytest.raises(ValueError, match=r"is not an amount such as 2\.95"):
        money(text)
