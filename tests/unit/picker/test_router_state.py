"""The wire form of the state: what goes in comes out, and whatever comes in does no harm."""

import json
from dataclasses import fields, replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from swingpool.telemetry.router_state import BadStateError, decode, encode
from swingpool_control.figures import Unknown
from swingpool_control.observation import Percentiles, RouterObservation, WorkerObservation
from swingpool_control.sizing.traffic import lengths_of

FLOATS = st.floats(0, 1e12, allow_nan=False)
FIGURES = FLOATS | st.builds(Unknown, st.text(max_size=20))
COUNTS = st.integers(0, 10**9)
TEXT = st.text(st.characters(codec="utf-8"), max_size=12)
PERCENTILES = st.builds(Percentiles, p50=FIGURES, p90=FIGURES, p95=FIGURES, p99=FIGURES, count=COUNTS)


def _by_type(cls: type[Any], **known: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    strategies: dict[object, st.SearchStrategy[Any]] = {str: TEXT, int: COUNTS, float: FLOATS, bool: st.booleans()}
    chosen = {field.name: strategies.get(field.type, FIGURES) for field in fields(cls)}
    return st.builds(cls, **(chosen | known))


TOKENS = st.floats(0, 1e6)
LENGTHS = st.lists(st.tuples(TOKENS, TOKENS), min_size=1, max_size=4).map(lengths_of)
WORKERS = _by_type(WorkerObservation, pod=TEXT.filter(bool))
OBSERVATIONS = _by_type(
    RouterObservation,
    ttft_s=PERCENTILES,
    itl_s=PERCENTILES,
    workers=st.lists(WORKERS, max_size=3).map(tuple),
    lengths=LENGTHS | st.builds(Unknown, st.text(max_size=20)),
)


@given(OBSERVATIONS)
def test_round_trip(observation: RouterObservation) -> None:
    assert decode(encode(observation)) == observation


@given(OBSERVATIONS, st.data())
def test_a_missing_field_is_unknown_and_the_rest_stays(observation: RouterObservation, data: st.DataObject) -> None:
    raw = json.loads(encode(observation))
    gone = data.draw(st.sampled_from(["requests_per_s", "mean_osl_tokens", "prompt_tokens_per_s"]))
    raw.pop(gone)
    raw.pop(gone + "Unknown", None)
    raw["of_a_later_release"] = {"what": "ever"}
    read = decode(json.dumps(raw).encode())
    assert getattr(read, gone) == Unknown(f"{gone} is missing")
    assert replace(read, **{gone: getattr(observation, gone)}) == observation


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers(-5, 5) | st.text(max_size=5),
        lambda inner: (
            st.lists(inner, max_size=3)
            | st.dictionaries(st.sampled_from(["at_unix_s", "workers", "pod", "ttft_s", "window_s"]), inner, max_size=4)
        ),
        max_leaves=10,
    )
)
def test_any_json_is_read_or_refused(raw: Any) -> None:
    try:
        read = decode(json.dumps(raw).encode())
    except BadStateError:
        return
    assert isinstance(read, RouterObservation)


@pytest.mark.parametrize("text", [b"", b"[]", b"{}", b'{"at_unix_s": null}', b"<html>", b'{"at_unix_s": NaN}'])
def test_what_is_no_state_is_refused(text: bytes) -> None:
    with pytest.raises(BadStateError):
        decode(text)


@pytest.mark.parametrize("bins", [[], [[1, 2]], [[1, 2, 0]], [[1, -2, 1]], [["a", 1, 1]], "abc", 7, [[1, 2, None]]])
def test_lengths_that_are_none_are_unknown(bins: object) -> None:
    read = decode(json.dumps({"at_unix_s": 1.0, "lengths": bins}).encode())
    assert isinstance(read.lengths, Unknown)
