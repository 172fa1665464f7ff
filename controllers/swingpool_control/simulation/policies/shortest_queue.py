"""Placement at once, by the shortest queue: what the simulated policies have that are not given the live placement.

Prefill goes where the fewest prompt tokens wait, decode where the least KV cache is read at each step. A role without a
worker never stops traffic: a worker of the other role then takes requests whole.
"""

from collections.abc import Callable, Sequence

from swingpool_control import names
from swingpool_control.simulation.policies.candidates import Candidate, Hold, Placement, PlacementRequest, Split, Whole

LoadKey = Callable[[Candidate], tuple[float, float]]


def place(
    request: PlacementRequest, candidates: Sequence[Candidate], *, tie: int, failed: frozenset[str] = frozenset()
) -> Placement:
    """Decide where a request goes.

    Args:
        request: the request.
        candidates: all workers, in any order; the order never matters.
        tie: any number; spreads requests over workers that are equally loaded.
        failed: workers that failed this request's prefill already; they are asked again only if nobody else is there.
    """
    serving = [candidate for candidate in candidates if candidate.in_rotation]
    prefill = _ordered([c for c in serving if c.role == names.ROLE_PREFILL], _prefill_load, tie)
    untried = [candidate for candidate in prefill if candidate.worker not in failed]
    decode = decode_order(request, serving, tie=tie)
    if untried and decode and not request.whole_because:
        chosen = untried[0]
        return Split(
            prefill=chosen.worker,
            decode=decode,
            why=f"{chosen.pending_prefill_tokens} prompt tokens wait there, the fewest of {len(untried)}",
        )
    if decode:
        return Whole(workers=decode, why=request.whole_because or _no_prefill(failed))
    if prefill:
        ordered = tuple(candidate.worker for candidate in untried or prefill)
        return Whole(workers=ordered, why="no decode worker is in rotation")
    return Hold(why="no worker is in rotation")


def decode_order(
    request: PlacementRequest, candidates: Sequence[Candidate], *, tie: int, without: str = ""
) -> tuple[str, ...]:
    """Return all decode workers in rotation, least loaded first: the second and further ones are for retries.

    Args:
        request: the request, of which nothing matters here.
        candidates: all workers.
        tie: as in `place`.
        without: a worker that may not generate, since it holds the prompt's KV cache under another role.
    """
    decode = [c for c in candidates if c.in_rotation and c.role == names.ROLE_DECODE and c.worker != without]
    return tuple(candidate.worker for candidate in _ordered(decode, _decode_load, tie))


def any_order(candidates: Sequence[Candidate], *, tie: int) -> tuple[str, ...]:
    """Return all workers in rotation, fewest requests first, for a request that neither role is made for."""
    serving = [c for c in candidates if c.in_rotation and c.role in (names.ROLE_PREFILL, names.ROLE_DECODE)]
    return tuple(candidate.worker for candidate in _ordered(serving, _requests, tie))


def _requests(candidate: Candidate) -> tuple[float, float]:
    return candidate.prefills_in_flight + candidate.decodes_in_flight, 0.0


def _no_prefill(failed: frozenset[str]) -> str:
    if failed:
        return f"no prefill worker is left after {len(failed)} failed"
    return "no prefill worker is in rotation"


def _prefill_load(candidate: Candidate) -> tuple[float, float]:
    return candidate.pending_prefill_tokens, candidate.prefills_in_flight


def _decode_load(candidate: Candidate) -> tuple[float, float]:
    return candidate.decode_context_tokens, candidate.decodes_in_flight


def _ordered(candidates: list[Candidate], load: LoadKey, tie: int) -> list[Candidate]:
    """Sort by load; among equals start at a place that `tie` picks, so that equals get equal shares."""
    by_name = sorted(candidates, key=lambda candidate: candidate.worker)
    start = tie % len(by_name) if by_name else 0
    return sorted(by_name[start:] + by_name[:start], key=load)
