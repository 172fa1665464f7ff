"""A burst of long prompts and short answers that recurs each hour: foretold with its lengths, and in time."""

from functools import cache

from swingpool_control.sizing import coming
from swingpool_control.sizing.capacity import Shape
from swingpool_control.sizing.coming import Coming, ComingMemory
from swingpool_control.sizing.demand import Demand
from swingpool_control.sizing.traffic import Traffic, one_length

START_S = 1_767_225_600.0
HOUR_S, BURST_S = 3600.0, 1800.0
QUIET = Traffic(requests_per_s=1.0, lengths=one_length(prompt_tokens=2000, output_tokens=200))


def demand(at_s: float) -> Demand:
    """Eight requests per second of 2000/200; in the burst forty of 4000/100."""
    bursts = BURST_S <= at_s % HOUR_S < BURST_S + 300
    requests, prompt, output = (40.0, 4000, 100) if bursts else (8.0, 2000, 200)
    return Demand(
        at_unix_s=START_S + at_s,
        shape=Shape(isl_tokens=prompt, osl_tokens=output),
        requests_per_s=requests,
        prompt_tokens_per_s=requests * prompt,
        pending_tokens=0.0,
        pending_requests=0.0,
        sequences=0.0,
        generated_tokens_per_s=requests * output,
        kv_tokens=0.0,
    )


@cache
def three_hours() -> ComingMemory:
    """Up to ten minutes before the fourth burst."""
    memory = ComingMemory()
    for tick in range(int((3 * HOUR_S + BURST_S - 600) / 15)):
        memory = coming.follow(memory, demand(15.0 * tick))
    return memory


def foreseen(before_s: float, startup_s: float = 60.0) -> Coming:
    at_s = 3 * HOUR_S + BURST_S - before_s
    found = coming.foresee(three_hours(), demand(at_s), QUIET, now_unix_s=START_S + at_s, startup_s=startup_s)
    assert isinstance(found, Coming)
    return found


def test_the_fourth_burst_is_asked_for_before_it_comes_and_with_its_lengths() -> None:
    then = foreseen(90)
    assert 3500 < then.traffic.lengths.mean_prompt_tokens < 4500
    assert 80 < then.traffic.lengths.mean_output_tokens < 125
    assert 35 < then.need.prefill_per_s < 50
    assert 35 < then.need.decode_per_s < 50
    quiet = foreseen(300)
    assert quiet.need.prefill_per_s < 12
    assert foreseen(300, startup_s=300).need.prefill_per_s > 35


def test_roles_are_made_ready_shortly_before() -> None:
    for before_s, ready in ((300.0, False), (25.0, True)):
        now_unix_s = START_S + 3 * HOUR_S + BURST_S - before_s
        soon = coming.soon(three_hours(), QUIET, now_unix_s=now_unix_s)
        assert soon is not None
        assert (soon.prefill_per_s > 70) == ready  # a long prompt counts for two of the present ones


def test_without_a_past_nothing_recurs() -> None:
    assert coming.soon(ComingMemory(), QUIET, now_unix_s=START_S) is None
