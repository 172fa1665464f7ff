"""Lets requests arrive: one of them stands on the timeline, the rest are not asked for yet."""

import math
from collections.abc import Callable, Iterable, Iterator

from swingpool_control.simulation.events import Event, Timeline
from swingpool_control.simulation.traffic import Arrival


class SimulationError(ValueError):
    """What was asked for cannot be simulated; the message says what to change."""


class Arriving(Event):
    """All requests, in the order of their arrival. As an event it is the next one's.

    Args:
        timeline: the clock.
        arrivals: the requests.
        arrive: told of each when it arrives, with its number from 0 on.
    """

    def __init__(self, timeline: Timeline, arrivals: Iterable[Arrival], arrive: Callable[[int, Arrival], None]) -> None:
        self._timeline = timeline
        self._line = timeline.line()
        self._arrivals: Iterator[Arrival] = iter(arrivals)
        self._arrive = arrive
        self._next: Arrival | None = None
        self.arrived = 0
        """How many have arrived."""

    @property
    def exhausted(self) -> bool:
        """Whether none is to come; known once `follow` was called."""
        return self._next is None

    def follow(self) -> None:
        """Ask for the next one.

        Raises:
            SimulationError: it arrives before the one before it, or never.
        """
        self._next = next(self._arrivals, None)
        if self._next is None:
            return
        at_s = self._next.at_s
        if not self._timeline.now_s <= at_s < math.inf:
            raise SimulationError(
                f"request {self.arrived} arrives at {at_s} s, before the one before it: sort the traffic by time"
            )
        self._line.put(at_s, self)

    def take(self, arrival: Arrival) -> None:
        """Let a request arrive now, whether it is one of those or comes beside them."""
        number = self.arrived
        self.arrived += 1
        self._arrive(number, arrival)

    def happen(self, order: int) -> None:
        """A request arrives."""
        arrival = self._next
        if arrival is None:
            return
        self.take(arrival)
        self.follow()
