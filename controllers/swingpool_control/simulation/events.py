"""The virtual clock: what happens when, in one order that depends on nothing but the events themselves."""

import heapq
from collections.abc import Callable

Event = Callable[[], None]


class Timeline:
    """Events by time; those of one moment happen in the order in which they were asked for."""

    def __init__(self) -> None:
        self.now_s = 0.0
        self._heap: list[tuple[float, int, Event]] = []
        self._asked = 0

    def at(self, time_s: float, event: Event) -> None:
        """Have an event happen at a time; one that has passed means now."""
        self._asked += 1
        heapq.heappush(self._heap, (max(time_s, self.now_s), self._asked, event))

    def after(self, delay_s: float, event: Event) -> None:
        """Have an event happen when a time has passed."""
        self.at(self.now_s + delay_s, event)

    def every(self, period_s: float, event: Event, *, first_s: float) -> None:
        """Have an event happen again and again, for ever."""

        def again() -> None:
            event()
            self.after(period_s, again)

        self.at(first_s, again)

    def step(self) -> bool:
        """Let the next event happen; False if there is none."""
        if not self._heap:
            return False
        self.now_s, _, event = heapq.heappop(self._heap)
        event()
        return True
