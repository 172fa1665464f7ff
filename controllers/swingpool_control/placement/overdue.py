"""When a stream's first token is so late that its worker seems to hang, and a second worker is asked as well."""

from swingpool_control.figures import Figure, Unknown
from swingpool_control.placement.account import Account
from swingpool_control.placement.ticket import Ticket

SEEMS_TO_HANG_AFTER_S = 8.0
FACTOR = 4.0
"""By how much more than predicted a prompt, or the transfer of its KV cache, may take."""

ROOMY_KV_USAGE = 0.85


def second_try_after_s(ticket: Ticket, account: Account, *, whole: bool, kv_usage: Figure, waiting: Figure) -> float:
    """Return after how many seconds without a token another worker is asked too; 0 for never.

    Never where requests may have to wait, or where nobody knows: whatever waits would be sent once more, under load
    above all. Whoever answers first counts, so that a worker that is only slow costs work and no answer.

    Args:
        ticket: the request.
        account: who generates for it.
        whole: whether its prompt is computed there too.
        kv_usage: share of that worker's KV cache that is in use, by its own report.
        waiting: requests that wait there, by its own report.
    """
    if isinstance(kv_usage, Unknown) or isinstance(waiting, Unknown):
        return 0.0
    if kv_usage > ROOMY_KV_USAGE or waiting > 0 or account.full:
        return 0.0
    predicted_s = ticket.alone_s(account, 0) if whole else account.model.transfer_s(tokens=ticket.tokens)
    return SEEMS_TO_HANG_AFTER_S + FACTOR * account.slowness * predicted_s
