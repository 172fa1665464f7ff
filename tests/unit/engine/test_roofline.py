"""The roofline: what the hardware allows, marked as what it is, and never faster with more work."""

import json
from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from swingpool_control.engine import facts, roofline
from swingpool_control.engine.model import decode_step_s, prefill_s
from swingpool_control.engine.profile import Profile, ProfileError, parse

SHAPES = [shape.name for shape in facts.shapes()]
ACCELERATORS = [found.name for found in facts.accelerators()]


def made(model: str = "qwen3-32b", accelerator: str = "h200", **changes: Any) -> Profile:
    arguments: dict[str, Any] = {"name": "made", "models": (model,), **changes}
    return roofline.profile(facts.shape(model), facts.accelerator(accelerator), **arguments)


def test_worked_by_hand() -> None:
    found = made(tensor_parallel_size=1)
    assert found.step.base_s == pytest.approx(32.8e9 * 2 / (4800e9 * 0.8), rel=1e-4)
    assert found.step.prefill_over_token_s == pytest.approx(2 * 32.8e9 / (989e12 * 0.6), rel=1e-4)
    assert found.step.prefill_knee_tokens == round(found.step.base_s / found.step.prefill_over_token_s)
    assert found.step.prefill_token_s == found.step.sequence_s == 0
    assert found.kv.bytes_per_token == 2 * 64 * 8 * 128 * 2
    assert found.step.context_token_s == pytest.approx(262_144 / (4800e9 * 0.8), rel=1e-4)
    assert found.kv.capacity_tokens == int((141e9 * 0.9 - 65.6e9) / 262_144)


def test_it_is_marked_and_survives_a_file() -> None:
    found = made()
    assert (found.provenance.measured, found.provenance.basis) == (False, "roofline")
    assert "nobody measured" in found.summary
    assert found.provenance.error == roofline.ERROR
    assert parse(found.model_dump_json(exclude_none=True), origin="made") == found


@given(
    model=st.sampled_from(SHAPES),
    accelerator=st.sampled_from(ACCELERATORS),
    tensor_parallel_size=st.sampled_from([1, 2, 4, 8]),
    weight_bytes=st.sampled_from([1.0, 2.0]),
)
def test_more_work_takes_longer_and_more_accelerators_less(
    model: str, accelerator: str, tensor_parallel_size: int, weight_bytes: float
) -> None:
    layout = {"tensor_parallel_size": tensor_parallel_size, "weight_bytes": weight_bytes}
    weights = facts.shape(model).parameters * weight_bytes
    assume(weights < 0.85 * facts.accelerator(accelerator).memory_bytes * tensor_parallel_size)
    found = made(model, accelerator, **layout).model()
    prefills = [prefill_s(found, prompt_tokens=n) for n in range(1, 20_000, 777)]
    decodes = [decode_step_s(found, sequences=s, context_tokens=s * 1000) for s in range(1, 1000, 37)]
    assert prefills == sorted(prefills)
    assert decodes == sorted(decodes)
    twice = made(model, accelerator, **{**layout, "tensor_parallel_size": 2 * tensor_parallel_size})
    assert twice.step.base_s < found.step.base_s
    assert twice.kv.capacity_tokens > found.kv_capacity_tokens


def test_fp8_reads_half_and_computes_twice_as_fast_where_it_can() -> None:
    half, whole = made(weight_bytes=1.0).step, made(weight_bytes=2.0).step
    assert half.base_s == pytest.approx(whole.base_s / 2, rel=1e-3)
    assert half.prefill_over_token_s == pytest.approx(whole.prefill_over_token_s * 989 / 1979, rel=1e-3)
    old = [made("llama-3.1-8b", "a100-80gb", weight_bytes=size).step for size in (1.0, 2.0)]
    assert old[0].prefill_over_token_s == old[1].prefill_over_token_s


def test_weights_that_do_not_fit() -> None:
    with pytest.raises(ProfileError, match=r"141 GB of weights do not fit into 1 x h200.* need 2 or more"):
        made("llama-3.1-70b")
    assert made("llama-3.1-70b", tensor_parallel_size=2).kv.capacity_tokens > 0


def test_facts_are_found_by_the_names_that_users_say() -> None:
    assert facts.accelerator("nvidia-h100-80gb-hbm3").name == "h100"
    assert facts.shape("Qwen/Qwen3-32B").name == "qwen3-32b"
    with pytest.raises(ProfileError, match="nothing is known of accelerator 'abacus'; known are a100-40gb"):
        facts.accelerator("abacus")
    with pytest.raises(ProfileError, match="the shape of model 'org/new' is not known; known are llama"):
        facts.shape("org/new")


CONFIG = {"num_hidden_layers": 28, "hidden_size": 3072, "num_attention_heads": 24, "num_key_value_heads": 8}


def config(**changes: Any) -> facts.ModelShape:
    data = json.dumps({**CONFIG, **changes}).encode()
    return facts.shape_of_config(data, origin="config.json", name="org/Small", parameters=3.2e9)


def test_a_shape_from_the_models_own_file() -> None:
    assert config().model_dump() == {
        "name": "Small",
        "models": ["org/Small"],
        "parameters": 3.2e9,
        "layers": 28,
        "hidden_size": 3072,
        "heads": 24,
        "kv_heads": 8,
        "head_size": 128,
    }
    assert config(num_key_value_heads=None).kv_heads == 24
    assert config(head_dim=64).head_size == 64


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"num_hidden_layers": 0}, r"config\.json, num_hidden_layers: must be a whole number, 1 or more, not 0"),
        ({"hidden_size": "big"}, r"config\.json, hidden_size: must be a whole number"),
        ({"num_experts": 64}, r"config\.json, num_experts: the roofline is of dense models"),
    ],
)
def test_files_of_which_there_is_no_roofline(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ProfileError, match=message):
        config(**changes)
    for data in (b"{", b"[]"):
        with pytest.raises(ProfileError, match=r"config\.json: "):
            facts.shape_of_config(data, origin="config.json", name="x", parameters=1)


def test_power_is_told_where_somebody_published_it() -> None:
    known = roofline.profile(
        facts.shape("llama-3.1-8b"), facts.accelerator("h100"), name="known", models=("m",), tensor_parallel_size=2
    )
    assert known.power is not None
    assert (known.power.idle_w, known.power.prefill_w, known.power.decode_w) == (150, 1400, 760)
    assert "Splitwise" in known.power.source
    unknown = roofline.profile(facts.shape("llama-3.1-8b"), facts.accelerator("h200"), name="unknown", models=("m",))
    assert unknown.power is None
