"""Transfers to decode workers: one after the other, never more than is under way, and in the way of others."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from swingpool_control import names
from swingpool_control.engine.profile import built_in
from swingpool_control.placement.account import Account
from swingpool_control.placement.dispatcher import Dispatcher
from swingpool_control.placement.settings import PlacementSettings
from swingpool_control.placement.ticket import Ticket

MODEL = built_in("demo").model()
SECONDS = st.floats(0.0, 10.0)


def test_they_queue_and_end_by_themselves_or_with_the_first_token() -> None:
    account = Account("w", MODEL)
    for _ in range(3):
        account.transfer_sent(2.0, now_s=10.0)
    assert account.link_wait_s(10.0) == 6.0
    assert account.link_wait_s(13.0) == 3.0
    account.transfer_ended(2.0)
    account.transfer_ended(2.0)
    assert account.link_wait_s(13.0) == 2.0, "it is faster than was predicted"
    assert account.link_wait_s(20.0) == 0.0
    account.transfer_ended(2.0)
    assert account.link_wait_s(10.0) == 0.0


@given(st.lists(st.tuples(SECONDS, SECONDS, st.booleans()), max_size=30))
def test_a_wait_is_never_longer_than_what_is_under_way(steps: list[tuple[float, float, bool]]) -> None:
    account, now_s, under_way = Account("w", MODEL), 0.0, list[float]()
    for passed_s, seconds, ends in steps:
        now_s += passed_s
        if ends and under_way:
            account.transfer_ended(under_way.pop(0))
        else:
            account.transfer_sent(seconds, now_s=now_s)
            under_way.append(seconds)
        assert 0.0 <= account.link_wait_s(now_s) <= sum(under_way) + 1e-6
    for seconds in under_way:
        account.transfer_ended(seconds)
    assert account.moving_s == pytest.approx(0.0, abs=1e-6)


def dispatcher() -> Dispatcher:
    found = Dispatcher(PlacementSettings())
    model = replace(MODEL, link_bytes_per_s=MODEL.link_bytes_per_s / 100)
    for name, role in (("p", names.ROLE_PREFILL), ("d0", names.ROLE_DECODE), ("d1", names.ROLE_DECODE)):
        found.changed(Account(name, model), role=role, in_rotation=True)
    return found


def generates(found: Dispatcher, tokens: int, *, now_s: float = 0.0) -> tuple[str, Ticket]:
    origin, ticket = found.roster.get("p"), Ticket(0, tokens, arrived_s=now_s)
    assert origin
    chosen = found.generate(ticket, origin, now_s)
    assert chosen
    return chosen.worker, ticket


def test_a_short_prompt_does_not_wait_behind_a_long_ones_transfer() -> None:
    found = dispatcher()
    first, _ = generates(found, 8000)
    decoders = {"d0", "d1"}
    [other] = decoders - {first}
    account = found.roster.get(other)
    assert account
    for _ in range(2):  # its tokens come a little slower
        found.roster.decode_sent(Ticket(1, 8000, arrived_s=0.0), account, now_s=0.0)
    assert generates(found, 100)[0] == other


def test_it_goes_there_once_that_is_over() -> None:
    found = dispatcher()
    first, ticket = generates(found, 8000)
    [other] = {"d0", "d1"} - {first}
    busy, idle = found.roster.get(first), found.roster.get(other)
    assert busy
    assert idle
    for _ in range(2):
        found.roster.decode_sent(Ticket(1, 8000, arrived_s=0.0), idle, now_s=0.0)
    ticket.fetched(busy)
    assert ticket.moved_s == 0.0
    assert generates(found, 100)[0] == first


def test_what_lies_there_already_is_not_fetched() -> None:
    found = dispatcher()
    ticket = Ticket(0, 1000, arrived_s=0.0, hashes=tuple(range(10)), block_tokens=100)
    account = found.roster.get("d0")
    assert account
    found.roster.has_prefix(ticket, account, now_s=0.0)
    found.roster.fetches(ticket, account, now_s=0.0)
    assert ticket.moved_s == pytest.approx(account.model.transfer_s(tokens=1))
