"""Traffic as the router shows it, held still: what workers sustain is computed anew only when it really differs."""

from swingpool_control.figures import Figure, Unknown
from swingpool_control.observation import RouterObservation
from swingpool_control.sizing.capacity import Shape
from swingpool_control.sizing.traffic import Lengths, Traffic, one_length

ALIKE = 0.05
"""Share by which mean lengths may differ from those planned with, and burstiness by five times that."""

CACHED_ALIKE = 0.05

MOST_SCV = 16.0


def of(router: RouterObservation | Unknown, *, shape: Shape, last: Traffic | None) -> Traffic:
    """Return the traffic to plan with, at a rate of one request per second.

    Args:
        router: what the router shows; a figure that it lacks is as it was, or as plain as can be: Poisson arrivals,
            nothing cached, all requests of the mean length.
        shape: mean lengths of the requests.
        last: what was planned with last.
    """
    known = None if isinstance(router, Unknown) else router
    now = Traffic(
        requests_per_s=1.0,
        lengths=_lengths(known, shape),
        arrival_scv=min(MOST_SCV, max(0.0, _figure(known, "arrival_scv", 1.0 if last is None else last.arrival_scv))),
        cached_share=_cached(known, 0.0 if last is None else last.cached_share),
    )
    return last if last is not None and _alike(last, now) else now


def _lengths(router: RouterObservation | None, shape: Shape) -> Lengths:
    if router is not None and not isinstance(router.lengths, Unknown):
        return router.lengths
    return one_length(prompt_tokens=shape.isl_tokens, output_tokens=shape.osl_tokens)


def _figure(router: RouterObservation | None, name: str, default: float) -> float:
    value: Figure = Unknown("no router") if router is None else getattr(router, name)
    return default if isinstance(value, Unknown) else value


def _cached(router: RouterObservation | None, default: float) -> float:
    cached = _figure(router, "cached_prompt_tokens_per_s", -1.0)
    arriving = _figure(router, "prompt_tokens_per_s", 0.0)
    if cached < 0 or arriving <= 0:
        return default
    return min(1.0, cached / arriving)


def _alike(one: Traffic, other: Traffic) -> bool:
    pairs = (
        (one.lengths.mean_prompt_tokens, other.lengths.mean_prompt_tokens, ALIKE),
        (one.lengths.mean_output_tokens, other.lengths.mean_output_tokens, ALIKE),
        (one.lengths.mean_context_tokens, other.lengths.mean_context_tokens, ALIKE),
        (1.0 + one.arrival_scv, 1.0 + other.arrival_scv, 5 * ALIKE),
    )
    near = all(abs(a - b) <= share * max(a, b) for a, b, share in pairs)
    return near and abs(one.cached_share - other.cached_share) <= CACHED_ALIKE
