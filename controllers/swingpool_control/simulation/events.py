"""The virtual clock: what happens when, in one order that depends on nothing but the events themselves."""

import math
from collections import deque
from collections.abc import Callable
from heapq import heappop, heappush


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


_Entry = tuple[float, int, Event]


class Line:
    """Events that are asked for in the order in which they happen: they need no sorting.

    Made by `Timeline.line`.
    """

    __slots__ = ("_entries", "_timeline", "next_order", "next_s")

    def __init__(self, timeline: "Timeline") -> None:
        self._timeline = timeline
        self._entries: deque[_Entry] = deque()
        self.next_s = math.inf
        """When the first of them happens; infinite if there is none."""
        self.next_order = 0

    def put(self, time_s: float, event: Event) -> int:
        """Have an event happen at a time, not before the one that was asked for last; return its number."""
        order = self._timeline.numbered()
        if self.next_s == math.inf:
            self.next_s, self.next_order = time_s, order
        self._entries.append((time_s, order, event))
        return order

    def take(self) -> Event:
        """Return the first of them and forget it."""
        entries = self._entries
        event = entries.popleft()[2]
        if entries:
            self.next_s, self.next_order, _ = entries[0]
        else:
            self.next_s = math.inf
        return event


class Timeline:
    """Events by time; those of one moment happen in the order in which they were asked for."""

    def __init__(self) -> None:
        self.now_s = 0.0
        self._heap: list[_Entry] = []
        self._lines: list[Line] = []
        self._asked = 0

    def line(self) -> Line:
        """Return a new line of events that are asked for in their order; few of them, for each step looks at all."""
        made = Line(self)
        self._lines.append(made)
        return made

    def numbered(self) -> int:
        """Return the number of an event that is asked for now."""
        self._asked += 1
        return self._asked

    def put(self, time_s: float, event: Event) -> int:
        """Have an event happen at a time, one that has passed meaning now; return the number that it will be told."""
        self._asked += 1
        heappush(self._heap, (time_s if time_s > self.now_s else self.now_s, self._asked, event))
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
        next_s, order = math.inf, 0
        if self._heap:
            next_s, order, _ = self._heap[0]
        chosen: Line | None = None
        for line in self._lines:
            if line.next_s < next_s or (line.next_s == next_s and line.next_s < math.inf and line.next_order < order):
                next_s, order, chosen = line.next_s, line.next_order, line
        if chosen is not None:
            event = chosen.take()
        elif self._heap:
            event = heappop(self._heap)[2]
        else:
            return False
        self.now_s = next_s
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
