"""TTFT and ITL at a percentile, from traffic and workers of both roles.

Queueing delay comes from prompts of different sizes that arrive in bursts, not from a constant factor: a fixed sample
of requests, the same each time, goes through the router's queue, the prefill workers' iterations, the transfer and the
decode workers' batches. That is a numeric solution of the queues, by requests instead of by tokens: a prediction is a
function of its inputs, and of two that differ in load the higher never looks better by chance.

A sample is too short for what a queue near saturation is in the long run. But what it lacks follows from the work that
its requests found, which is known for the long run too (`workload`), whatever the order and the batches: percentiles of
TTFT are brought from the one to the other. In the same way ITL follows from how many sequences decode workers hold in
the long run (`residents`).
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from swingpool_control.engine.model import PerformanceModel, decode_step_s
from swingpool_control.sizing import decode_batch, prefill_queue, residents, workload
from swingpool_control.sizing.decode_batch import Request
from swingpool_control.sizing.draws import LEAST_SCV, MOST_SCV, draws, uniform
from swingpool_control.sizing.prefill_queue import Computed, Order
from swingpool_control.sizing.traffic import Lengths, Traffic

LEVELS = (0.5, 0.9, 0.95, 0.99)
"""Percentiles that are predicted."""

SAMPLE = 10_000
"""Requests that a prediction of Poisson arrivals stands on; burstier ones need more for the same certainty."""
MOST_SAMPLE = 40_000

_SATURATED = 2000
"""Prompts whose rate is taken as that of a queue that never ends."""

_TURNS = 6
"""Full batches after which decode is taken as in its long run, if requests always wait."""

_LEAST_ALONE = 0.02
"""Share of a step that does not depend on the batch, at the least."""

_ROOMY = 0.9
"""Share of the KV cache up to which the engine's limit of sequences alone bounds a batch."""

WARM_UP = 0.1
"""Share of the sample that fills the queues and is not counted."""

Floats = NDArray[np.float64]


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


def predict(
    traffic: Traffic,
    *,
    prefill: Sequence[Group],
    decode: Sequence[Group],
    order: Order | None = None,
    hop_s: float = 0.001,
) -> Prediction:
    """Return latencies at each of `LEVELS`.

    Args:
        traffic: what comes in.
        prefill: prefill workers; at least one worker.
        decode: decode workers, to which each prompt's KV cache moves; at least one worker.
        order: in which prompts go; None is the router's own.
        hop_s: from the router to a worker.

    Raises:
        ValueError: a role has no worker.
    """
    compute = tuple(group for group in prefill if group.workers > 0)
    generate = tuple(group for group in decode if group.workers > 0)
    if not compute or not generate:
        raise ValueError("a prediction needs at least one worker of each role")
    return _predict(traffic, compute, generate, order or Order(), hop_s)


@lru_cache(maxsize=256)
def _predict(
    traffic: Traffic, prefill: tuple[Group, ...], decode: tuple[Group, ...], order: Order, hop_s: float
) -> Prediction:
    compute = sum(prefill_rate(group, traffic) for group in prefill)
    generate = [sustained_decode_rate(group.model, traffic) * group.workers for group in decode]
    loads = traffic.requests_per_s / compute, traffic.requests_per_s / sum(generate)
    if traffic.requests_per_s <= 0:
        return _predict(traffic.at_rate(1e-6 * min(compute, *generate)), prefill, decode, order, hop_s)
    if max(loads) >= 1:
        never = dict.fromkeys(LEVELS, math.inf)
        return Prediction(ttft_s=never, itl_s=never, prefill_load=loads[0], decode_load=loads[1])
    ttft_s, itl_s = _followed(traffic, prefill, decode, generate, order, hop_s=hop_s)
    found = _percentiles(ttft_s, np.ones(len(ttft_s)))
    longer = _in_the_long_run(traffic, prefill, work_s=1.0 / compute)
    return Prediction(
        ttft_s={level: longer[level] * value for level, value in found.items()},
        itl_s=itl_s,
        prefill_load=loads[0],
        decode_load=loads[1],
    )


