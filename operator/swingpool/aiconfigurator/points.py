"""AIConfigurator's estimates of iterations, as measurements that a profile can be fitted to.

They are sums of its tables of measured operators, not measurements of an engine, and are marked so.
"""

from collections.abc import Callable
from typing import Any

from swingpool_control.engine.measured.point import MeasuredSet, Measurement

PROMPTS = (64, 128, 256, 512, 1024, 2048, 4096, 8192, 16_384)
BATCHES = (1, 4, 16, 64, 128, 256)
CONTEXTS = (128, 512, 2048, 8192)
MIXED_BATCHES = (1, 16, 64, 128)
MIXED_PROMPTS = (256, 1024, 2048, 4096, 8192)
MEMORY_SHARE = 0.9
"""vLLM's default share of the accelerator's memory."""
MAX_BATCHED_TOKENS = 8192

Ask = Callable[[dict[str, Any]], dict[str, Any]]


def measured_set(
    ask: Ask,
    *,
    model: str,
    system: str,
    tensor_parallel_size: int = 1,
    backend: str = "vllm",
    memory_share: float = MEMORY_SHARE,
) -> tuple[MeasuredSet, float]:
    """Return estimates of prefill, decode and mixed iterations, and the bytes of one token's KV cache.

    Args:
        ask: `AIConfigurator.ask`, or what remembers its answers.
        model: the model, as AIConfigurator names it.
        system: the accelerator, as AIConfigurator names it, such as `h200_sxm`.
        tensor_parallel_size: accelerators of one worker.
        backend: the engine whose tables are used.
        memory_share: of the accelerator's memory, what the engine takes.

    Raises:
        AIConfiguratorError: it could not answer.
    """
    answer = ask(
        {
            "ask": "points",
            "model": model,
            "system": system,
            "backend": backend,
            "isl": PROMPTS[0],
            "osl": 2,
            "tensor_parallel_size": tensor_parallel_size,
            "prompts": PROMPTS,
            "batches": BATCHES,
            "contexts": CONTEXTS,
            "mixed_batches": MIXED_BATCHES,
            "mixed_prompts": MIXED_PROMPTS,
            "max_batched_tokens": MAX_BATCHED_TOKENS,
            "memory_share": memory_share,
        }
    )
    origin = f"AIConfigurator, {model} on {system}"
    found = MeasuredSet(
        name=f"{model}/{system}/tp{tensor_parallel_size}",
        points=tuple(Measurement(origin=origin, **point) for point in answer["points"]),
        source=(
            f"Estimates of AIConfigurator 0.12.0 from its tables of {backend} {answer['backend_version']} "
            f"operators measured on {system}"
        ),
        licence="Apache-2.0",
        measured=False,
        accelerators=tensor_parallel_size,
        tensor_parallel_size=tensor_parallel_size,
        max_batched_tokens=max(PROMPTS),
        max_sequences=max(BATCHES),
        kv_capacity_tokens=answer["kv_capacity_tokens"],
        notes=("Times are sums of operators' measured times; nobody measured whole iterations",),
    )
    return found, answer["kv_bytes_per_token"]
