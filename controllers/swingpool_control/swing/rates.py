"""What arrives, over the last seconds where the load has just turned, over the router's whole window where it has not.

A window of many seconds holds still, but for as long as it lasts it shows a load that is over. A few seconds are quick,
but mostly chance. So the last seconds, as few of them as possible, count where they differ from the window by more than
chance explains.
"""

import math
from dataclasses import dataclass

from swingpool_control.figures import Unknown
from swingpool_control.observation import RouterObservation

SHORT_S = 4.0
"""The last seconds."""

LEAST_S = 0.9
"""A rate over less says nothing."""

CERTAIN = 3.0
"""Standard deviations of chance by which they must differ."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Totals:
    """What had arrived at a moment."""

    at_unix_s: float
    picker: str
    requests: float
    prompt_tokens: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Arriving:
    """What arrives."""

    requests_per_s: float
    prompt_tokens_per_s: float
    turned: bool
    """Whether it has just turned: means over the window are then of another load."""


def follow(totals: tuple[Totals, ...], router: RouterObservation) -> tuple[Totals, ...]:
    """Return the totals of the last seconds with the newest among them; none before a picker came, went or restarted.

    Args:
        totals: those before, oldest first.
        router: the newest observation.
    """
    requests, tokens = router.arrived_requests, router.arrived_prompt_tokens
    if isinstance(requests, Unknown) or isinstance(tokens, Unknown):
        return ()
    newest = Totals(at_unix_s=router.at_unix_s, picker=router.picker, requests=requests, prompt_tokens=tokens)
    if totals and newest.at_unix_s <= totals[-1].at_unix_s:
        return totals
    if totals and (totals[-1].picker != newest.picker or totals[-1].requests > newest.requests):
        totals = ()
    recent = tuple(one for one in totals if one.at_unix_s >= newest.at_unix_s - SHORT_S - 1e-3)
    return (*recent, newest)


def arriving(
    totals: tuple[Totals, ...], *, requests_per_s: float, prompt_tokens_per_s: float, spread: float
) -> Arriving:
    """Return what arrives.

    Args:
        totals: of the last seconds.
        requests_per_s: over the router's window.
        prompt_tokens_per_s: over the router's window.
        spread: variance over squared mean of what arrives in a time, times the requests in it (`spread`).
    """
    for before in reversed(totals[:-1]):
        past_s = totals[-1].at_unix_s - before.at_unix_s
        if past_s < LEAST_S:
            continue
        requests = (totals[-1].requests - before.requests) / past_s
        tokens = max(0.0, totals[-1].prompt_tokens - before.prompt_tokens) / past_s
        chance = CERTAIN * math.sqrt(spread / max(1.0, max(requests, requests_per_s) * past_s))
        if abs(tokens - prompt_tokens_per_s) > chance * max(tokens, prompt_tokens_per_s):
            return Arriving(requests_per_s=requests, prompt_tokens_per_s=tokens, turned=True)
    return Arriving(requests_per_s=requests_per_s, prompt_tokens_per_s=prompt_tokens_per_s, turned=False)


def spread(router: RouterObservation) -> float:
    """Return how widely prompt tokens scatter: burstiness of arrivals plus that of lengths; 2 if neither is known."""
    bursts = 1.0 if isinstance(router.arrival_scv, Unknown) else max(0.0, router.arrival_scv)
    return bursts + (1.0 if isinstance(router.lengths, Unknown) else router.lengths.prompt_scv)
