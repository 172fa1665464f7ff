"""When a second worker is asked: only where a first token is overdue that nothing can have kept waiting."""

import pytest

from swingpool_control.engine.model import decode_step_s
from swingpool_control.figures import Figure, Unknown
from swingpool_control.placement.account import Account
from swingpool_control.placement.overdue import FACTOR, SEEMS_TO_HANG_AFTER_S, second_try_after_s
from swingpool_control.placement.ticket import Ticket
from swingpool_control.placement.typical import TYPICAL

UNKNOWN = Unknown("not scraped")


@pytest.mark.parametrize(
    ("kv_usage", "waiting"),
    [(UNKNOWN, 0.0), (0.1, UNKNOWN), (0.95, 0.0), (0.1, 1.0)],
    ids=["unknown usage", "unknown queue", "full cache", "somebody waits"],
)
def test_where_requests_may_wait_nobody_asks_twice(kv_usage: Figure, waiting: Figure) -> None:
    account = Account("a", TYPICAL)
    after_s = second_try_after_s(
        Ticket(1, 50, arrived_s=0), account, whole=True, at_once_tokens=0, kv_usage=kv_usage, waiting=waiting
    )
    assert after_s == 0


def test_longer_prompts_and_slower_workers_get_longer() -> None:
    account = Account("a", TYPICAL)

    def after_s(tokens: int, *, whole: bool = True) -> float:
        ticket = Ticket(1, tokens, arrived_s=0)
        return second_try_after_s(ticket, account, whole=whole, at_once_tokens=0, kv_usage=0.1, waiting=0.0)

    assert SEEMS_TO_HANG_AFTER_S < after_s(10) < after_s(100_000)
    assert after_s(100_000, whole=False) < after_s(100_000)
    before_s = after_s(100_000)
    account.slowness = 3.0
    assert after_s(100_000) > before_s + 2 * (before_s - SEEMS_TO_HANG_AFTER_S) - 1e-6


def test_answers_that_come_at_once_get_longer_by_their_tokens() -> None:
    account = Account("a", TYPICAL)

    def after_s(tokens: int | None) -> float:
        ticket = Ticket(1, 100, arrived_s=0)
        return second_try_after_s(ticket, account, whole=True, at_once_tokens=tokens, kv_usage=0.1, waiting=0.0)

    gap_s = decode_step_s(TYPICAL, sequences=1, context_tokens=100)
    assert after_s(500) == pytest.approx(after_s(0) + FACTOR * 500 * gap_s)
    alone_s = after_s(500)
    for _ in range(8):
        account.decode_sent(1000)
    assert after_s(500) > alone_s, "beside others, each token takes longer"
    assert after_s(None) == 0, "an answer of unknown length may be a long one"