def _followed(
    traffic: Traffic,
    prefill: tuple[Group, ...],
    decode: tuple[Group, ...],
    shares: list[float],
    order: Order,
    *,
    hop_s: float,
) -> tuple[Floats, dict[float, float]]:
    """Let the sample through; return TTFT, and percentiles of ITL."""
    count = sample_of(traffic)
    sample = draws(traffic.lengths, scv=traffic.arrival_scv, count=count)
    arrivals_s = [at / traffic.requests_per_s for at in sample.arrivals]
    prompts = prefilled(traffic, prefill, arrivals_s, sample.bins, order)
    before = uniform(count, stream=2)
    ready = sorted((at_s + 2 * hop_s, number) for number, at_s in enumerate(prompts.at_s))
    since = int(WARM_UP * count)
    ttft_s, parts = [], []
    for group, numbers in zip(decode, _dealt(ready, shares), strict=True):
        transfers = [group.model.transfer_s(tokens=round(one.prompt_tokens)) for one in traffic.lengths.bins]
        requests = [
            Request(
                at_s=at_s,
                prompt_tokens=traffic.lengths.bins[sample.bins[number]].prompt_tokens,
                output_tokens=max(1.0, traffic.lengths.bins[sample.bins[number]].output_tokens),
                transfer_s=transfers[sample.bins[number]],
                before=before[number],
                sender=prompts.worker[number],
            )
            for at_s, number in numbers
        ]
        generated = decode_batch.generate(group.model, group.workers, requests, since=int(WARM_UP * len(requests)))
        ttft_s += [
            first_s - arrivals_s[number]
            for first_s, (_, number) in zip(generated.first_s, numbers, strict=True)
            if number >= since
        ]
        parts.append(
            _Decoded(
                group=group,
                arrivals_s=sorted(arrivals_s[number] for _, number in numbers),
                ready_s=[at_s for at_s, _ in numbers],
                step_s=np.array(generated.step_s),
                tokens=np.array(generated.tokens),
            )
        )
    return np.array(ttft_s), _itl_s(traffic, parts)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Decoded:
    """What a group of decode workers did with a sample."""

    group: Group
    arrivals_s: list[float]
    ready_s: list[float]
    """When each request came, and when the group learnt of it; both ascending."""
    step_s: Floats
    tokens: Floats
    """Tokens that came in steps of that duration."""


def _itl_s(traffic: Traffic, parts: Sequence[_Decoded]) -> dict[float, float]:
    """Return percentiles of the steps of all groups, in the long run."""
    steps, tokens = (np.concatenate(one) for one in zip(*((part.step_s, part.tokens) for part in parts), strict=True))
    if not tokens.sum() > 0:
        return _percentiles(steps, tokens)
    longer = np.sum([part.tokens.sum() * np.array(_longer_s(traffic, part)) for part in parts], axis=0) / tokens.sum()
    found, longest_s = _percentiles(steps, tokens), float(steps.max())
    least_s = float(steps.min())
    return {
        level: min(longest_s, max(least_s, found[level] + more_s))
        for level, more_s in zip(LEVELS, longer.tolist(), strict=True)
    }


def _longer_s(traffic: Traffic, part: _Decoded) -> list[float]:
    """Return by level how much longer steps of a group are in the long run than with its sample."""
    if not part.tokens.sum() > 0:
        return [0.0] * len(LEVELS)
    model, lengths = part.group.model, traffic.lengths
    mean_s = float(np.average(part.step_s, weights=part.tokens))
    context = lengths.mean_context_tokens
    many = max(2, min(model.max_sequences, int(model.kv_capacity_tokens / max(1.0, context))))
    one_s, many_s = (
        decode_step_s(model, sequences=count, context_tokens=round(count * context)) for count in (1, many)
    )
    # A sequence stays for its steps, which its company makes longer; so a difference fades the more slowly.
    alone = min(1.0, max(_LEAST_ALONE, one_s / mean_s))
    fades_s = max(1.0, lengths.mean_output_tokens) * mean_s / alone
    beyond = residents.beyond_sample(
        part.arrivals_s,
        part.ready_s,
        # Requests are dealt in turns, so the gaps of a part are sums of gaps.
        scv=min(max(traffic.arrival_scv, LEAST_SCV), MOST_SCV) * len(part.ready_s) / sample_of(traffic),
        fades_s=fades_s,
        levels=LEVELS,
        since=int(WARM_UP * len(part.ready_s)),
    )
    return [one * (many_s - one_s) / (many - 1) / part.group.workers for one in beyond]


def _in_the_long_run(traffic: Traffic, prefill: tuple[Group, ...], *, work_s: float) -> dict[float, float]:
    """Return by level how many times as long a request takes in the long run as in the sample.

    Args:
        traffic: what comes in.
        prefill: the workers.
        work_s: how long a request keeps all of them busy, on the average.
    """
    work, alone_s, weights = prompt_work(prefill[0].model, traffic.lengths, traffic.cached_share)
    sample = draws(traffic.lengths, scv=traffic.arrival_scv, count=sample_of(traffic))
    scv = min(max(traffic.arrival_scv, LEAST_SCV), MOST_SCV)
    load, drawn = traffic.requests_per_s * work_s, np.array(sample.bins)
    long = workload.sojourns(work, alone_s / work_s, weights, scv=scv, load=load, levels=LEVELS)
    short = workload.found_sojourns(
        np.diff(np.array(sample.arrivals), prepend=0.0) / traffic.requests_per_s,
        work_s * work[drawn],
        alone_s[drawn],
        levels=LEVELS,
        since=int(WARM_UP * len(drawn)),
    )
    return {level: work_s * one / other for level, one, other in zip(LEVELS, long, short, strict=True)}


def prompt_work(model: PerformanceModel, lengths: Lengths, cached_share: float) -> tuple[Floats, Floats, Floats]:
    """Return by bin the work of a prompt over the mean, its seconds alone, and its weight."""
    prompts = [prefill_queue.prompt(model, tokens=one.prompt_tokens, cached_share=cached_share) for one in lengths.bins]
    weights = np.array([one.weight for one in lengths.bins])
    weights /= weights.sum()
    work = np.array([one.beside_s + one.base_share_s for one in prompts])
    return work / float(weights @ work), np.array([one.work_s for one in prompts]), weights


