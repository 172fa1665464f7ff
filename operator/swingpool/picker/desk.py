"""Where requests wait for their placement: the dispatcher's decisions, handed to whoever waits for them, in time."""

import asyncio
import time

from swingpool.picker.fleet import Fleet
from swingpool_control.placement.dispatcher import Assignment
from swingpool_control.placement.ticket import Ticket

LONGEST_WAIT_S = 590.0
"""Just under what Envoy waits for the picker."""


_LOOK_EVERY_S = 0.25
"""How exactly the time is kept of those whose time is over."""


class _Place:
    """One who waits."""

    __slots__ = ("ends_s", "future", "look_s")

    def __init__(self, future: "asyncio.Future[Assignment | None]", look_s: float, ends_s: float) -> None:
        self.future = future
        self.look_s = look_s
        """When to look whether there is still somebody to wait for."""
        self.ends_s = ends_s


class Desk:
    """Runs the fleet's dispatcher: asks it after each change, and when it wants to be asked.

    Args:
        fleet: the workers.
        queue_timeout_s: how long a request waits while no worker at all is in rotation.
    """

    def __init__(self, fleet: Fleet, *, queue_timeout_s: float) -> None:
        self._fleet = fleet
        self._dispatcher = fleet.dispatcher
        self._queue_timeout_s = queue_timeout_s
        self._every_s = min(_LOOK_EVERY_S, max(0.01, queue_timeout_s))
        self._waiting: dict[Ticket, _Place] = {}
        self._timer: asyncio.TimerHandle | None = None
        self._looks: asyncio.TimerHandle | None = None
        fleet.on_freed(self.pump)

    async def place(self, ticket: Ticket) -> Assignment | None:
        """Wait for a request's placement, which is accounted for then; None if its time is over.

        Whoever is cancelled here leaves nothing behind.
        """
        loop, now_s = asyncio.get_running_loop(), time.monotonic()
        self._dispatcher.offer(ticket, now_s)
        future: asyncio.Future[Assignment | None] = loop.create_future()
        self._waiting[ticket] = _Place(future, now_s + self._queue_timeout_s, now_s + LONGEST_WAIT_S)
        self.pump()
        if future.done():
            return future.result()
        if self._looks is None:
            self._looks = loop.call_later(self._every_s, self._look)
        try:
            return await future
        except asyncio.CancelledError:
            if future.cancelled():
                self._forget(ticket)
            elif (assignment := future.result()) is not None:
                self._take_back(assignment)
                self.pump()
            raise

    def pump(self) -> None:
        """Hand out what can be placed now."""
        if not self._waiting:
            return
        left = False
        for assignment in self._dispatcher.dispatch(time.monotonic()):
            future = self._waiting.pop(assignment.ticket).future
            if future.cancelled():  # just now: whoever waited has not been told yet
                self._take_back(assignment)
                left = True
            else:
                future.set_result(assignment)
        if left:
            self.pump()
            return
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._waiting and self._dispatcher.next_s < float("inf"):
            delay_s = max(0.0, self._dispatcher.next_s - time.monotonic())
            self._timer = asyncio.get_running_loop().call_later(delay_s, self.pump)

    def _look(self) -> None:
        """Send those away whose time is over."""
        now_s, self._looks = time.monotonic(), None
        for ticket, place in list(self._waiting.items()):
            if now_s >= place.ends_s or (now_s >= place.look_s and not self._dispatcher.serving):
                self._forget(ticket)
                if not place.future.done():
                    place.future.set_result(None)
            elif now_s >= place.look_s:
                place.look_s = now_s + self._queue_timeout_s
        if self._waiting:
            self._looks = asyncio.get_running_loop().call_later(self._every_s, self._look)

    def _forget(self, ticket: Ticket) -> None:
        if self._waiting.pop(ticket, None) is not None:
            self._dispatcher.withdraw(ticket)

    def _take_back(self, assignment: Assignment) -> None:
        """Undo an assignment that nobody will carry out."""
        now_s = time.monotonic()
        if assignment.leg is not None:
            self._dispatcher.prefill_ended(assignment.account, assignment.leg, now_s=now_s, served=False)
        else:
            self._dispatcher.decode_ended(assignment.account, assignment.ticket.tokens)
