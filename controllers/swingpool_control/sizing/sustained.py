"""The inverse of the queueing model: the most requests per second that n workers of a role sustain within an objective.

Sizing asks this for every pool, role and number of workers, again and again, so it is a closed form instead of the
sample that `queueing.predict` sends through; how far the two are apart is tested.

Prefill is a queue with n servers. The chance to wait is Erlang's C formula with servers and load both divided by the
arrivals' peakedness (Hayward's approximation); who waits does so for an exponential time whose mean grows with the
variability of arrivals and of service (Allen and Cunneen). Workers that find several prompts compute them together, so
service gets cheaper per prompt and longer per iteration as load grows. Decode is a processor-sharing queue: its batch
varies around its mean as the sum of all workers' sequences does, the more the longer steps get with it.
"""

import math
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray
from scipy.special import gammaincc, gammaln, ndtr, ndtri

from swingpool_control.engine.model import PerformanceModel, prefill_s
from swingpool_control.sizing.queueing import Group, prefill_rate
from swingpool_control.sizing.traffic import Lengths, Traffic

KV_FILL = 0.95
"""Share of the KV cache that batches may grow to at the percentile; beyond it requests wait or are preempted."""
_PROMPT_BINS = 24
_HALVINGS = 30
_PEAKEDNESS = 0.5
"""Of arrivals more variable than Poisson's, at servers whose times are exponential: 1 + this * (scv - 1)."""
_IMBALANCE = 0.3
"""Standard deviation of one worker's sequences around its part of all, since they are whole numbers."""

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Service:
    """What prompts ask of one worker."""

    alone_s: tuple[float, ...]
    """Seconds of prompts of each size, alone."""
    transfer_s: tuple[float, ...]
    weight: tuple[float, ...]
    """Share of each size."""
    full_s: float
    """Mean seconds per prompt in full iterations."""

    @property
    def mean_s(self) -> float:
        """Mean seconds of a prompt alone."""
        return math.fsum(weight * one for weight, one in zip(self.weight, self.alone_s, strict=True))

    @property
    def scv(self) -> float:
        """Squared coefficient of variation of those seconds."""
        square = math.fsum(weight * one * one for weight, one in zip(self.weight, self.alone_s, strict=True))
        return max(0.0, square / self.mean_s**2 - 1.0)


def prefill_rates(
    model: PerformanceModel, *, traffic: Traffic, level: float, ttft_s: float, handover_s: float, most: int
) -> tuple[float, ...]:
    """Return the most requests per second whose TTFT stays within an objective, with 1, 2, ... workers.

    Only prefill workers limit it; `traffic.requests_per_s` does not matter. Zero where a prompt alone takes too long.

    Args:
        model: the workers' model.
        traffic: lengths, burstiness and cached share.
        level: percentile, 0-1.
        ttft_s: the objective.
        handover_s: what of it goes to waiting for decode workers' steps; see `handover_s`. The transfer is added here.
        most: number of workers up to which rates are returned.
    """
    service = _service(Group(model=model, workers=1), traffic.lengths, traffic.cached_share)
    counts = _counts(most)
    highest = counts / service.full_s
    low, high = np.zeros_like(counts), highest
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        good = _within(service, traffic.arrival_scv, counts, middle, limit_s=ttft_s - handover_s) >= level
        low, high = np.where(good, middle, low), np.where(good, high, middle)
    return _all(counts, low, most)


def decode_rates(
    model: PerformanceModel, *, traffic: Traffic, level: float, itl_s: float, most: int
) -> tuple[float, ...]:
    """Return the most requests per second whose ITL stays within an objective, with 1, 2, ... workers.

    The KV cache and the engine's limit of sequences bound it too. Zero where a lone sequence is too slow.

    Args:
        model: the workers' model.
        traffic: lengths and burstiness.
        level: percentile, 0-1.
        itl_s: the objective.
        most: number of workers up to which rates are returned.
    """
    lengths = traffic.lengths
    context = max(1.0, lengths.mean_context_tokens)
    room = min(float(model.max_sequences), KV_FILL * model.kv_capacity_tokens / context)
    fits = min(room, _most_sequences(model, context, itl_s))
    counts = _counts(most)
    if fits < 1:
        return (0.0,) * most
    low, high = np.zeros_like(counts), np.full_like(counts, fits)
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        good = _at_percentile(model, traffic, counts, middle, level=level) <= fits
        low, high = np.where(good, middle, low), np.where(good, high, middle)
    step_s = np.array([_step_s(model, batch, context) for batch in low.tolist()])
    return _all(counts, counts * low / (step_s * max(1.0, lengths.mean_output_tokens)), most)


