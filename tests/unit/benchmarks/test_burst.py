"""What the burst benchmark computes beside its simulations."""

import pytest

from benchmarks.burst import HOUR_S, LASTS_S, Burst, bound, hours
from swingpool_control.engine.model import prefill_s
from swingpool_control.engine.profile import built_in
from swingpool_control.simulation.outcome import Outcome
from swingpool_control.simulation.traffic import Arrival

DEMO = built_in("demo").model()


def ended(at_s: float, ttft_s: float, *, result: str = "completed") -> Outcome:
    return Outcome(
        number=0, arrival=Arrival(at_s, 10, 5), first_s=at_s + ttft_s, end_s=at_s + ttft_s + 1, result=result
    )


def test_the_objective_holds_again_when_all_but_a_few_who_come_from_then_on_are_in_time() -> None:
    burst = Burst(100.0, 200.0)
    for second in range(100):
        burst(ended(100.0 + second, 9.0 if second < 40 else 0.1))
    burst(ended(250.0, 9.0))
    # Of the 63 requests from second 37 on three are late, which is less than one in twenty.
    assert burst.recovered_s() == 37.0
    assert burst.recovered_s(share=1.0) == 40.0


def test_whoever_gets_no_answer_is_late() -> None:
    burst = Burst(0.0, 100.0)
    for second in range(100):
        burst(ended(float(second), 0.1, result="failed" if second == 98 else "completed"))
    assert burst.recovered_s(share=1.0) == 99.0
    assert Burst(0.0, 100.0).recovered_s() == 100.0


def test_the_bound_of_a_lone_request_is_its_own_prefill() -> None:
    alone_s = prefill_s(DEMO, prompt_tokens=500)
    assert bound([Arrival(0.0, 500, 5)], DEMO, workers=2, extra_from_s=60.0) == pytest.approx(alone_s)


def test_the_bound_grows_with_the_start_up_and_shrinks_with_workers() -> None:
    arrivals = [Arrival(0.02 * number, 1000, 5) for number in range(2000)]
    quick, slow = (bound(arrivals, DEMO, workers=2, extra_from_s=at_s) for at_s in (5.0, 60.0))
    assert quick < slow
    assert bound(arrivals, DEMO, workers=8, extra_from_s=60.0) < slow
    assert bound(arrivals, DEMO, workers=1000, extra_from_s=60.0) == pytest.approx(prefill_s(DEMO, prompt_tokens=1000))


def test_hours_are_alike_and_in_order() -> None:
    once = [Arrival(float(second), 10, 1) for second in range(int(LASTS_S))]
    found = list(hours(once, 3))
    assert [one.at_s for one in found] == sorted(one.at_s for one in found)
    counts = [sum(hour * HOUR_S <= one.at_s < (hour + 1) * HOUR_S for one in found) for hour in range(3)]
    assert counts == [3600, 3600, 3600]
