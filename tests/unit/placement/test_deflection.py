"""What decode workers compute of prompts, and that the mean time between residents' tokens stays within the limit."""

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from swingpool_control import names
from swingpool_control.engine.linear import StepCost
from swingpool_control.placement import deflection
from swingpool_control.placement.account import Account
from swingpool_control.placement.limits import DeflectionLimits
from swingpool_control.placement.roster import Roster
from swingpool_control.placement.settings import PlacementSettings
from swingpool_control.placement.ticket import Ticket
from swingpool_control.placement.typical import TYPICAL

MODEL = replace(
    TYPICAL,
    step=StepCost(
        base_s=0.01,
        prefill_base_s=0.0,
        prefill_token_s=1e-4,
        prefill_context_token2_s=0.0,
        sequence_s=5e-4,
        context_token_s=0.0,
    ),
    kv_capacity_tokens=1_000_000,
    max_batched_tokens=4096,
)
LIMITS = DeflectionLimits(itl_s=0.05, over_share=1.0)
SETTINGS = PlacementSettings(limits=LIMITS, resident_weight=0.0)
PROMPT = 2000
"""Tokens: 0.2 s beside the residents' step."""


def cluster(residents: int, *, backlog: int = 100) -> tuple[Roster, Account]:
    """A prefill worker that is busy for long, and a decode worker."""
    roster = Roster(SETTINGS)
    busy, decoder = Account("p", MODEL), Account("d", MODEL)
    roster.update(busy, role=names.ROLE_PREFILL, in_rotation=True)
    roster.update(decoder, role=names.ROLE_DECODE, in_rotation=True)
    for _ in range(backlog):
        busy.prefill_sent(PROMPT, PROMPT, now_s=0.0, hop_s=0.0)
    for _ in range(residents):
        decoder.decode_sent(100)
    roster.rank(decoder)
    return roster, decoder


def offered(roster: Roster, now_s: float, tokens: int = PROMPT) -> deflection.Offer | None:
    ticket = Ticket(0, tokens, arrived_s=now_s)
    return deflection.cheapest(ticket, roster, LIMITS, SETTINGS, now_s=now_s)


def test_who_has_no_time_to_spare_computes_no_long_prompt_however_many_gaps_may_be_long() -> None:
    roster, decoder = cluster(80)  # 0.0505 s a step with one more
    assert decoder.step_s > LIMITS.itl_s
    assert offered(roster, 100.0) is None


def test_who_generates_fast_computes_one_after_it_has_saved_the_time() -> None:
    roster, decoder = cluster(39)  # 0.03 s a step: two fifths of the time are spare
    decoder.over_left = 4.0
    found = offered(roster, 0.1)
    assert found is None
    found = offered(roster, 1.0)
    assert found is not None
    assert found.over == 1
    saved_s = decoder.spare_s
    found.take()
    assert 0 <= decoder.spare_s < saved_s


def test_what_fits_beside_the_residents_costs_nothing() -> None:
    roster, decoder = cluster(39)
    found = offered(roster, 0.0, tokens=100)
    assert found is not None
    assert found.late_s == 0.0
    found.take()
    assert decoder.spare_s == 0.0


def test_while_the_best_computes_a_prompt_the_next_best_is_asked() -> None:
    roster, best = cluster(0)
    other = Account("e", MODEL)
    roster.update(other, role=names.ROLE_DECODE, in_rotation=True)
    other.decode_sent(100)
    roster.rank(other)
    first = offered(roster, 0.0)
    assert first is not None
    assert first.account is best
    first.take()
    other.over_left, other.spare_s = 4.0, 1.0
    second = offered(roster, 0.01)
    assert second is not None
    assert second.account is other
    second.take()
    assert offered(roster, 0.02) is None


@given(
    residents=st.integers(1, 120),
    gaps=st.lists(st.tuples(st.floats(0.01, 5.0), st.integers(1, 20_000)), min_size=1, max_size=40),
)
def test_no_more_time_is_taken_than_tokens_came_sooner(residents: int, gaps: list[tuple[float, int]]) -> None:
    roster, decoder = cluster(residents, backlog=10_000)
    now_s, late_s = 0.0, 0.0
    for gap_s, tokens in gaps:
        now_s += gap_s
        found = offered(roster, now_s, tokens)
        if found is not None:
            found.take()
            late_s += found.late_s
    slack = max(0.0, 1.0 - decoder.step_s / LIMITS.itl_s)
    assert late_s <= slack * now_s + 1e-9
