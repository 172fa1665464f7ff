"""Curves: through their points, straight between, never falling, and refused where they would."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from swingpool_control.engine.curve import Curve

CURVE = Curve(sizes=(10, 20, 40), seconds=(1.0, 3.0, 3.5))


@pytest.mark.parametrize(
    ("size", "seconds"), [(0, 0.0), (5, 0.5), (10, 1.0), (15, 2.0), (20, 3.0), (30, 3.25), (40, 3.5), (80, 4.5)]
)
def test_through_its_points_and_straight_between_and_beyond(size: float, seconds: float) -> None:
    assert CURVE.at(size) == pytest.approx(seconds)


CURVES = st.lists(st.tuples(st.floats(0.01, 1e4), st.floats(0, 10)), min_size=1, max_size=8).map(
    lambda steps: Curve(
        sizes=tuple(sum(size for size, _ in steps[: i + 1]) for i in range(len(steps))),
        seconds=tuple(sum(rise for _, rise in steps[: i + 1]) for i in range(len(steps))),
    )
)


@given(CURVES, st.floats(0, 1e5), st.floats(0, 1e5), st.floats(0, 100))
def test_more_never_takes_less(curve: Curve, size: float, further: float, factor: float) -> None:
    assert 0 <= curve.at(size) <= curve.at(size + further) * (1 + 1e-9) + 1e-9
    assert curve.scaled(factor).at(size) == pytest.approx(factor * curve.at(size))


@pytest.mark.parametrize(
    ("sizes", "seconds", "message"),
    [
        ((), (), "one or more sizes"),
        ((1, 2), (1,), "seconds for each"),
        ((0, 2), (1, 2), "rise from above zero"),
        ((2, 2), (1, 2), "rise from above zero"),
        ((1, 2), (2, 1), "must not fall"),
        ((1, 2), (-1, 1), "begin below zero"),
        ((1, float("inf")), (1, 2), "finite"),
    ],
)
def test_what_would_fall_is_refused(sizes: tuple[float, ...], seconds: tuple[float, ...], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Curve(sizes=sizes, seconds=seconds)