def handover_s(model: PerformanceModel, *, itl_s: float) -> float:
    """Return the time from a computed prompt to its first token on a decode worker whose steps take `itl_s`.

    The pull begins when the step under way ends; what was pulled joins the step after the one under way then; and that
    step gives the token. The transfer itself depends on the prompt and is not in it.
    """
    return 2.0 * max(itl_s, _step_s(model, 1.0, 1.0))


def _counts(most: int) -> Floats:
    """Return numbers of workers to compute for: all small ones, then ever wider apart."""
    found = [1]
    while found[-1] < most:
        found.append(min(most, max(found[-1] + 1, round(found[-1] * 1.15))))
    return np.array(found, dtype=np.float64)


def _all(counts: Floats, rates: Floats, most: int) -> tuple[float, ...]:
    """Return the rates of all numbers of workers; per worker they change smoothly."""
    every = np.arange(1, most + 1, dtype=np.float64)
    each = np.maximum.accumulate(np.interp(every, counts, rates / counts) * every)
    return tuple(each.tolist())


# Prefill


@lru_cache(maxsize=256)
def _service(one: Group, lengths: Lengths, cached_share: float) -> _Service:
    """Return what prompts ask of a worker, by at most so many sizes of about equal weight."""
    sizes = sorted((bin_.prompt_tokens, bin_.weight) for bin_ in lengths.bins)
    each = lengths.weight / _PROMPT_BINS
    groups: list[list[float]] = []
    for tokens, weight in sizes:
        if not groups or groups[-1][1] + weight / 2 > each:
            groups.append([0.0, 0.0])
        groups[-1][0] += tokens * weight
        groups[-1][1] += weight
    means = [max(1, round(total / weight)) for total, weight in groups]
    return _Service(
        alone_s=tuple(
            prefill_s(one.model, prompt_tokens=tokens, cached_tokens=round(tokens * cached_share)) for tokens in means
        ),
        transfer_s=tuple(one.model.transfer_s(tokens=tokens) for tokens in means),
        weight=tuple(weight / lengths.weight for _, weight in groups),
        full_s=1.0 / prefill_rate(one, Traffic(requests_per_s=1.0, lengths=lengths, cached_share=cached_share)),
    )


def _within(service: _Service, scv: float, counts: Floats, rates: Floats, *, limit_s: float) -> Floats:
    """Return the share of requests whose prompt is computed and moved within a time, by number of workers."""
    full = rates * service.full_s / counts
    # The more waits, the more is computed together: from each prompt alone to full iterations.
    together = service.mean_s + (service.full_s - service.mean_s) * full
    load = np.minimum(rates * together / counts, 1.0 - 1e-9)
    peaked = max(0.25, 1.0 + _PEAKEDNESS * (scv - 1.0))
    waits = _erlang_c(counts / peaked, counts * load / peaked)
    mean_wait_s = together * (scv + service.scv) / 2 / (counts * (1.0 - load))
    # Who waited shares an iteration with others that did.
    company_s = (service.mean_s - together) * service.mean_s / max(service.full_s, 1e-12)
    alone_s, transfer_s, weight = (np.array(one) for one in (service.alone_s, service.transfer_s, service.weight))
    left_s = (limit_s - alone_s - transfer_s)[:, None]
    spare_s = np.maximum(0.0, left_s - company_s)
    late = np.where(left_s < 0, 1.0, waits * np.exp(-spare_s / np.maximum(mean_wait_s, 1e-12)))
    share: Floats = weight @ (1.0 - late)
    return share


def _erlang_c(servers: Floats, offered: Floats) -> Floats:
    """Return Erlang's C, the chance to wait, for any positive number of servers; see Jagerman (1974) for fractions."""
    offered = np.maximum(offered, 1e-12)
    log_top = servers * np.log(offered) - offered - gammaln(servers + 1)
    blocked = np.exp(log_top) / np.maximum(gammaincc(servers + 1, offered), 1e-300)
    load = offered / servers
    chance: Floats = np.clip(blocked / np.maximum(1.0 - load * (1.0 - blocked), 1e-12), 0.0, 1.0)
    return chance


# Decode


def _step_s(model: PerformanceModel, sequences: float, context: float) -> float:
    """Return the duration of a step, also between whole numbers of sequences."""
    low = max(1, math.floor(sequences))
    share = max(0.0, sequences - low)
    seconds = [
        model.step_s(
            prefill_tokens=0,
            prefill_context_tokens=0,
            decode_sequences=count,
            decode_context_tokens=round(count * context),
        )
        for count in (low, low + 1)
    ]
    return seconds[0] + share * (seconds[1] - seconds[0])


