"""Profiles: what is built in, what is chosen, and what a broken one is told."""

import json
from typing import Any

import pytest

from swingpool_control.engine import profile
from swingpool_control.engine.profile import ProfileError


def good() -> dict[str, Any]:
    return json.loads(profile.built_in("demo").model_dump_json())  # type: ignore[no-any-return]


def test_every_built_in_profile_loads_and_says_where_it_comes_from() -> None:
    assert profile.built_in_names() == ("demo", "llama-3.1-8b-fp8-h200")
    for name in profile.built_in_names():
        built_in = profile.built_in(name)
        assert built_in.name == name
        assert built_in.provenance.source
        assert built_in.provenance.licence == "Apache-2.0"
        assert built_in.model().kv_capacity_tokens == built_in.kv.capacity_tokens


def test_measured_and_invented_are_told_apart() -> None:
    assert not profile.built_in("demo").provenance.measured
    measured = profile.built_in("llama-3.1-8b-fp8-h200").provenance
    assert measured.measured
    assert measured.fitted.prompt_tokens == (100, 16372)
    assert measured.error.prefill_worst == 0.096


@pytest.mark.parametrize(
    ("model", "product", "chosen"),
    [
        ("nvidia/Llama-3.1-8B-Instruct-FP8", "NVIDIA-H200", "llama-3.1-8b-fp8-h200"),
        ("llama-3.1-8b-instruct-fp8", "nvidia-h200", "llama-3.1-8b-fp8-h200"),
        ("/models/Llama-3.1-8B-Instruct-FP8", None, "llama-3.1-8b-fp8-h200"),
        ("nvidia/Llama-3.1-8B-Instruct-FP8", "NVIDIA-L4", None),
        ("Qwen/Qwen3-32B", "NVIDIA-H200", None),
        ("demo", None, None),
    ],
)
def test_the_choice_by_model_and_accelerator(model: str, product: str | None, chosen: str | None) -> None:
    found = profile.choose(model=model, product=product)
    assert (found.name if found else None) == chosen


def test_the_engines_own_limits_go_before_the_profiles() -> None:
    model = profile.built_in("demo").model(max_batched_tokens=77, max_sequences=7)
    assert (model.max_batched_tokens, model.max_sequences) == (77, 7)


@pytest.mark.parametrize(
    ("path", "value", "message"),
    [
        (("step", "base_s"), 0, r"step\.base_s: Input should be greater than 0"),
        (("step", "sequence_s"), -1, r"step\.sequence_s: Input should be greater than or equal to 0"),
        (("step", "sequence_ms"), 1, r"step\.sequence_ms: Extra inputs are not permitted"),
        (("kv", "capacity_tokens"), 0, r"kv\.capacity_tokens"),
        (("transfer", "bytes_per_s"), "fast", r"transfer\.bytes_per_s: Input should be a valid number"),
        (("name",), "Has Spaces", r"name: String should match pattern"),
        (("format",), "swingpool-profile/v9", r"format is 'swingpool-profile/v9'; this version reads"),
        (("accelerator",), None, r"accelerator"),
    ],
)
def test_a_broken_profile_is_told_where(path: tuple[str, ...], value: object, message: str) -> None:
    data = good()
    part = data
    for name in path[:-1]:
        part = part[name]
    part[path[-1]] = value
    with pytest.raises(ProfileError, match=message) as caught:
        profile.parse(json.dumps(data), origin="mine.json")
    assert str(caught.value).startswith("profile mine.json: ")


@pytest.mark.parametrize("text", ["", "{", "[]", b"\xff\xfe"])
def test_what_is_no_profile_at_all(text: str | bytes) -> None:
    with pytest.raises(ProfileError, match=r"profile x: (not JSON|must be a JSON object)"):
        profile.parse(text, origin="x")


def test_an_infinite_coefficient_is_refused() -> None:
    text = json.dumps(good()).replace(str(good()["step"]["prefill_token_s"]), "1e999")
    with pytest.raises(ProfileError, match=r"step\.prefill_token_s"):
        profile.parse(text, origin="x")


def test_an_unknown_name_lists_the_known_ones() -> None:
    with pytest.raises(ProfileError, match="there are demo, llama"):
        profile.built_in("nope")


def test_the_second_version_adds_a_curve_and_power() -> None:
    data = good() | {
        "format": "swingpool-profile/v2",
        "power": {"idle_w": 100, "prefill_w": 600, "decode_w": 400, "source": "measured here"},
    }
    data["step"]["prefill_curve"] = {"sizes": [100, 1000], "seconds": [0.01, 0.2]}
    found = profile.parse(json.dumps(data), origin="new")
    assert found.power is not None
    curve = found.model().step.prefill_curve
    assert curve is not None
    assert curve.at(1000) == 0.2
    assert profile.parse(found.model_dump_json(), origin="again") == found
    old = good() | {"power": data["power"]}
    with pytest.raises(ProfileError, match=r"came with swingpool-profile/v2; the file says swingpool-profile/v1"):
        profile.parse(json.dumps(old), origin="old")


@pytest.mark.parametrize(
    ("prefill", "decode", "watts"),
    [(0, 0, 100), (1, 0, 600), (0, 1, 400), (0.5, 0, 350), (0.5, 0.5, 500), (1, 1, 500), (7, 0, 600), (-1, 0, 100)],
)
def test_power_follows_the_load(prefill: float, decode: float, watts: float) -> None:
    power = profile.Power(idle_w=100, prefill_w=600, decode_w=400, source="invented")
    assert power.watts(prefill_load=prefill, decode_load=decode) == pytest.approx(watts)


def test_a_worker_that_draws_less_when_busy_is_refused() -> None:
    with pytest.raises(ValueError, match="decode_w is 50, less than idle_w, 100"):
        profile.Power(idle_w=100, prefill_w=600, decode_w=50, source="invented")


def test_a_falling_curve_is_told_by_its_place() -> None:
    data = good() | {"format": "swingpool-profile/v2"}
    data["step"]["prefill_curve"] = {"sizes": [100, 1000], "seconds": [0.2, 0.1]}
    with pytest.raises(ProfileError, match=r"step\.prefill_curve: .*must not fall"):
        profile.parse(json.dumps(data), origin="new")
