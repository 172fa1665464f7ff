"""Performance models that are known exactly, for tests that find them again."""

from swingpool_control.engine.linear import LinearModel, StepCost

KNOWN = StepCost(
    base_s=5e-3,
    prefill_base_s=1e-2,
    prefill_token_s=2e-5,
    prefill_context_token2_s=1e-9,
    sequence_s=4e-5,
    context_token_s=3e-8,
)


def model_of(step: StepCost, *, budget: int) -> LinearModel:
    """Return a roomy worker whose iterations cost that much.

    Args:
        step: what an iteration costs.
        budget: tokens per iteration at most.
    """
    return LinearModel(
        name="known",
        step=step,
        kv_capacity_tokens=10**6,
        kv_bytes_per_token=1e5,
        max_batched_tokens=budget,
        max_sequences=1024,
        link_bytes_per_s=1e10,
        link_latency_s=0.0,
        startup_s=1.0,
    )
