"""Recorded decisions: read back as they were, and made again the same."""

import json
import math
from dataclasses import dataclass, replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from swingpool_control.figures import Unknown
from swingpool_control.observation import Percentiles, RouterObservation, WorkerObservation
from swingpool_control.replay import codec
from swingpool_control.replay.decision import Recording, SwingDecision, differences, read, write
from swingpool_control.sizing.traffic import lengths_of
from tests.support.decisions import decisions

NUMBERS = st.floats(allow_nan=False)
FIGURES = NUMBERS | st.text(max_size=20).map(Unknown)
PERCENTILES = st.builds(Percentiles, p50=FIGURES, p90=FIGURES, p95=FIGURES, p99=FIGURES, count=st.integers(0, 10**9))
WORKERS = st.builds(
    WorkerObservation,
    role_since_unix_s=NUMBERS,
    **dict.fromkeys(("first_served_in_role_unix_s", "running", "waiting", "kv_usage", "scraped_unix_s"), FIGURES),
)
LENGTHS = st.lists(st.tuples(st.floats(0, 1e6), st.floats(0, 1e5)), min_size=1, max_size=5).map(lengths_of)
OBSERVATIONS = st.builds(
    RouterObservation,
    at_unix_s=NUMBERS,
    window_s=NUMBERS,
    requests_per_s=FIGURES,
    prompt_tokens_per_s=FIGURES,
    mean_isl_tokens=FIGURES,
    mean_osl_tokens=FIGURES,
    ttft_s=PERCENTILES,
    itl_s=PERCENTILES,
    workers=st.lists(WORKERS, max_size=3).map(tuple),
    oldest_wait_s=FIGURES,
    arrival_scv=FIGURES,
    lengths=LENGTHS | st.just(Unknown("not told")),
    cached_prompt_tokens_per_s=FIGURES,
    arrived_requests=FIGURES,
    arrived_prompt_tokens=FIGURES,
)


def through_a_file(value: object) -> Any:
    return json.loads(json.dumps(codec.encode(value), allow_nan=False))


@given(OBSERVATIONS)
def test_an_observation_reads_back_as_it_was_written(observation: RouterObservation) -> None:
    assert codec.decode(RouterObservation, through_a_file(observation)) == observation


@given(st.floats())
def test_any_number_reads_back(number: float) -> None:
    found = codec.decode(float, through_a_file(number))
    assert found == number or (math.isnan(found) and math.isnan(number))


@pytest.mark.parametrize("mode", ["Auto", "Recommend"])
def test_decisions_read_back_and_come_out_the_same(mode: str) -> None:
    made = decisions(mode=mode)
    assert any(decision.result.actions for decision in made) is (mode == "Auto")
    recording = Recording(cluster="default/chat", version="1", decisions=tuple(made))
    again = read(json.loads(json.dumps(write(recording), allow_nan=False)))
    assert again == recording
    assert [differences(decision) for decision in again.decisions] == [()] * len(made)


def test_a_decision_that_comes_out_otherwise_is_told_with_its_place() -> None:
    decision = decisions(seconds=5)[-1]
    assert isinstance(decision, SwingDecision)
    changed = replace(decision, result=replace(decision.result, summary="another"))
    [told] = differences(changed)
    assert told.startswith("summary: recorded 'another', now ")


@dataclass(frozen=True)
class Stranger:
    name: str


@pytest.mark.parametrize(
    ("kind", "raw", "told"),
    [
        (RouterObservation, {"$": "Stranger"}, "no RouterObservation that is known here"),
        (RouterObservation, {"$": "RouterObservation", "picker": 7}, ".picker: str expected, not int"),
        (RouterObservation, {"$": "RouterObservation"}, "missing"),
        (tuple[int, ...], [1, "2"], "[1]: int expected, not str"),
        (float | Unknown, "1", "a number is expected"),
    ],
)
def test_what_does_not_fit_is_refused_with_its_place(kind: Any, raw: object, told: str) -> None:
    with pytest.raises(codec.CodecError) as error:
        codec.decode(kind, raw)
    assert told in str(error.value)


def test_what_is_no_recording_is_refused() -> None:
    strange: tuple[object, ...] = (None, [], {}, {"format": "swingpool-decisions/v9"})
    for raw in strange:
        with pytest.raises(codec.CodecError, match="not a recording of decisions"):
            read(raw)
    with pytest.raises(codec.CodecError, match="no way to write"):
        codec.encode(object())
