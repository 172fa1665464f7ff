"""The placement decision: from a request and all workers to who computes the prompt and who generates.

Prefill goes where the fewest prompt tokens wait, decode where the least KV cache is read at each step. A role without a
worker never stops traffic: a worker of the other role then takes requests whole.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from swingpool_control import names
from swingpool_control.placement.candidates import Candidate, PlacementRequest

LoadKey = Callable[[Candidate], tuple[float, float]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Split:
    """Compute the prompt on one worker, generate on another."""

    prefill: str
    decode: tuple[str, ...]
    """Where to generate: the choice, then the others in the order in which to try them."""
    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Whole:
    """Let one worker do both."""

    workers: tuple[str, ...]
    """The choice, then the others in the order in which to try them."""
    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Hold:
    """No worker may get the request now."""

    why: str


Placement = Split | Whole | Hold


def place(
    request: PlacementRequest, candidates: Sequence[Candidate], *, tie: int, failed: frozenset[str] = frozenset()
) -> Placement:
    """Decide where a request goes.

    Args:
        request: the request.
        candidates: all workers, in any order; the order never matters.
        tie: any number; spreads requests over workers that are equally loaded.
        failed: workers that failed this request's prefill already; they are not asked again.
    """
    serving = [candidate for candidate in candidates if candidate.in_rotation]
    prefill = [c for c in serving if c.role == names.ROLE_PREFILL and c.worker not in failed]
    decode = decode_order(request, serving, tie=tie)
    if prefill and decode and not request.whole_because:
        chosen = _ordered(prefill, _prefill_load, tie)[0]
        return Split(
            prefill=chosen.worker,
            decode=decode,
            why=f"{chosen.pending_prefill_tokens} prompt tokens wait there, the fewest of {len(prefill)}",
        )
    if decode:
        return Whole(workers=decode, why=request.whole_because or _no_prefill(failed))
    if prefill:
        ordered = tuple(candidate.worker for candidate in _ordered(prefill, _prefill_load, tie))
        return Whole(workers=ordered, why="no decode worker is in rotation")
    return Hold(why="no worker is in rotation")


def decode_order(
    request: PlacementRequest, candidates: Sequence[Candidate], *, tie: int, without: str = ""
) -> tuple[str, ...]:
    """Return all decode workers in rotation, least loaded first: the second and further ones are for retries.

    Args:
        request: the request; its prompt stands for the size of requests that nobody knows.
        candidates: all workers.
        tie: as in `place`.
        without: a worker that may not generate, since it holds the prompt's KV cache under another role.
    """
    decode = [c for c in candidates if c.in_rotation and c.role == names.ROLE_DECODE and c.worker != without]
    return tuple(candidate.worker for candidate in _ordered(decode, _decode_load(request), tie))


def any_order(candidates: Sequence[Candidate], *, tie: int) -> tuple[str, ...]:
    """Return all workers in rotation, fewest requests first, for a request that neither role is made for."""
    serving = [candidate for candidate in candidates if candidate.in_rotation]
    return tuple(candidate.worker for candidate in _ordered(serving, _requests, tie))


def _requests(candidate: Candidate) -> tuple[float, float]:
    return candidate.prefills_in_flight + candidate.decodes_in_flight + candidate.others_in_flight, 0.0


def _no_prefill(failed: frozenset[str]) -> str:
    if failed:
        return f"no prefill worker is left after {len(failed)} failed"
    return "no prefill worker is in rotation"


def _prefill_load(candidate: Candidate) -> tuple[float, float]:
    return candidate.pending_prefill_tokens, candidate.prefills_in_flight


def _decode_load(request: PlacementRequest) -> LoadKey:
    def load(candidate: Candidate) -> tuple[float, float]:
        known = candidate.decodes_in_flight
        mean_context = candidate.decode_context_tokens / known if known else request.prompt_tokens
        resident = candidate.decode_context_tokens + candidate.others_in_flight * mean_context
        return resident, known + candidate.others_in_flight

    return load


def _ordered(candidates: list[Candidate], load: LoadKey, tie: int) -> list[Candidate]:
    """Sort by load; among equals start at a place that `tie` picks, so that equals get equal shares."""
    by_name = sorted(candidates, key=lambda candidate: candidate.worker)
    start = tie % len(by_name) if by_name else 0
    return sorted(by_name[start:] + by_name[:start], key=load)
