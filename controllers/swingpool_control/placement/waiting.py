"""Everything that waits in a router: prompts in their order, those that wait for one worker, those served whole."""

from collections import deque
from typing import Final

from swingpool_control.placement.account import Account
from swingpool_control.placement.held import Held
from swingpool_control.placement.queue import PromptQueue
from swingpool_control.placement.rate import Rate
from swingpool_control.placement.settings import PlacementSettings
from swingpool_control.placement.ticket import Ticket

_RATE_OVER_S: Final = 2.0
"""Time over which arrivals are averaged."""
_SPREAD_SHARE: Final = 0.25
"""Share of an iteration as which a longer prompt counts when it is spread, since one worker computes all of it."""


class Waiting:
    """What waits.

    Args:
        settings: what placement goes by.
    """

    def __init__(self, settings: PlacementSettings) -> None:
        self.queue = PromptQueue(settings)
        self.held = Held()
        self.whole: deque[Ticket] = deque()
        """Requests that must not be split; they wait only while no worker is in rotation."""
        self.arriving = Rate(over_s=_RATE_OVER_S)
        """Seconds of prompts that come in, beside iterations' bases."""
        self.spread_s = 0.0
        """Such seconds of the queue: what can be spread over workers."""
        self._whole_tokens = 0

    @property
    def count(self) -> int:
        """Requests that wait."""
        return self.queue.count + len(self.held) + len(self.whole)

    @property
    def tokens(self) -> int:
        """Prompt tokens of those."""
        return self.queue.tokens + self.held.tokens + self._whole_tokens

    def oldest_s(self) -> float | None:
        """Return when the one that has waited longest arrived, None if none waits."""
        whole_s = min((ticket.arrived_s for ticket in self.whole), default=None)
        arrivals = [one for one in (self.queue.oldest_s(), self.held.oldest_s(), whole_s) if one is not None]
        return min(arrivals, default=None)

    def keep_whole(self, ticket: Ticket) -> None:
        """Let a request wait for any worker that serves it alone."""
        self.whole.append(ticket)
        self._whole_tokens += ticket.tokens

    def keep(self, ticket: Ticket, account: Account | None, now_s: float) -> None:
        """Let a prompt wait for a prefill worker.

        Args:
            ticket: the request; its `work_s` is set.
            account: one of the prefill workers, None if there is none.
            now_s: when it arrives.
        """
        if account is not None:
            pace = account.pace
            beside_s = max(0.0, ticket.work_s - pace.base_s)
            ticket.spread_s = min(beside_s, pace.token_s * pace.budget * _SPREAD_SHARE)
            self.arriving.add(beside_s, now_s)
        self.put(ticket)

    def put(self, ticket: Ticket) -> None:
        """Put a prompt into the queue, or back into it."""
        self.queue.push(ticket)
        self.spread_s += ticket.spread_s

    def take(self, ticket: Ticket, *, served: bool = True) -> None:
        """Take a prompt out of the queue."""
        if ticket.waits:
            self.queue.remove(ticket, served=served)
            self.spread_s = self.spread_s - ticket.spread_s if self.queue.count else 0.0

    def take_whole(self) -> None:
        """Take the first of the requests that one worker serves."""
        self._whole_tokens -= self.whole.popleft().tokens

    def forget(self, ticket: Ticket) -> None:
        """Forget a request, wherever it waits."""
        if self.held.release(ticket):
            return
        if ticket.waits:
            self.take(ticket, served=False)
        elif ticket in self.whole:
            self.whole.remove(ticket)
            self._whole_tokens -= ticket.tokens

    def first_held(self, account: Account, now_s: float) -> Ticket | None:
        """Return which of the prompts that wait for a worker goes next, None if none does."""
        first: Ticket | None = None
        oldest: Ticket | None = None
        for ticket in self.held.of(account):
            first = first or ticket
            if self.aged(ticket, now_s) and (oldest is None or ticket.arrived_s < oldest.arrived_s):
                oldest = ticket
        return oldest or first

    def aged(self, ticket: Ticket, now_s: float) -> bool:
        """Tell whether a request has waited for the age of its class."""
        return now_s - ticket.arrived_s >= self.queue.class_of(ticket.kind).age_s


def has_room(account: Account, ticket: Ticket, share_s: float) -> bool:
    """Tell whether a prompt still belongs to a worker's next iteration, which has some already.

    Args:
        account: the worker.
        ticket: the prompt.
        share_s: what the worker gets of all that waits, in seconds beside an iteration's base.
    """
    if account.following.tokens + ticket.uncached > account.pace.budget:
        return False
    # All of it as the model has it, since that is how what waits is counted: a slower worker gets as many at a time.
    return account.following_s / account.slowness - account.pace.base_s + ticket.spread_s / 2 <= share_s