def _most_sequences(model: PerformanceModel, context: float, itl_s: float) -> float:
    """Return the sequences with which a step takes `itl_s`; 0 if a lone one takes longer."""
    if _step_s(model, 1.0, context) > itl_s:
        return 0.0
    low, high = 1.0, float(model.max_sequences)
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        low, high = (middle, high) if _step_s(model, middle, context) <= itl_s else (low, middle)
    return low


def _at_percentile(
    model: PerformanceModel, traffic: Traffic, counts: Floats, mean_batch: Floats, *, level: float
) -> Floats:
    """Return a worker's sequences at a percentile over tokens, given their mean, by number of workers."""
    context = max(1.0, traffic.lengths.mean_context_tokens)
    one_s = _step_s(model, 1.0, context)
    slope_s = max(0.0, _step_s(model, float(model.max_sequences), context) - one_s) / max(1, model.max_sequences - 1)
    step_s = one_s + slope_s * np.maximum(0.0, mean_batch - 1.0)
    slowing = np.minimum(slope_s * mean_batch / step_s, 0.95)
    peaked = 1.0 + max(0.0, traffic.arrival_scv - 1.0) * _lasting(traffic.lengths)
    # Contexts differ: a sequence that reads more counts for more.
    variance = mean_batch * peaked / (1.0 - slowing) / counts
    over = variance / np.maximum(mean_batch, 1e-9)
    deviation = np.sqrt(variance + _IMBALANCE**2)
    at: Floats = mean_batch + over + float(ndtri(level)) * deviation
    return at


def _lasting(lengths: Lengths) -> float:
    """Return how far a burst of arrivals stays one while it is generated for: 1 if all answers are alike, else less.

    The integral of the squared share of answers longer than x, over the mean answer.
    """
    ordered = sorted((one.output_tokens, one.weight) for one in lengths.bins)
    left, before, total = lengths.weight, 0.0, 0.0
    for tokens, weight in ordered:
        total += (left / lengths.weight) ** 2 * (tokens - before)
        left, before = left - weight, tokens
    return min(1.0, total / lengths.mean_output_tokens) if lengths.mean_output_tokens > 0 else 1.0


# What is late


def late_prefills(
    model: PerformanceModel, *, traffic: Traffic, ttft_s: float, handover_s: float, most: int
) -> tuple[float, ...]:
    """Return the share of requests whose first token is late, with 1, 2, ... workers, at the traffic's own rate.

    Args:
        model: the workers' model.
        traffic: rate, lengths, burstiness and cached share.
        ttft_s: the objective.
        handover_s: what of it goes to waiting for decode workers' steps.
        most: number of workers up to which shares are returned.
    """
    service = _service(Group(model=model, workers=1), traffic.lengths, traffic.cached_share)
    counts = np.arange(1, most + 1, dtype=np.float64)
    rates = np.full_like(counts, traffic.requests_per_s)
    full = traffic.requests_per_s * service.full_s / counts >= 1.0
    within = _within(service, traffic.arrival_scv, counts, rates, limit_s=ttft_s - handover_s)
    return tuple(np.where(full, 1.0, 1.0 - within).tolist())


def late_decodes(model: PerformanceModel, *, traffic: Traffic, itl_s: float, most: int) -> tuple[float, ...]:
    """Return the share of tokens that come late, with 1, 2, ... workers, at the traffic's own rate.

    Args:
        model: the workers' model.
        traffic: rate, lengths and burstiness.
        itl_s: the objective.
        most: number of workers up to which shares are returned.
    """
    context = max(1.0, traffic.lengths.mean_context_tokens)
    room = min(float(model.max_sequences), KV_FILL * model.kv_capacity_tokens / context)
    fits = min(room, _most_sequences(model, context, itl_s))
    found = []
    for workers in range(1, most + 1):
        tokens_per_s = traffic.output_tokens_per_s / workers
        if fits < 1 or fits / _step_s(model, fits, context) <= tokens_per_s:
            found.append(1.0)
            continue
        low, high = 0.0, fits
        for _ in range(_HALVINGS):
            middle = (low + high) / 2
            enough = middle / _step_s(model, middle, context) >= tokens_per_s
            low, high = (low, middle) if enough else (middle, high)
        count, mean = np.array([float(workers)]), np.array([high])
        typical, above = (
            float(_at_percentile(model, traffic, count, mean, level=level)[0]) for level in (0.5, float(ndtr(1.0)))
        )
        found.append(float(ndtr((typical - fits) / max(1e-9, above - typical))))
    return tuple(found)
