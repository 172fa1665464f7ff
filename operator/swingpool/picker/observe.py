"""The picker's whole state as one value: what /state serves."""

import time

from swingpool.picker.fleet import Fleet
from swingpool.picker.traffic import Traffic
from swingpool.telemetry.vllm_page import Histogram
from swingpool.telemetry.windows import mean_of, percentiles_in, percentiles_of
from swingpool_control.figures import Figure, Unknown
from swingpool_control.observation import RouterObservation

LEAST_COVERED_S = 1.0
"""A rate over less than this says nothing."""


def observe(fleet: Fleet, traffic: Traffic, *, picker: str) -> RouterObservation:
    """Return what the picker sees now."""
    now_s = time.monotonic()
    arrivals, covered_s = traffic.recent_arrivals()
    prompt_tokens = float(sum(arrival.prompt_tokens for arrival in arrivals))
    return RouterObservation(
        picker=picker,
        at_unix_s=time.time(),
        window_s=traffic.window_s,
        requests_per_s=_rate(float(len(arrivals)), covered_s),
        prompt_tokens_per_s=_rate(prompt_tokens, covered_s),
        mean_isl_tokens=mean_of(prompt_tokens, len(arrivals), name="arrival"),
        mean_osl_tokens=mean_output_tokens(traffic.output_tokens.recent(now_s=now_s)),
        ttft_s=percentiles_of(traffic.ttft_s.recent(now_s=now_s), name="first token"),
        itl_s=percentiles_in(traffic.itl_s.recent(now_s=now_s), name="inter-token latency"),
        queued_requests=traffic.queued + fleet.dispatcher.queued,
        queued_prompt_tokens=fleet.dispatcher.queued_tokens,
        oldest_wait_s=fleet.dispatcher.oldest_wait_s(now_s),
        workers=tuple(worker.observation() for worker in fleet.workers()),
        arrival_scv=traffic.recent.arrival_scv(now_s=now_s),
        lengths=traffic.recent.lengths(now_s=now_s),
        cached_prompt_tokens_per_s=traffic.cached_per_s(covered_s=covered_s),
        arrived_requests=float(traffic.arrived_requests),
        arrived_prompt_tokens=float(traffic.arrived_prompt_tokens),
        deflected_prompt_tokens=float(traffic.deflected_prompt_tokens),
    )


def mean_output_tokens(histogram: Histogram) -> Figure:
    """Return the mean output length, without the requests of one token: nearly all of those are prefill legs."""
    ones = next((count for bound, count in zip(histogram.bounds, histogram.counts, strict=True) if bound == 1.0), None)
    if ones is None:
        return Unknown("no answer ended in the window" if not histogram.bounds else "the workers tell no bucket of 1")
    return mean_of(histogram.sum - ones, histogram.count - ones, name="answer of several tokens")


def _rate(total: float, covered_s: float) -> Figure:
    if covered_s < LEAST_COVERED_S:
        return Unknown(f"the picker has run for less than {LEAST_COVERED_S:g} s")
    return total / covered_s
