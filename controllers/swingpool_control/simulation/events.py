"""The virtual clock: what happens when, in one order that depends on nothing but the events themselves."""

import heapq
from collections import deque
from collections.abc import Callable


class Event:
    """What happens at a time. One object may be asked for many times."""

    __slots__ = ()

    def happen(self, order: int) -> None:
        """Happen now.

        Args:
            order: the number that `Timeline.put` gave for this time.
        """
        raise NotImplementedError


class _Call(Event):
    __slots__ = ("_call",)

    def __init__(self, call: Callable[[], None]) -> None:
        self._call = call

    def happen(self, order: int) -> None:
        self._call()


class Timeline:
    """Events by time; those of one moment happen in the order in which they were asked for."""

    def __init__(self) -> None:
        self.now_s = 0.0
        self._heap: list[tuple[float, int, Event]] = []
        self._asked = 0

    def put(self, time_s: float, event: Event) -> int:
        """Have an event happen at a time, one that has passed meaning now; return the number that it will be told."""
        self._asked += 1
        heapq.heappush(self._heap, (time_s if time_s > self.now_s else self.now_s, self._asked, event))
        return self._asked

    def at(self, time_s: float, call: Callable[[], None]) -> None:
        """Have a function called at a time; one that has passed means now."""
        self.put(time_s, _Call(call))

    def after(self, delay_s: float, call: Callable[[], None]) -> None:
        """Have a function called when a time has passed."""
        self.put(self.now_s + delay_s, _Call(call))

    def every(self, period_s: float, call: Callable[[], None], *, first_s: float) -> None:
        """Have a function called again and again, for ever."""

        def again() -> None:
            call()
            self.after(period_s, again)

        self.at(first_s, again)

    def step(self) -> bool:
        """Let the next event happen; False if there is none."""
        if not self._heap:
            return False
        self.now_s, order, event = heapq.heappop(self._heap)
        event.happen(order)
        return True


class Waiting:
    """Something that happens after a time unless it is not wanted any more by then."""

    __slots__ = ("wanted",)

    def __init__(self) -> None:
        self.wanted = True

    def due(self) -> None:
        """The time has passed, and it is wanted still."""
        raise NotImplementedError


class Later(Event):
    """Things that wait for equally long: however many they are, one event stands on the timeline.

    Args:
        timeline: the clock.
        delay_s: how long each waits.
    """

    __slots__ = ("_delay_s", "_queue", "_stands", "_timeline")

    def __init__(self, timeline: Timeline, delay_s: float) -> None:
        self._timeline = timeline
        self._delay_s = delay_s
        self._queue: deque[tuple[float, Waiting]] = deque()
        self._stands = False

    def add(self, waiting: Waiting) -> None:
        """Let something wait from now on."""
        due_s = self._timeline.now_s + self._delay_s
        self._queue.append((due_s, waiting))
        if not self._stands:
            self._stands = True
            self._timeline.put(due_s, self)

    def happen(self, order: int) -> None:
        """Let happen what is due; pass over what is not wanted."""
        queue, now_s = self._queue, self._timeline.now_s
        while queue and (queue[0][0] <= now_s or not queue[0][1].wanted):
            waiting = queue.popleft()[1]
            if waiting.wanted:
                waiting.due()
        self._stands = bool(queue)
        if queue:
            self._timeline.put(queue[0][0], self)
