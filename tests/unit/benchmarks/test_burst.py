"""What the burst benchmark computes beside its simulations."""

import pytest

from benchmarks.burst import HOUR_S, LASTS_S, bound, hours, recovered_s
from swingpool_control.engine.model import prefill_s
from swingpool_control.engine.profile import built_in
from swingpool_control.simulation.series import Window
from swingpool_control.simulation.traffic import Arrival

DEMO = built_in("demo").model()


def window(from_s: float, ttft_p95_s: float | None, *, lost: int = 0) -> Window:
    return Window(
        from_s=from_s,
        until_s=from_s + 5,
        arrivals=10,
        prompt_tokens=0,
        output_tokens=0,
        ended=10,
        good=0,
        lost=lost,
        ttft_p50_s=None,
        ttft_p95_s=ttft_p95_s,
        ttft_p99_s=None,
        ttft_largest_s=None,
        itl_p50_s=None,
        itl_p95_s=None,
        itl_p99_s=None,
        workers={},
        pools={},
        accelerators=0.0,
        cost_per_hour=None,
        waiting_requests=0.0,
        waiting_prompt_tokens=0.0,
    )


def test_recovery_is_after_the_last_late_window_of_the_burst() -> None:
    found = (window(95, 9.0), window(100, 3.0), window(105, 0.1), window(110, 0.6), window(115, 0.4), window(205, 9.0))
    assert recovered_s(found, (100.0, 200.0)) == 15.0
    assert recovered_s((window(100, 0.1), window(105, None, lost=1)), (100.0, 200.0)) == 10.0
    assert recovered_s((window(100, 0.1),), (100.0, 200.0)) == 0.0


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
