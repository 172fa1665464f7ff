"""The share that is late agrees with what is sustained, falls with workers and rises with load."""

import pytest

from swingpool_control.engine.profile import built_in
from swingpool_control.sizing import sustained
from swingpool_control.sizing.traffic import Traffic, one_length

MODEL = built_in("demo").model()
TTFT_S, ITL_S, HANDOVER_S, MOST = 1.5, 0.060, 0.12, 8


def traffic(rate: float, scv: float = 1.0) -> Traffic:
    lengths = one_length(prompt_tokens=1500, output_tokens=200)
    return Traffic(requests_per_s=rate, lengths=lengths, arrival_scv=scv)


def prefills(rate: float, scv: float = 1.0) -> tuple[float, ...]:
    return sustained.late_prefills(MODEL, traffic=traffic(rate, scv), ttft_s=TTFT_S, handover_s=HANDOVER_S, most=MOST)


def decodes(rate: float, scv: float = 1.0) -> tuple[float, ...]:
    return sustained.late_decodes(MODEL, traffic=traffic(rate, scv), itl_s=ITL_S, most=MOST)


@pytest.mark.parametrize("scv", [1.0, 4.0])
@pytest.mark.parametrize("workers", [1, 3, 8])
def test_at_the_rate_that_is_sustained_as_much_is_late_as_may_be(workers: int, scv: float) -> None:
    prefill = sustained.prefill_rates(
        MODEL, traffic=traffic(1.0, scv), level=0.95, ttft_s=TTFT_S, handover_s=HANDOVER_S, most=MOST
    )[workers - 1]
    decode = sustained.decode_rates(MODEL, traffic=traffic(1.0, scv), level=0.95, itl_s=ITL_S, most=MOST)[workers - 1]
    assert prefills(prefill, scv)[workers - 1] == pytest.approx(0.05, abs=1e-3)
    assert decodes(decode, scv)[workers - 1] == pytest.approx(0.05, abs=5e-3)


@pytest.mark.parametrize("late", [prefills, decodes])
def test_more_workers_let_less_be_late_and_more_load_more(late: object) -> None:
    assert callable(late)
    few, many = late(4.0), late(8.0)
    assert all(0.0 <= share <= 1.0 for share in (*few, *many))
    assert list(few) == sorted(few, reverse=True)
    assert all(low <= high + 1e-12 for low, high in zip(few, many, strict=True))
    assert late(1000.0) == (1.0,) * MOST
