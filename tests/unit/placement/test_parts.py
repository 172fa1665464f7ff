"""Parts of several pickers: nobody's worker is missed, parts are alike, and what waits long goes beyond them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from swingpool_control import names
from swingpool_control.engine.profile import built_in
from swingpool_control.placement.account import Account
from swingpool_control.placement.dispatcher import Dispatcher
from swingpool_control.placement.parts import Part
from swingpool_control.placement.settings import PlacementSettings
from swingpool_control.placement.ticket import Ticket


@given(workers=st.integers(0, 60), pickers=st.integers(1, 12))
def test_parts_cover_all_workers_and_are_alike(workers: int, pickers: int) -> None:
    everyone = [f"w{number:02}" for number in range(workers)]
    parts = [Part(number=number, of=pickers).own(everyone) for number in range(pickers)]
    assert sorted({worker for part in parts for worker in part}) == everyone
    sizes = [len(part) for part in parts]
    assert max(sizes) - min(sizes) <= 1 or max(sizes) <= workers / pickers + 2
    if workers:
        assert min(sizes) >= 1
    shared = [worker for worker in everyone if sum(worker in part for part in parts) > 1]
    if workers >= pickers:
        assert len(shared) <= pickers - 1, "only borders are shared"
    if workers % pickers == 0 and workers:
        assert not shared


def dispatcher(part: Part, *, prefill: int = 4, decode: int = 2) -> Dispatcher:
    found = Dispatcher(PlacementSettings())
    found.roster.among(part)
    model = built_in("demo").model()
    for role, count in ((names.ROLE_PREFILL, prefill), (names.ROLE_DECODE, decode)):
        for number in range(count):
            found.changed(Account(f"{role}{number}", model), role=role, in_rotation=True)
    return found


def sent(found: Dispatcher, count: int, *, now_s: float = 0.0) -> list[str]:
    """Return which workers get prompts that arrive together."""
    for number in range(count):
        found.offer(Ticket(number, 1000, arrived_s=now_s), now_s)
    return sorted({one.account.worker for one in found.dispatch(now_s)})


@pytest.mark.parametrize(("number", "expected"), [(0, ["prefill0", "prefill1"]), (1, ["prefill2", "prefill3"])])
def test_prompts_go_to_ones_own_workers_first(number: int, expected: list[str]) -> None:
    assert sent(dispatcher(Part(number=number, of=2)), 2) == expected


def test_what_has_waited_long_goes_to_others_workers_too() -> None:
    found = dispatcher(Part(number=0, of=2))
    assert sent(found, 400) == ["prefill0", "prefill1"]
    own = found.roster.get("prefill0")
    assert own
    pace, patience = own.pace, PlacementSettings().spare_patience / 2
    long_s = patience * (pace.base_s + pace.token_s * pace.budget)
    assert not {one.account.worker for one in found.dispatch(0.9 * long_s)} & {"prefill2", "prefill3"}
    assert {one.account.worker for one in found.dispatch(1.1 * long_s)} >= {"prefill2", "prefill3"}


def test_parts_follow_who_is_in_rotation() -> None:
    found = dispatcher(Part(number=0, of=2))
    for name in ("prefill0", "prefill1"):
        account = found.roster.get(name)
        assert account
        found.changed(account, role=names.ROLE_PREFILL, in_rotation=False)
    assert sent(found, 1) == ["prefill2"]


def test_who_is_alone_again_minds_all() -> None:
    found = dispatcher(Part(number=1, of=2))
    found.roster.among(Part())
    assert sent(found, 4) == [f"prefill{number}" for number in range(4)]
    assert not len(found.roster.spare)


def test_answers_are_generated_by_ones_own_workers_while_they_are_not_much_slower() -> None:
    found = dispatcher(Part(number=1, of=2))
    origin = found.roster.get("prefill2")
    assert origin
    chosen = found.generate(Ticket(0, 1000, arrived_s=0.0), origin, 0.0)
    assert chosen is not None
    assert chosen.worker == "decode1"


def test_of_prompts_only_a_lone_picker_goes_by_what_workers_have_of_others() -> None:
    for part, blocked in ((Part(), True), (Part(number=0, of=2), False)):
        found = dispatcher(part)
        found.dispatch(0.0)
        account = found.roster.get("prefill0")
        assert account
        account.reported(in_flight=3.0, kv_usage=0.1, now_s=5.0)
        assert (account.others_until_s > 5.0) is blocked
        decoder = found.roster.get("decode0")
        assert decoder
        decoder.reported(in_flight=3.0, kv_usage=0.1, now_s=5.0)
        assert decoder.residents()[0] == 3, "answers last"
