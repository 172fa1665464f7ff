"""Described loads: rates, burstiness, mixes, seeds, and what is said of descriptions that cannot be used."""

import itertools
import statistics
from pathlib import Path
from typing import Any

import pytest
import yaml

from swingpool.traffic.lines import TrafficError
from swingpool.traffic.read import read
from swingpool.traffic.synthetic import Load, Seeds, draw, load
from swingpool_control.simulation.traffic import Arrival

KIND = {"promptTokens": 100, "outputTokens": 10}


def drawn(phases: list[dict[str, Any]], *, arrivals: int = 1, lengths: int = 1, **parts: Any) -> list[Arrival]:
    described = Load.model_validate({"phases": phases, **parts})
    return list(draw(described, Seeds(arrivals=arrivals, lengths=lengths)))


def phase(**parts: Any) -> dict[str, Any]:
    return {"seconds": 1000, "requestsPerSecond": 10, "mix": [KIND], **parts}


@pytest.mark.parametrize(("arrivals", "variation"), [("poisson", 1.0), ({"gamma": 3}, 3.0), ({"gamma": 0.5}, 0.5)])
def test_arrivals_have_their_rate_and_variation(arrivals: Any, variation: float) -> None:
    found = drawn([phase(arrivals=arrivals, seconds=4000)])
    gaps = [two.at_s - one.at_s for one, two in itertools.pairwise(found)]
    assert len(found) == pytest.approx(40_000, rel=0.05)
    assert statistics.stdev(gaps) / statistics.mean(gaps) == pytest.approx(variation, rel=0.05)


def test_a_ramp_has_its_rate_at_every_time() -> None:
    found = drawn([phase(requestsPerSecond={"from": 0, "to": 20})])
    halves = sum(one.at_s < 500 for one in found), sum(one.at_s >= 500 for one in found)
    assert halves[0] == pytest.approx(2500, rel=0.06)
    assert halves[1] == pytest.approx(7500, rel=0.06)
    down = drawn([phase(requestsPerSecond={"from": 20, "to": 0})])
    assert all(0 <= one.at_s < 1000 for one in down)
    assert len(down) == pytest.approx(10_000, rel=0.05)


def test_uniform_arrivals_are_evenly_spaced_and_phases_follow_one_another() -> None:
    silent = phase(seconds=5, requestsPerSecond=0)
    found = drawn([phase(seconds=1, arrivals="uniform"), silent], repeat=2)
    assert [round(one.at_s, 6) for one in found] == [
        round(begin + number / 10, 6) for begin in (0, 6) for number in range(1, 10)
    ]


def test_a_mix_has_its_shares_and_lengths() -> None:
    long = {"weight": 3, "promptTokens": {"mean": 500, "sigma": 0.5, "max": 2000}, "outputTokens": {"from": 5, "to": 9}}
    found = drawn([phase(mix=[KIND, long])])
    others = [one for one in found if one.output_tokens != 10]
    assert len(others) / len(found) == pytest.approx(0.75, abs=0.02)
    assert statistics.mean(one.prompt_tokens for one in others) == pytest.approx(500, rel=0.05)
    assert max(one.prompt_tokens for one in others) <= 2000
    assert {one.output_tokens for one in others} == {5, 6, 7, 8, 9}


def test_shared_prefixes_come_in_groups() -> None:
    shared = {**KIND, "sharedPrefix": {"groups": 4, "tokens": 512}}
    found = drawn([phase(mix=[shared, KIND], seconds=50)])
    with_prefix = [one for one in found if one.prefix]
    assert len({one.prefix for one in with_prefix}) == 4
    assert {one.prompt_tokens for one in with_prefix} == {612}


def test_seeds_are_separate() -> None:
    mixed = [phase(seconds=20, mix=[{"promptTokens": {"from": 1, "to": 1000}, "outputTokens": 1}])]
    base, other_lengths = drawn(mixed), drawn(mixed, lengths=2)
    assert base == drawn(mixed)
    assert [one.at_s for one in base] == [one.at_s for one in other_lengths]
    assert [one.prompt_tokens for one in base] != [one.prompt_tokens for one in other_lengths]
    other_arrivals = drawn(mixed, arrivals=2)
    pairs = zip(base, other_arrivals, strict=False)
    assert all(one.prompt_tokens == two.prompt_tokens and one.at_s != two.at_s for one, two in pairs)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ({}, "phases: Field required"),
        ({"phases": [phase(secnds=3)]}, "phases.0.secnds: Extra inputs"),
        ({"phases": [phase(mix=[{**KIND, "outputTokens": 0}])]}, "phases.0.mix.0.outputTokens"),
        ({"phases": [phase(mix=[{**KIND, "outputTokens": {"mean": 3, "from": 1, "to": 2}}])]}, "give either mean"),
        ({"phases": [phase(mix=[{**KIND, "outputTokens": {"from": 3, "to": 2}}])]}, "from is above to"),
        ({"phases": [phase(mix=[{**KIND, "sharedPrefix": {"groups": 1, "tokens": 100}}])]}, "multiple of 16"),
    ],
)
def test_what_is_wrong_is_named(tmp_path: Path, content: dict[str, Any], message: str) -> None:
    path = tmp_path / "load.yaml"
    path.write_text(yaml.safe_dump(content))
    with pytest.raises(TrafficError, match=rf"load\.yaml: .*{message}"):
        load(path)


def test_broken_yaml_is_named_by_line_and_column(tmp_path: Path) -> None:
    path = tmp_path / "load.yaml"
    path.write_text("phases:\n- {seconds: 3\n")
    with pytest.raises(TrafficError, match=r"load\.yaml, line \d, column \d+: not YAML"):
        list(read(path, seeds=Seeds(1, 1)))
