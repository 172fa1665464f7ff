"""From samples to a profile: the measurements that the fit takes, the link's line, and what they hold for."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import nnls

from swingpool.profiling.estimate import estimate, spread
from swingpool.profiling.plan import DECODE_ROOM, Kind, Point
from swingpool.profiling.worker_facts import WorkerFacts
from swingpool_control.engine.measured.point import MeasuredSet, Measurement

Samples = Mapping[Point, tuple[float, ...]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Link:
    """What moving KV cache costs beyond computing the last token, which every request does."""

    latency_s: float
    token_s: float
    """Per token of KV cache; zero if no more than noise was seen."""


def measured_set(samples: Samples, facts: WorkerFacts, *, max_batched_tokens: int, max_sequences: int) -> MeasuredSet:
    """Return the measurements of iterations, each the median of its samples."""
    points = [_measurement(point, taken) for point, taken in sorted(samples.items()) if point.kind is not Kind.TRANSFER]
    settings = ", ".join(f"{name} {value}" for name, value in facts.settings.items())
    return MeasuredSet(
        name=facts.model,
        points=tuple(points),
        source=f"Measured on a live worker: vLLM {facts.version}",
        licence="Apache-2.0",
        max_batched_tokens=max_batched_tokens,
        max_sequences=max_sequences,
        kv_capacity_tokens=facts.kv_capacity_tokens,
        notes=(
            f"Holds for vLLM {facts.version} with {settings}, at most {max_batched_tokens} tokens and "
            f"{max_sequences} sequences per iteration",
            f"Widest 95 % interval of a point: {max(estimate(taken).half_interval for taken in samples.values()):.1%}",
        ),
    )


def link(samples: Samples, decode_step_s: Callable[[int], float]) -> Link | None:
    """Return the line through the transfers, or None if there are fewer than two.

    Args:
        samples: of all points.
        decode_step_s: time to compute one token after a context of so many, which follows every transfer.
    """
    moved = [
        (point.prompt_tokens, estimate(taken).seconds)
        for point, taken in samples.items()
        if point.kind is Kind.TRANSFER
    ]
    if len(moved) < 2:
        return None
    tokens, seconds = np.array(moved, dtype=float).T
    rest = (seconds - np.array([decode_step_s(int(one)) for one in tokens])).clip(0)
    design: NDArray[np.float64] = np.column_stack([np.ones_like(tokens), tokens])
    # By relative error, and never below zero.
    (latency, token), _ = nnls(design / seconds[:, None], rest / seconds)
    return Link(latency_s=float(latency), token_s=float(token))


def spread_of_prompts(samples: Samples) -> tuple[float, ...]:
    """Return how times of computing a prompt spread around their medians, all lengths together; none of too few."""
    taken = [(estimate(times).seconds, times) for point, times in samples.items() if point.kind is Kind.PREFILL]
    return spread([one / median for median, times in taken for one in times if median > 0])


def _measurement(point: Point, taken: tuple[float, ...]) -> Measurement:
    # While sequences are measured their contexts grow; the mean of the stretch is what was read.
    context = point.context_tokens + DECODE_ROOM / 2 if point.sequences else 0.0
    return Measurement(
        seconds=estimate(taken).seconds,
        origin=point.name,
        prompts=1.0 if point.prompt_tokens else 0.0,
        prompt_tokens=float(point.prompt_tokens),
        sequences=float(point.sequences),
        context_tokens=context,
    )
