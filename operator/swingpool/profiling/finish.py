"""The end of a profiling run: fit, link, provenance, and the page of fit against points."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from swingpool.profiling import plot as page
from swingpool.profiling.estimate import pooled_spread
from swingpool.profiling.plan import Kind
from swingpool.profiling.result import Samples, link, measured_set, spread_of_prompts
from swingpool.profiling.worker_facts import WorkerFacts
from swingpool_control.engine import assumed, fitted
from swingpool_control.engine.model import decode_step_s
from swingpool_control.engine.profile import Profile, name_of

_FASTEST_LINK_BYTES_PER_S = 1e15
"""Stands for a link whose time per token was too short to be seen."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Described:
    """What the worker does not tell."""

    products: tuple[str, ...]
    accelerators: int
    tensor_parallel_size: int
    kv_bytes_per_token: float
    startup_s: float | None
    max_batched_tokens: int
    name: str | None = None
    seed: int = 0


def profile(
    samples: Samples, facts: WorkerFacts, described: Described, *, gaps_s: Iterable[Sequence[float]] = ()
) -> Profile:
    """Return the profile of a measured worker; `gaps_s` are its times between tokens, point by point.

    Raises:
        MeasurementError: there are too few points.
    """
    sequences = max((point.sequences for point in samples if point.kind is Kind.DECODE), default=1)
    measured = measured_set(samples, facts, max_batched_tokens=described.max_batched_tokens, max_sequences=sequences)
    moved = any(point.kind is Kind.TRANSFER for point in samples)
    guesses = [] if moved else [f"link {assumed.LINK_BYTES_PER_S:g} bytes/s after {assumed.LINK_LATENCY_S:g} s"]
    if described.startup_s is None:
        guesses.append(f"startup_s {assumed.STARTUP_S:g}")
    found = fitted.profile(
        measured,
        fitted.Described(
            name=described.name or name_of(facts.model, described.products[0]),
            models=(facts.model,),
            products=described.products,
            kv_bytes_per_token=described.kv_bytes_per_token,
            link_bytes_per_s=assumed.LINK_BYTES_PER_S,
            link_latency_s=assumed.LINK_LATENCY_S,
            startup_s=assumed.STARTUP_S if described.startup_s is None else described.startup_s,
            summary=f"{facts.model} on {described.products[0]}, measured on a live worker of vLLM {facts.version}",
            accelerators=described.accelerators,
            tensor_parallel_size=described.tensor_parallel_size,
            assumed=tuple(guesses),
        ),
        rng=np.random.default_rng(described.seed),
    )
    model = found.model()
    more: dict[str, Any] = {
        "itl_spread": [float(f"{factor:.4g}") for factor in pooled_spread(gaps_s)],
        "prefill_spread": [float(f"{factor:.4g}") for factor in spread_of_prompts(samples)],
    }
    line = link(samples, lambda context: decode_step_s(model, sequences=1, context_tokens=context))
    if line is not None:
        rate = described.kv_bytes_per_token / line.token_s if line.token_s else _FASTEST_LINK_BYTES_PER_S
        more["transfer"] = {"bytes_per_s": rate, "latency_s": line.latency_s}
    return Profile.model_validate(found.model_dump() | more)  # a copy would not be validated


def plot(path: Path, found: Profile, samples: Samples, facts: WorkerFacts, *, max_batched_tokens: int) -> None:
    """Write the page of fit against points."""
    points = measured_set(
        samples, facts, max_batched_tokens=max_batched_tokens, max_sequences=found.layout.max_sequences
    ).points
    page.write(path, found.model(), points, title=f"{found.name}: {found.summary}")
