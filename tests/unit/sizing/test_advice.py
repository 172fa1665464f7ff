"""What sizing says of roles: by what will be late with so many workers, over half a minute or more, where it helps."""

from dataclasses import replace

import pytest

from swingpool_control import names
from swingpool_control.sizing import advice, coming, pools
from swingpool_control.sizing.capacity import Shape
from swingpool_control.sizing.demand import Demand
from swingpool_control.sizing.need import Need
from swingpool_control.sizing.traffic import Traffic, one_length
from swingpool_control.swing import step as swing
from swingpool_control.swing.guards import ROLES
from swingpool_control.swing.memory import SwingMemory
from tests.unit.swing.fleet import T0, Fleet, spec

TRAFFIC = Traffic(requests_per_s=1.0, lengths=one_length(prompt_tokens=1200, output_tokens=100))


def fleet(prefill: int, decode: int) -> Fleet:
    """One fixed worker in each role, all others swing."""
    made = Fleet(
        spec(
            [
                {"name": "prefill", "role": "Prefill"},
                {"name": "decode", "role": "Decode"},
                {"name": "swing", "role": "Swing", "replicas": {"min": prefill + decode - 2, "max": 20}},
            ]
        )
    )
    for pod in made.of("swing")[: prefill - 1]:
        pod.role = names.ROLE_PREFILL
    return made


def said(
    made: Fleet, prefill_per_s: float, decode_per_s: float, before: advice.Advice | None = None, at_s: float = 0.0
) -> advice.Advice | None:
    view = made.view()
    facts = pools.of(view, traffic=TRAFFIC)
    need = Need(prefill_per_s=prefill_per_s, decode_per_s=decode_per_s, kv_tokens=0.0)
    found = advice.of(view, facts, TRAFFIC, advice.Lately(need=need, over_s=30.0), before, now_unix_s=T0 + at_s)
    assert found is not None
    return found if found.workers else None


def test_the_role_that_lacks_workers_gets_as_many_as_even_it_out() -> None:
    found = said(fleet(2, 8), 9.0, 9.0)
    assert found is not None
    assert found.to_role == names.ROLE_PREFILL
    assert 1 <= found.workers <= 4
    assert not found.lasts
    again = said(fleet(2, 8), 9.0, 9.0, before=found, at_s=15.0)
    assert again is not None
    assert again.lasts
    evened = fleet(2 + found.workers, 8 - found.workers)
    assert said(evened, 9.0, 9.0) is None


@pytest.mark.parametrize(("prefill", "need"), [(5, 6.0), (2, 1.0), (2, 100.0)])
def test_what_is_even_has_slack_or_cannot_be_mended_stays(prefill: int, need: float) -> None:
    assert said(fleet(prefill, 10 - prefill), need, need) is None


def test_it_says_which_roles_need_no_more() -> None:
    for made, per_s, needless in (
        (fleet(2, 8), 9.0, {names.ROLE_DECODE}),
        (fleet(5, 5), 1.0, {*ROLES}),
        (fleet(5, 5), 100.0, {*ROLES}),  # where both drown no move helps
    ):
        view = made.view()
        came = advice.Lately(need=Need(prefill_per_s=per_s, decode_per_s=per_s, kv_tokens=0.0), over_s=30.0)
        found = advice.of(view, pools.of(view, traffic=TRAFFIC), TRAFFIC, came, None, now_unix_s=T0)
        assert found is not None
        assert set(found.needless) == needless


def came(requests_per_s: float, generated_per_s: float, *, prompt_tokens: float = 1200.0) -> coming.ComingMemory:
    """Ten minutes of a load that stays."""
    memory = coming.ComingMemory()
    for tick in range(40):
        memory = coming.follow(memory, demand(requests_per_s, generated_per_s, prompt_tokens, at_s=15.0 * tick))
    return memory


def demand(requests_per_s: float, generated_per_s: float, prompt_tokens: float, at_s: float = 600.0) -> Demand:
    return Demand(
        at_unix_s=T0 + at_s,
        shape=Shape(isl_tokens=prompt_tokens, osl_tokens=100.0),
        requests_per_s=requests_per_s,
        prompt_tokens_per_s=requests_per_s * prompt_tokens,
        pending_tokens=0.0,
        pending_requests=0.0,
        sequences=0.0,
        generated_tokens_per_s=generated_per_s,
        kv_tokens=0.0,
    )


@pytest.mark.parametrize(("generated_per_s", "decode_per_s"), [(0.0, 10.0), (500.0, 10.0), (2000.0, 20.0)])
def test_answers_that_grow_longer_are_told_by_what_is_generated(generated_per_s: float, decode_per_s: float) -> None:
    found = advice.lately(came(10.0, generated_per_s), demand(10.0, generated_per_s, 1200.0), TRAFFIC)
    assert found is not None
    assert found.need.decode_per_s == pytest.approx(decode_per_s)
    assert found.need.prefill_per_s == pytest.approx(10.0)
    assert found.over_s > 300.0


def test_of_another_mix_than_now_nothing_is_known() -> None:
    assert advice.lately(came(10.0, 500.0), demand(10.0, 500.0, 300.0), TRAFFIC) is None


def test_nothing_is_said_of_nothing() -> None:
    view = fleet(2, 8).view()
    assert advice.of(view, pools.of(view, traffic=TRAFFIC), TRAFFIC, None, None, now_unix_s=T0) is None


def test_the_swing_loop_follows_what_lasts_and_no_more() -> None:
    made = fleet(2, 8)
    for _ in range(20):
        made.arrive(400, 20)
        made.run(1.0, dt=0.25)
    asked = advice.Advice(to_role=names.ROLE_PREFILL, workers=2, since_unix_s=T0, lasts=False, reason="for a minute")
    memory = swing.step(made.view(), SwingMemory(), now_unix_s=made.now).memory
    made.run(1.0, dt=0.25)
    idle = swing.step(made.view(), replace(memory, advice=asked), now_unix_s=made.now)
    assert not idle.flips
    made.run(1.0, dt=0.25)
    moved = swing.step(made.view(), replace(idle.memory, advice=replace(asked, lasts=True)), now_unix_s=made.now)
    assert [flip.to for flip in moved.flips] == 2 * [names.ROLE_PREFILL]
    assert all(flip.reason == "for a minute" for flip in moved.flips)
    assert moved.memory.advice is None
