"""The quick part of the cross-checks: one worker against closed forms, on loads that are small enough for the suite."""

import pytest

from benchmarks.checks.published import check_distserve
from benchmarks.checks.queues import PROMPT, Lengths, one_server, shared, spread
from benchmarks.harness import DATA, Run


@pytest.mark.parametrize("length", [spread, lambda _: PROMPT], ids=["M/G/1", "M/D/1"])
def test_a_prefill_worker_is_the_very_queue_that_theory_speaks_of(length: Lengths) -> None:
    times = one_server(length, 0.6, 2_000, seed=1)
    assert times.path_s is not None
    assert times.seen_s == pytest.approx(times.path_s, rel=1e-6)
    assert times.seen_s == pytest.approx(times.theory_s, rel=0.12)  # so far chance reaches with few requests


def test_answers_share_a_worker_as_in_processor_sharing() -> None:
    times = shared(0.4, 4_000, seed=1)
    assert times.seen_s == pytest.approx(times.theory_s, rel=0.08)


@pytest.mark.skipif(not (DATA / "profiles").is_dir(), reason="needs DistServe's profile; set SWINGPOOL_DATA")
def test_distserves_example_is_within_a_tenth_of_its_own_simulator() -> None:
    run = Run(quick=True, seed=0)
    check_distserve(run)
    assert run.bars
    assert all(bar.holds for bar in run.bars)
