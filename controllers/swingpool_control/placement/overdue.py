"""When an answer's first byte is so late that its worker seems to hang, and a second worker is asked as well."""

from swingpool_control.engine.model import decode_step_s
from swingpool_control.figures import Figure, Unknown
from swingpool_control.placement.account import Account
from swingpool_control.placement.ticket import Ticket

SEEMS_TO_HANG_AFTER_S = 8.0
FACTOR = 4.0
"""By how much more than predicted a prompt, the transfer of its KV cache or an answer's tokens may take."""

ROOMY_KV_USAGE = 0.85


def second_try_after_s(
    ticket: Ticket, account: Account, *, whole: bool, at_once_tokens: int | None, kv_usage: Figure, waiting: Figure
) -> float:
    """Return after how many seconds without a byte another worker is asked too; 0 for never.

    Never if nobody knows how long an answer may become that comes at once: a long one looks like a hung worker. Never
    where requests may have to wait, or where nobody knows: whatever waits would be sent once more, under load above
    all. Whoever answers first counts, so that a worker that is only slow costs work and no answer.

    Args:
        ticket: the request.
        account: who generates for it.
        whole: whether its prompt is computed there too.
        at_once_tokens: the most tokens that come together: 0 of a stream, all of another answer; None if unknown.
        kv_usage: share of that worker's KV cache that is in use, by its own report.
        waiting: requests that wait there, by its own report.
    """
    if isinstance(kv_usage, Unknown) or isinstance(waiting, Unknown) or at_once_tokens is None:
        return 0.0
    if kv_usage > ROOMY_KV_USAGE or waiting > 0 or account.full:
        return 0.0
    predicted_s = ticket.alone_s(account, 0) if whole else account.model.transfer_s(tokens=ticket.tokens)
    predicted_s *= account.slowness
    if at_once_tokens:
        predicted_s += at_once_tokens * _gap_s(ticket, account)
    return SEEMS_TO_HANG_AFTER_S + FACTOR * predicted_s


def _gap_s(ticket: Ticket, account: Account) -> float:
    """Return the time between two tokens beside what the worker generates for now; contexts hold a prompt at least."""
    sequences, context = account.residents()
    return decode_step_s(
        account.model, sequences=max(1, sequences), context_tokens=max(context, ticket.tokens * max(1, sequences))
    )
