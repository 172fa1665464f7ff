"""vLLM's metrics that Swingpool reads, by what they mean and by the versions that have them under which name.

Read from the same wheels as `versions`; the pages of the versions that run in the tests are compared with it.
"""

from dataclasses import dataclass
from enum import StrEnum

from swingpool_control.vllm.versions import Span, Version


class Kind(StrEnum):
    """How a series behaves."""

    GAUGE = "gauge"
    COUNTER = "counter"
    """Restarts at zero with its process."""
    HISTOGRAM = "histogram"
    INFO = "info"


@dataclass(frozen=True, slots=True, kw_only=True)
class Name:
    """One name of a metric."""

    name: str
    span: Span


@dataclass(frozen=True, slots=True, kw_only=True)
class Metric:
    """One metric. Series of several engines (data parallel ranks, label `engine`) add up, but for shares."""

    meaning: str
    kind: Kind
    names: tuple[Name, ...]
    """Newest first."""
    mean: bool = False
    """Whether engines' values are averaged: shares cannot be added."""

    def name(self, version: Version) -> str | None:
        """Return its name in a version, or None if that has no such metric."""
        return next((one.name for one in self.names if version in one.span), None)


def _span(since: int = 11, until: int | None = None) -> Span:
    return Span(Version(0, since), None if until is None else Version(0, until))


def _metric(meaning: str, kind: Kind, name: str, since: int = 11, *, mean: bool = False) -> Metric:
    return Metric(meaning=meaning, kind=kind, names=(Name(name=name, span=_span(since)),), mean=mean)


METRICS: dict[str, Metric] = {
    "running": _metric("requests in the batch", Kind.GAUGE, "vllm:num_requests_running"),
    "waiting": _metric("requests that wait for the batch", Kind.GAUGE, "vllm:num_requests_waiting"),
    "kv_usage": Metric(
        meaning="share of the KV cache in use",
        kind=Kind.GAUGE,
        # 0.11 has both; the old one went with 0.12.
        names=(
            Name(name="vllm:kv_cache_usage_perc", span=_span()),
            Name(name="vllm:gpu_cache_usage_perc", span=_span(11, 12)),
        ),
        mean=True,
    ),
    "prompt_tokens": _metric("prompt tokens processed", Kind.COUNTER, "vllm:prompt_tokens"),
    "generated_tokens": _metric("tokens generated", Kind.COUNTER, "vllm:generation_tokens"),
    "by_source": _metric(
        "prompt tokens by where their KV cache came from", Kind.COUNTER, "vllm:prompt_tokens_by_source", 16
    ),
    "preemptions": _metric("preemptions", Kind.COUNTER, "vllm:num_preemptions"),
    "ttft": _metric("time to first token, s", Kind.HISTOGRAM, "vllm:time_to_first_token_seconds"),
    "itl": Metric(
        meaning="time between two tokens, s",
        kind=Kind.HISTOGRAM,
        names=(
            Name(name="vllm:inter_token_latency_seconds", span=_span()),
            Name(name="vllm:time_per_output_token_seconds", span=_span(11, 15)),
        ),
    ),
    "output_tokens": _metric("lengths of answers, tokens", Kind.HISTOGRAM, "vllm:request_generation_tokens"),
    "prompt_lengths": _metric("lengths of prompts, tokens", Kind.HISTOGRAM, "vllm:request_prompt_tokens"),
    "prefill_time": _metric("from batch to first token, s", Kind.HISTOGRAM, "vllm:request_prefill_time_seconds"),
    "iterations": _metric("tokens of each iteration", Kind.HISTOGRAM, "vllm:iteration_tokens_total"),
    "cache_info": _metric("the KV cache's layout", Kind.INFO, "vllm:cache_config_info"),
    "transfer_failures": _metric("pulls that failed", Kind.COUNTER, "vllm:nixl_num_failed_transfers", 12),
    "transfer_time": _metric("time of a pull, s", Kind.HISTOGRAM, "vllm:nixl_xfer_time_seconds", 12),
    "expired_leases": _metric("prompts nobody fetched in time", Kind.COUNTER, "vllm:nixl_num_kv_expired_reqs", 15),
}
"""By Swingpool's own short names."""


def names_of(key: str) -> tuple[str, ...]:
    """Return all names that a metric ever had, newest first, for whoever reads a page of an unknown version."""
    return tuple(one.name for one in METRICS[key].names)


@dataclass(frozen=True, slots=True, kw_only=True)
class Percentile:
    """A percentile read from a histogram: it lies between two bounds, and nothing says where."""

    value: float
    """By straight interpolation between the bounds."""
    least: float
    most: float

    @property
    def error(self) -> float:
        """How far the value may be off, in its own unit; infinite in the last bucket."""
        return max(self.value - self.least, self.most - self.value)


def percentile(bounds: tuple[float, ...], counts: tuple[float, ...], share: float) -> Percentile | None:
    """Return a percentile of a cumulative histogram, or None if it holds nothing.

    Args:
        bounds: upper bounds of the buckets, ascending; the last may be infinite.
        counts: values at or under each.
        share: 0 to 1; 0.95 is the 95th percentile.

    Raises:
        ValueError: `share` is outside, or the lengths differ.
    """
    if not 0 <= share <= 1:
        raise ValueError(f"a percentile's share must be within 0 and 1, not {share}")
    total = counts[-1] if counts else 0.0
    if total <= 0:
        return None
    rank = share * total
    least, below = 0.0, 0.0
    for bound, count in zip(bounds, counts, strict=True):
        if count >= rank and count > below:
            # Nothing above the last finite bound is known but that it is above.
            value = least if bound == float("inf") else least + (bound - least) * (rank - below) / (count - below)
            return Percentile(value=value, least=least, most=bound)
        least, below = bound, count
    return None