def prefilled(
    traffic: Traffic, prefill: tuple[Group, ...], arrivals_s: Sequence[float], bins: Sequence[int], order: Order
) -> Computed:
    """Return when and where each prompt of a sample is computed.

    Args:
        traffic: whose lengths the sample has.
        prefill: the workers.
        arrivals_s: when each prompt arrives, ascending.
        bins: of which bin of the lengths each is.
        order: in which they go.
    """
    model = prefill[0].model
    prompts = [
        prefill_queue.prompt(model, tokens=one.prompt_tokens, cached_share=traffic.cached_share)
        for one in traffic.lengths.bins
    ]
    servers = [group.model for group in prefill for _ in range(group.workers)]
    return prefill_queue.computed(servers, arrivals_s, bins, prompts, order)


def _dealt(ready: list[tuple[float, int]], shares: list[float]) -> list[list[tuple[float, int]]]:
    """Deal requests to groups of decode workers, to each by its share."""
    if len(shares) == 1:
        return [ready]
    dealt: list[list[tuple[float, int]]] = [[] for _ in shares]
    for one in ready:
        fewest = min(range(len(shares)), key=lambda group: (len(dealt[group]) + 1) / shares[group])
        dealt[fewest].append(one)
    return dealt


def sample_of(traffic: Traffic) -> int:
    """Return how many requests a prediction of such traffic stands on."""
    return min(MOST_SAMPLE, round(SAMPLE * (1.0 + traffic.arrival_scv)))


def prefill_rate(group: Group, traffic: Traffic) -> float:
    """Return the most requests per second whose prompts the workers compute, with a queue that never ends."""
    return group.workers * _prefill_rate(Group(model=group.model, workers=1), traffic.lengths, traffic.cached_share)


@lru_cache(maxsize=256)
def _prefill_rate(one: Group, lengths: Lengths, cached_share: float) -> float:
    traffic = Traffic(requests_per_s=1.0, lengths=lengths, cached_share=cached_share)
    sample = draws(lengths, scv=1.0, count=_SATURATED)
    ends_s = prefilled(traffic, (one,), [0.0] * _SATURATED, sample.bins, Order(age_s=0.0)).at_s
    return _SATURATED / max(ends_s)


def decode_rate(model: PerformanceModel, traffic: Traffic) -> float:
    """Return the most requests per second that one worker takes: its batch, its KV cache or its link is full then."""
    lengths = traffic.lengths
    most = max(1, min(model.max_sequences, int(model.kv_capacity_tokens / max(1.0, lengths.mean_context_tokens))))
    step_s = decode_step_s(model, sequences=most, context_tokens=round(most * lengths.mean_context_tokens))
    return min(most / (step_s * max(1.0, lengths.mean_output_tokens)), 1.0 / mean_transfer_s(model, lengths))


def sustained_decode_rate(model: PerformanceModel, traffic: Traffic) -> float:
    """Return the requests per second that one worker takes if more always wait.

    Where KV cache bounds the batch that is less than a full batch would do: contexts outgrow it, and are computed anew.
    """
    most = decode_rate(model, traffic)
    if model.max_sequences * traffic.lengths.mean_context_tokens <= _ROOMY * model.kv_capacity_tokens:
        return most
    return min(most, _sustained_decode_rate(model, traffic.lengths))


@lru_cache(maxsize=256)
def _sustained_decode_rate(model: PerformanceModel, lengths: Lengths) -> float:
    batch = max(1, int(model.kv_capacity_tokens / max(1.0, lengths.mean_context_tokens)))
    requests = [
        Request(
            at_s=0.0,
            prompt_tokens=lengths.bins[drawn].prompt_tokens,
            output_tokens=max(1.0, lengths.bins[drawn].output_tokens),
            transfer_s=model.transfer_s(tokens=round(lengths.bins[drawn].prompt_tokens)),
            before=0.0,
            sender=number,
        )
        for number, drawn in enumerate(draws(lengths, scv=1.0, count=_TURNS * batch).bins)
    ]
    first_s = decode_batch.generate(model, 1, requests, since=0).first_s
    return (len(first_s) - 2 * batch) / (first_s[-1] - first_s[2 * batch - 1])


def mean_transfer_s(model: PerformanceModel, lengths: Lengths) -> float:
    """Return the mean seconds for which a prompt's KV cache keeps a worker's link busy."""
    total = math.fsum(one.weight * model.transfer_s(tokens=round(one.prompt_tokens)) for one in lengths.bins)
    return max(1e-12, total / lengths.weight)


def _percentiles(values: Floats, weights: Floats) -> dict[float, float]:
    """Return weighted percentiles; 0 of nothing."""
    if not len(values):
        return dict.fromkeys(LEVELS, 0.0)
    order = np.argsort(values)
    below = np.cumsum(weights[order])
    found = np.searchsorted(below, np.array(LEVELS) * below[-1])
    return {level: float(values[order[at]]) for level, at in zip(LEVELS, found.tolist(), strict=True)}
