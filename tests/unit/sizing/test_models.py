"""Which performance model each pool gets, and what is said if it gets none."""

from typing import Any

import pytest

from swingpool_control.api.v1alpha1 import InferenceClusterSpec
from swingpool_control.engine import profile
from swingpool_control.engine.model import PerformanceModel
from swingpool_control.figures import Unknown
from swingpool_control.sizing import models
from tests.unit.swing.fleet import spec


def model_of(wanted: InferenceClusterSpec, text: str | Unknown | None = None) -> PerformanceModel | Unknown:
    return models.of(wanted, config_map_text=text)["decode"]


def decode_s(model: PerformanceModel | Unknown) -> float:
    assert not isinstance(model, Unknown)
    return model.step_s(prefill_tokens=0, prefill_context_tokens=0, decode_sequences=8, decode_context_tokens=800)


def test_simulated_workers_without_a_profile_run_by_the_demo_profile() -> None:
    model = model_of(spec())
    assert not isinstance(model, Unknown)
    assert model.name == "demo"


def test_a_model_that_a_built_in_profile_fits_by_its_source() -> None:
    fitting = {"name": "chat", "source": "nvidia/Llama-3.1-8B-Instruct-FP8"}
    model = model_of(spec(model=fitting, engine={"type": "VLLM"}))
    assert not isinstance(model, Unknown)
    assert model.name == "llama-3.1-8b-fp8-h200"


def test_a_real_engine_without_a_fitting_profile_is_unknown_and_says_what_to_do() -> None:
    model = model_of(spec(engine={"type": "VLLM"}))
    assert isinstance(model, Unknown)
    assert model.why == "no built-in profile fits demo on any accelerator; set spec.profile"


def test_speedup_and_the_engines_limits_reach_the_model() -> None:
    fast = {"type": "Simulated", "simulated": {"speedup": "4"}}
    pools: list[dict[str, Any]] = [
        {"name": "prefill", "role": "Prefill"},
        {"name": "decode", "role": "Decode", "engine": {"maxBatchedTokens": 512, "maxSequences": 7}},
    ]
    model = model_of(spec(pools, engine=fast))
    assert not isinstance(model, Unknown)
    assert (model.max_batched_tokens, model.max_sequences) == (512, 7)
    assert decode_s(model) == pytest.approx(decode_s(model_of(spec())) / 4)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        (None, "was not read"),
        (Unknown("ConfigMap a/b cannot be read: NotFound"), "NotFound"),
        ("{", "not JSON"),
        ("{}", "format"),
    ],
)
def test_a_config_map_that_cannot_be_used(text: str | Unknown | None, why: str) -> None:
    model = model_of(spec(profile={"configMap": {"name": "mine"}}), text)
    assert isinstance(model, Unknown)
    assert why in model.why


def test_a_config_map_that_can() -> None:
    text = profile.built_in("llama-3.1-8b-fp8-h200").model_dump_json()
    model = model_of(spec(profile={"configMap": {"name": "mine"}}), text)
    assert not isinstance(model, Unknown)
    assert model.name == "llama-3.1-8b-fp8-h200"
