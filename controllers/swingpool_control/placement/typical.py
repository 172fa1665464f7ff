"""A worker of which no performance profile is known: about what one accelerator does with a small model.

What such a worker really takes is learnt from its first answers; see `Account.slowness`.
"""

from swingpool_control.engine.linear import LinearModel, StepCost

TYPICAL = LinearModel(
    name="typical",
    step=StepCost(
        base_s=5e-3,
        prefill_base_s=5e-3,
        prefill_token_s=5e-5,
        prefill_context_token2_s=1e-9,
        sequence_s=5e-5,
        context_token_s=5e-8,
    ),
    kv_capacity_tokens=200_000,
    kv_bytes_per_token=131_072,
    max_batched_tokens=8192,
    max_sequences=256,
    link_bytes_per_s=1e10,
    link_latency_s=0.005,
    startup_s=60.0,
)
"""Round figures between the built-in profiles; nobody measured it."""
