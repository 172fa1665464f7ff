"""Prices, energy and carbon: integrals over time, and a simulation's against what its parts say."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from swingpool_control.engine.profile import Power
from swingpool_control.simulation.cluster import SimulationError
from swingpool_control.simulation.settings import Settings
from swingpool_control.simulation.tariff import Steps, Tariff, constant
from tests.support.simulations import STATIC, load, simulate, spec

DAY = Steps(at_s=(0.0, 8.0, 20.0), values=(3.0, 5.0, 1.0), period_s=24.0)
DRAWS = Power(idle_w=100.0, prefill_w=700.0, decode_w=400.0, source="test")
POOLS = [
    {"name": "prefill", "role": "Prefill", "costPerHour": "2"},
    {"name": "decode", "role": "Decode", "costPerHour": "3"},
]


def test_a_day() -> None:
    assert [DAY.at(time) for time in (0, 7.9, 8, 19.9, 20, 24, 33)] == [3, 3, 5, 5, 1, 3, 5]
    assert DAY.over(0, 24) == 3 * 8 + 5 * 12 + 1 * 4
    assert DAY.over(22, 26) == 2 * 1 + 2 * 3
    assert constant(2.0).over(5, 8) == 6.0


@given(st.lists(st.floats(0, 500), min_size=3, max_size=3).map(sorted))
def test_parts_add_up(times: list[float]) -> None:
    first, middle, last = times
    assert DAY.over(first, middle) + DAY.over(middle, last) == pytest.approx(DAY.over(first, last), abs=1e-6)
    assert DAY.over(first, last) <= 5 * (last - first) + 1e-6


@pytest.mark.parametrize(
    ("at_s", "values", "period_s", "message"),
    [
        ((), (), math.inf, "for the begin"),
        ((1.0,), (1.0,), math.inf, "for the begin"),
        ((0.0, 5.0, 5.0), (1.0, 1.0, 1.0), math.inf, "ascend"),
        ((0.0, 5.0), (1.0, 1.0), 5.0, "beyond the period"),
        ((0.0,), (-1.0,), math.inf, "zero or more"),
        ((0.0,), (math.nan,), math.inf, "zero or more"),
    ],
)
def test_what_says_nothing_is_refused(
    at_s: tuple[float, ...], values: tuple[float, ...], period_s: float, message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        Steps(at_s=at_s, values=values, period_s=period_s)


def test_money_follows_the_price_of_the_time() -> None:
    arrivals = load(3, 60)
    dearer = Steps(at_s=(0.0, 30.0), values=(2.0, 20.0))
    plain, _ = simulate(spec(POOLS), arrivals)
    result, _ = simulate(
        spec(POOLS), arrivals, Settings(policy=STATIC.policy, tariff=Tariff(workers={"prefill": dearer}))
    )
    assert plain.cost == pytest.approx(plain.simulated_s / 3600 * 5)
    assert result.cost == pytest.approx(plain.simulated_s / 3600 * 5 + (plain.simulated_s - 30) / 3600 * 18)
    assert result.windows[0].cost_per_hour == pytest.approx(5)
    assert result.windows[-2].cost_per_hour == pytest.approx(23)
    assert (result.energy_kwh, result.energy_cost, result.carbon_kg) == (None, None, None)


def test_energy_lies_between_idle_and_full_load_and_so_do_its_cost_and_carbon() -> None:
    tariff = Tariff(
        draws={"prefill": DRAWS, "decode": DRAWS},
        power=constant(0.25),
        carbon=Steps(at_s=(0.0, 1000.0), values=(200.0, 0.0)),
    )
    settings = Settings(policy=STATIC.policy, tariff=tariff)
    quiet, _ = simulate(spec(POOLS), load(0.2, 60), settings)
    busy, _ = simulate(spec(POOLS), load(6, 60), settings)
    for result in (quiet, busy):
        hours = result.simulated_s / 3600
        assert result.energy_kwh is not None
        assert 2 * 0.1 * hours < result.energy_kwh < (0.7 + 0.4) * hours
        assert result.energy_cost == pytest.approx(result.energy_kwh * 0.25)
        assert result.carbon_kg == pytest.approx(result.energy_kwh * 0.2)
        drawn = sum((window.watts or 0.0) * (window.until_s - window.from_s) for window in result.windows)
        assert drawn / 3.6e6 == pytest.approx(result.energy_kwh, rel=0.1)
    assert quiet.energy_kwh is not None
    assert busy.energy_kwh is not None
    assert busy.energy_kwh / busy.simulated_s > 1.5 * quiet.energy_kwh / quiet.simulated_s


def test_coalescing_changes_no_energy() -> None:
    tariff = Tariff(draws={"prefill": DRAWS, "decode": DRAWS})
    found = [
        simulate(spec(POOLS), load(3, 40), Settings(policy=STATIC.policy, tariff=tariff, coalesce=coalesce))[0]
        for coalesce in (True, False)
    ]
    assert found[0].energy_kwh == pytest.approx(found[1].energy_kwh, rel=1e-3)


def test_a_pool_that_is_not_there_is_named() -> None:
    settings = Settings(policy=STATIC.policy, tariff=Tariff(workers={"h200": constant(1.0)}))
    with pytest.raises(SimulationError, match="there is no pool 'h200'"):
        simulate(spec(POOLS), [], settings)
