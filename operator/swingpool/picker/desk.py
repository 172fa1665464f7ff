"""Where requests wait for their placement: the dispatcher's decisions, handed to whoever waits for them, in time."""

import asyncio
import time

from swingpool.picker.fleet import Fleet
from swingpool_control.placement.dispatcher import Assignment
from swingpool_control.placement.ticket import Ticket

LONGEST_WAIT_S = 590.0
"""Just under what Envoy waits for the picker."""


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
        self._waiting: dict[Ticket, asyncio.Future[Assignment]] = {}
        self._timer: asyncio.TimerHandle | None = None
        fleet.on_freed(self.pump)

    async def place(self, ticket: Ticket) -> Assignment | None:
        """Wait for a request's placement, which is accounted for then; None if its time is over.

        Whoever is cancelled here leaves nothing behind.
        """
        self._dispatcher.offer(ticket, time.monotonic())
        future = self._waiting[ticket] = asyncio.get_running_loop().create_future()
        try:
            self.pump()
            ends_s = time.monotonic() + LONGEST_WAIT_S
            while not future.done() and time.monotonic() < ends_s:
                await asyncio.wait({future}, timeout=self._queue_timeout_s)
                if not self._dispatcher.serving:
                    break
            return self._answer(ticket, future)
        except asyncio.CancelledError:
            assignment = self._answer(ticket, future)
            if assignment is not None:
                self._undo(assignment)
            raise

    def pump(self) -> None:
        """Hand out what can be placed now."""
        if not self._waiting:
            return
        for assignment in self._dispatcher.dispatch(time.monotonic()):
            self._waiting.pop(assignment.ticket).set_result(assignment)
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._waiting and self._dispatcher.next_s < float("inf"):
            delay_s = max(0.0, self._dispatcher.next_s - time.monotonic())
            self._timer = asyncio.get_running_loop().call_later(delay_s, self.pump)

    def _answer(self, ticket: Ticket, future: "asyncio.Future[Assignment]") -> Assignment | None:
        if future.done():
            return future.result()
        self._waiting.pop(ticket, None)
        self._dispatcher.withdraw(ticket)
        return None

    def _undo(self, assignment: Assignment) -> None:
        """Take an assignment back that nobody will carry out."""
        now_s = time.monotonic()
        if assignment.leg is not None:
            self._dispatcher.prefill_ended(assignment.account, assignment.leg, now_s=now_s, served=False)
        else:
            self._dispatcher.decode_ended(assignment.account, assignment.ticket.tokens)
        self.pump()
