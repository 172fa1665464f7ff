"""The pickers of a cluster's router pods: each with its share of the requests, and nothing shared.

What one sends is known to the others by what workers tell of themselves, and by how long their own prompts then take.
"""

from collections.abc import Callable, Sequence
from typing import Final

from swingpool_control.observation import RouterObservation
from swingpool_control.placement.limits import DeflectionLimits
from swingpool_control.router_merge import merge
from swingpool_control.simulation.histogram import Histogram
from swingpool_control.simulation.pods import Pod
from swingpool_control.simulation.router import Router
from swingpool_control.simulation.traffic import Arrival

_MIXING: Final = 0x9E3779B97F4A7C15
_MASK: Final = 2**64 - 1


class Pickers:
    """The pickers of one cluster.

    Args:
        routers: one for each, at least one.
    """

    def __init__(self, routers: Sequence[Router]) -> None:
        self._routers = tuple(routers)

    def changed(self, pod: Pod, *, exists: Callable[[Pod], bool]) -> None:
        """See a pod's change."""
        for router in self._routers:
            router.changed(pod, exists=exists)

    def scrape(self, gaps: Callable[[], Histogram]) -> None:
        """Read all workers' own figures; `gaps` returns the times between tokens that were not read yet."""
        for router in self._routers:
            router.scrape()
        read = gaps()
        for router in self._routers:
            router.saw(read)

    def limit(self, limits: DeflectionLimits) -> None:
        """Take over how far placement may deflect."""
        for router in self._routers:
            router.limit(limits)

    def arrive(self, number: int, arrival: Arrival) -> None:
        """Take a request: any of them gets it, as connections are spread over a Service's pods."""
        self._routers[_spread(number) % len(self._routers)].arrive(number, arrival)

    def abandon(self) -> None:
        """End all requests that are left, as failed."""
        for router in self._routers:
            router.abandon()

    def observe(self) -> RouterObservation:
        """Return what the manager makes of their answers when it asks now."""
        return merge([router.observe() for router in self._routers])


def _spread(number: int) -> int:
    """Return a number that looks random, and is the same each time."""
    return ((number * _MIXING) & _MASK) >> 32
