"""TTFT and ITL at a percentile, from traffic and workers of both roles; and the most traffic that workers sustain.

Queueing delay comes from prompts of different sizes that arrive in bursts, not from a constant factor.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass

from swingpool_control.engine.model import PerformanceModel
from swingpool_control.sizing.traffic import Traffic

LEVELS = (0.5, 0.9, 0.95, 0.99)
"""Percentiles that are predicted."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """Workers of one role that are alike."""

    model: PerformanceModel
    workers: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Prediction:
    """Latencies of traffic on workers; infinite where the workers cannot keep up."""

    ttft_s: Mapping[float, float]
    """By percentile, one of `LEVELS`."""
    itl_s: Mapping[float, float]
    prefill_load: float
    """Prompts that arrive over the most that the prefill workers compute; 1 and more is unstable."""
    decode_load: float
    """Requests that arrive over the most that the decode workers sustain with full batches."""


def predict(traffic: Traffic, *, prefill: tuple[Group, ...], decode: tuple[Group, ...]) -> Prediction:
    """Return latencies at each of `LEVELS`.

    Args:
        traffic: what comes in.
        prefill: prefill workers.
        decode: decode workers, to which each prompt's KV cache moves.
    """
    raise NotImplementedError


def prefill_capacity(
    model: PerformanceModel, *, workers: int, traffic: Traffic, level: float, ttft_s: float, handover_s: float
) -> float:
    """Return the most requests per second whose TTFT at a percentile stays within `ttft_s`; 0 if none does.

    Only the prefill workers limit it; `traffic.requests_per_s` does not matter.

    Args:
        model: the workers' model.
        workers: how many there are.
        traffic: lengths, burstiness and cached share.
        level: percentile, one of `LEVELS`.
        ttft_s: the objective.
        handover_s: what of it goes to the transfer's waiting and to the first step on a decode worker; see `handover`.
    """
    raise NotImplementedError


def decode_capacity(model: PerformanceModel, *, workers: int, traffic: Traffic, level: float, itl_s: float) -> float:
    """Return the most requests per second whose ITL at a percentile stays within `itl_s`; 0 if none does.

    The KV cache bounds it too: beyond what fits, requests wait or are preempted.

    Args:
        model: the workers' model.
        workers: how many there are.
        traffic: lengths and burstiness.
        level: percentile, one of `LEVELS`.
        itl_s: the objective.
    """
    raise NotImplementedError


def handover_s(model: PerformanceModel, *, itl_s: float) -> float:
    """Return the time from a computed prompt to its first token on a decode worker whose steps take `itl_s`.

    The pull begins when the step under way ends; what was pulled joins the step after the one under way then; and that
    step gives the token. The transfer itself depends on the prompt and is not in it.
    """
    if not math.isfinite(itl_s):
        return math.inf
    return 2.0 * itl_s
