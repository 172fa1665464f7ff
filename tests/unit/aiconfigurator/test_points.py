"""AIConfigurator's estimates as measurements: of all three phases, and marked as what nobody measured."""

from typing import Any

from swingpool.aiconfigurator import points
from swingpool_control.engine.measured.point import Phase


def answer(request: dict[str, Any]) -> dict[str, Any]:
    prefill = [{"seconds": 0.01 + n / 1e5, "prompts": 1, "prompt_tokens": n} for n in request["prompts"]]
    decode = [
        {"seconds": 0.005 + b / 1e4 + b * c / 1e8, "sequences": b, "context_tokens": c}
        for b in request["batches"]
        for c in request["contexts"]
    ]
    mixed = [
        {"seconds": 0.02 + n / 1e5, "sequences": b, "context_tokens": n, "prompts": 1, "prompt_tokens": n}
        for b in request["mixed_batches"]
        for n in request["mixed_prompts"]
    ]
    return {
        "points": prefill + decode + mixed,
        "backend_version": "0.24.0",
        "kv_capacity_tokens": 500_000,
        "kv_bytes_per_token": 131_072.0,
    }


def test_all_phases_are_there_and_nobody_measured_them() -> None:
    asked: list[dict[str, Any]] = []

    def ask(request: dict[str, Any]) -> dict[str, Any]:
        asked.append(request)
        return answer(request)

    found, kv_bytes = points.measured_set(ask, model="org/M-FP8", system="h200_sxm", tensor_parallel_size=2)
    assert (kv_bytes, found.kv_capacity_tokens, found.accelerators) == (131_072.0, 500_000, 2)
    assert not found.measured
    assert "vllm 0.24.0" in found.source
    assert all(found.of(phase) for phase in Phase)
    assert asked[0]["ask"] == "points"
    assert asked[0]["memory_share"] == points.MEMORY_SHARE
