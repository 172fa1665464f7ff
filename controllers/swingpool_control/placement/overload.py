"""Which requests are refused, so that those that are taken in are served in time: the least urgent first."""

import math
from dataclasses import dataclass

from swingpool_control.placement.dispatcher import Dispatcher
from swingpool_control.placement.ticket import Ticket

LOWEST_SHARE = 0.5
"""Share of the tokens that may wait which the class of lowest priority may use."""
LEAST_RETRY_S, MOST_RETRY_S = 1, 300


@dataclass(frozen=True, slots=True, kw_only=True)
class Refusal:
    """A request is refused."""

    why: str
    retry_after_s: int


def refusal(dispatcher: Dispatcher, ticket: Ticket, now_s: float) -> Refusal | None:
    """Return why a request should be refused now, None if it should be taken in.

    Args:
        dispatcher: who would place it.
        ticket: the request, which was not offered yet.
        now_s: the time.
    """
    kind = dispatcher.class_of(ticket)
    wait_s = dispatcher.wait_s(ticket, now_s)
    if math.isinf(wait_s):  # there is no prefill worker: it waits for none
        return None
    if wait_s > kind.most_wait_s:
        why = f"a prompt of class {kind.name} would wait about {wait_s:.0f} s, more than {kind.most_wait_s:g} s"
        return Refusal(why=why, retry_after_s=_retry(wait_s - kind.most_wait_s))
    most = dispatcher.settings.most_queued_tokens
    if math.isinf(most):
        return None
    may = round(most * (LOWEST_SHARE + (1.0 - LOWEST_SHARE) * dispatcher.share_of(ticket)))
    if dispatcher.queued_tokens + ticket.tokens > may and dispatcher.queued:
        why = (
            f"{dispatcher.queued_tokens} prompt tokens wait already, and {may} may before class {kind.name} is refused"
        )
        return Refusal(why=why, retry_after_s=_retry(wait_s))
    return None


def _retry(seconds: float) -> int:
    return min(max(math.ceil(seconds), LEAST_RETRY_S), MOST_RETRY_S)
