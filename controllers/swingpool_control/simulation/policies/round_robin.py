"""Placement in turns, which looks at no load: what many front ends do unless they are told otherwise."""

from collections.abc import Sequence

from swingpool_control import names
from swingpool_control.simulation.policies.candidates import Candidate, Hold, Placement, PlacementRequest, Split, Whole
from swingpool_control.simulation.policies.interface import Placing


def place(
    request: PlacementRequest, candidates: Sequence[Candidate], *, tie: int, failed: frozenset[str] = frozenset()
) -> Placement:
    """Decide where a request goes: the next worker of each role."""
    prefill = [one for one in _turns(candidates, names.ROLE_PREFILL, tie) if one not in failed]
    decode = _turns(candidates, names.ROLE_DECODE, tie)
    if prefill and decode and not request.whole_because:
        return Split(prefill=prefill[0], decode=decode, why="it is their turn")
    if decode or prefill:
        return Whole(workers=(*decode, *prefill), why=request.whole_because or "a role has no worker")
    return Hold(why="no worker is in rotation")


def decode_order(
    request: PlacementRequest, candidates: Sequence[Candidate], *, tie: int, without: str = ""
) -> tuple[str, ...]:
    """Return all decode workers in rotation, from the one whose turn it is."""
    return tuple(one for one in _turns(candidates, names.ROLE_DECODE, tie) if one != without)


def _turns(candidates: Sequence[Candidate], role: str, tie: int) -> tuple[str, ...]:
    workers = sorted(one.worker for one in candidates if one.in_rotation and one.role == role)
    start = tie % len(workers) if workers else 0
    return (*workers[start:], *workers[:start])


ROUND_ROBIN = Placing(place=place, decode_order=decode_order)
