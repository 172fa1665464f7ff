"""Serving without disaggregation: every worker serves whole requests, as plain vLLM behind a balancer does."""

from collections.abc import Sequence

from swingpool_control.simulation.policies.candidates import Candidate, Hold, Placement, PlacementRequest, Whole
from swingpool_control.simulation.policies.interface import Given, Placing
from swingpool_control.simulation.policies.shortest_queue import any_order
from swingpool_control.simulation.policies.static import Static


def make(given: Given) -> Static:
    """Set it to work on the workers of the start, whatever their roles."""
    return Static(given, Placing(place=place))


def place(
    request: PlacementRequest, candidates: Sequence[Candidate], *, tie: int, failed: frozenset[str] = frozenset()
) -> Placement:
    """Send a request to the worker with the fewest, which computes its prompt and its answer."""
    order = any_order(candidates, tie=tie)
    order = tuple(one for one in order if one not in failed) or order
    if not order:
        return Hold(why="no worker is in rotation")
    return Whole(workers=order, why="every worker serves whole requests")
