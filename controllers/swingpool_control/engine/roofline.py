"""First principles for what nobody measured: an iteration takes as long as its memory traffic or its arithmetic.

Every iteration reads the weights once. While it does, tokens up to a certain number are computed for nothing; each
further one costs its arithmetic: a knee of the iteration model. Decoding sequences read their contexts, attention
within prompts is arithmetic, and tensor parallelism exchanges activations twice per layer. Schedulers, launches and
poor kernels are not in it, so real engines are slower: `benchmarks.model_error` prints by how much.
"""

from swingpool_control.engine.assumed import LINK_LATENCY_S, STARTUP_S
from swingpool_control.engine.facts import AcceleratorFacts, ModelShape, source
from swingpool_control.engine.linear import StepCost
from swingpool_control.engine.profile import (
    FORMAT,
    Accelerator,
    FitError,
    KVCache,
    Layout,
    Profile,
    ProfileError,
    Provenance,
    Step,
    Transfer,
)

COMPUTE_SHARE = 0.6
"""Of the peak arithmetic rate that large matrix products reach: a rule of thumb."""
MEMORY_SHARE = 0.8
"""Of the peak memory rate that streaming reads reach: a rule of thumb."""
LINK_SHARE = 0.8
USABLE_MEMORY = 0.9
"""vLLM's default share of the accelerator's memory."""
ACTIVATION_BYTES = 2
ERROR = FitError(
    prefill_typical=0.317,
    prefill_p95=0.699,
    prefill_worst=0.893,
    decode_typical=0.45,
    decode_p95=0.795,
    decode_worst=0.862,
)
"""Over all measured sets, as `benchmarks.model_error` prints it; nearly always too fast."""


def step_cost(
    shape: ModelShape, facts: AcceleratorFacts, *, tensor_parallel_size: int = 1, weight_bytes: float = 2.0
) -> StepCost:
    """Return the coefficients that the peak rates allow.

    Args:
        shape: the model.
        facts: the accelerator.
        tensor_parallel_size: accelerators over which the model is spread evenly.
        weight_bytes: bytes per weight: 2 for BF16, 1 for FP8.
    """
    peak_flops = facts.fp8_flops if weight_bytes <= 1 and facts.fp8_flops else facts.bf16_flops
    flops = peak_flops * COMPUTE_SHARE * tensor_parallel_size
    bytes_per_s = facts.memory_bytes_per_s * MEMORY_SHARE * tensor_parallel_size
    base_s = shape.parameters * weight_bytes / bytes_per_s
    token_s = 2 * shape.parameters / flops
    free_tokens = base_s / token_s
    attention_flops = 4 * shape.layers * shape.heads * shape.head_size
    attention_rate = facts.bf16_flops * COMPUTE_SHARE * tensor_parallel_size
    exchanged_bytes = 2 * shape.layers * shape.hidden_size * ACTIVATION_BYTES
    exchanged_share = 2 * (tensor_parallel_size - 1) / tensor_parallel_size
    exchange_s = exchanged_bytes * exchanged_share / (facts.scale_up_bytes_per_s * LINK_SHARE)
    return StepCost(
        base_s=base_s,
        prefill_base_s=0.0,
        prefill_token_s=exchange_s,
        prefill_context_token2_s=attention_flops / attention_rate,
        sequence_s=exchange_s,
        context_token_s=kv_bytes_per_token(shape) / bytes_per_s,
        prefill_knee_tokens=round(free_tokens),
        prefill_over_token_s=token_s,
        sequence_knee=round(free_tokens),
        over_sequence_s=token_s,
    )


def kv_bytes_per_token(shape: ModelShape) -> int:
    """Return the bytes of one token's keys and values in 16 bits, over all layers."""
    return 2 * shape.layers * shape.kv_heads * shape.head_size * ACTIVATION_BYTES


def profile(
    shape: ModelShape,
    facts: AcceleratorFacts,
    *,
    name: str,
    models: tuple[str, ...],
    tensor_parallel_size: int = 1,
    weight_bytes: float = 2.0,
    max_batched_tokens: int = 8192,
    max_sequences: int = 1024,
) -> Profile:
    """Return the profile of a worker that nobody measured, marked as such.

    Raises:
        ProfileError: the weights leave no memory for a KV cache; says how many accelerators would.
    """
    usable = facts.memory_bytes * USABLE_MEMORY
    weights = shape.parameters * weight_bytes
    capacity = int((usable * tensor_parallel_size - weights) / kv_bytes_per_token(shape))
    if capacity < 1:
        raise ProfileError(
            f"{weights / 1e9:.0f} GB of weights do not fit into {tensor_parallel_size} x {facts.name}, of which "
            f"{usable / 1e9:.0f} GB each are usable; they need {int(weights // usable) + 1} or more"
        )
    cost = step_cost(shape, facts, tensor_parallel_size=tensor_parallel_size, weight_bytes=weight_bytes)
    return Profile(
        format=FORMAT,
        name=name,
        summary=f"{shape.name} on {tensor_parallel_size} x {facts.name}, from first principles; nobody measured it",
        models=list(models),
        accelerator=Accelerator(products=facts.products, count=tensor_parallel_size),
        layout=Layout(
            tensor_parallel_size=tensor_parallel_size,
            max_batched_tokens=max_batched_tokens,
            max_sequences=max_sequences,
        ),
        step=Step.of(cost),
        kv=KVCache(capacity_tokens=capacity, bytes_per_token=kv_bytes_per_token(shape)),
        transfer=Transfer(
            bytes_per_s=facts.scale_out_bytes_per_s * LINK_SHARE * tensor_parallel_size, latency_s=LINK_LATENCY_S
        ),
        startup_s=STARTUP_S,
        power=facts.power(tensor_parallel_size),
        provenance=Provenance(
            source=f"Roofline. {source('accelerators')}. {source('models')}",
            licence="Apache-2.0",
            measured=False,
            basis="roofline",
            error=ERROR,
            notes=[
                "The least time that the hardware allows: scheduling, launches and poor kernels come on top",
                "The error is that of rooflines against measurements of other models and accelerators",
                f"Assumed: {COMPUTE_SHARE:.0%} of the peak arithmetic rate, {MEMORY_SHARE:.0%} of the peak memory rate",
                f"Assumed: {LINK_SHARE:.0%} of the links' rates, {USABLE_MEMORY:.0%} of the memory",
                f"Assumed: link_latency_s {LINK_LATENCY_S:g}, startup_s {STARTUP_S:g}",
            ],
        ),
    )
