"""Worked cases of what a budget counts."""

from typing import Any

from swingpool_control.api.scaling import Budgets
from swingpool_control.sizing import budget, pools
from swingpool_control.sizing.pools import PoolFacts
from tests.unit.swing.fleet import Fleet, spec

PRODUCT = {"product": "H200", "count": 2}


def facts(**changes: Any) -> tuple[PoolFacts, ...]:
    wanted: list[dict[str, Any]] = [
        {"name": "prefill", "role": "Prefill", "accelerator": PRODUCT, "costPerHour": "3"},
        {"name": "decode", "role": "Decode", "accelerator": PRODUCT},
    ]
    fleet = Fleet(spec(wanted))
    return tuple(
        PoolFacts(**{name: getattr(pool, name) for name in PoolFacts.__slots__} | changes)
        for pool in pools.of(fleet.view(), traffic=None)
    )


def broken(limits: dict[str, Any], counts: tuple[int, int], **changes: Any) -> str:
    found = budget.broken(Budgets.model_validate(limits), facts(**changes), {"prefill": counts[0], "decode": counts[1]})
    return "" if found is None else f"{found.code}: {found.message}"


def test_accelerators_are_counted_by_worker() -> None:
    limits = {"accelerators": [{"product": "H200", "max": 6}]}
    assert broken(limits, (1, 2)) == ""
    assert broken(limits, (2, 2)) == "AcceleratorBudget: the budget of 6 H200"
    assert broken({"accelerators": [{"product": "H100", "max": 0}]}, (9, 9)) == ""
    assert broken({"accelerators": [{"product": "*", "max": 7}]}, (2, 2)) == (
        "AcceleratorBudget: the budget of 7 accelerators"
    )


def test_what_a_rolling_update_adds_is_kept_free_and_told() -> None:
    limits = {"accelerators": [{"product": "H200", "max": 8}]}
    assert broken(limits, (1, 1), surge=1) == ""
    assert broken(limits, (1, 2), surge=1) == (
        "AcceleratorBudget: the budget of 8 H200, of which rolling updates need 4,"
    )


def test_pods_that_end_still_count() -> None:
    limits = {"accelerators": [{"product": "H200", "max": 8}]}
    assert broken(limits, (1, 1), present=2) == ""
    assert broken(limits, (1, 1), present=3) != ""


def test_money_counts_and_an_unknown_price_is_not_zero() -> None:
    assert broken({"costPerHour": "6"}, (2, 1)) == ""
    assert broken({"costPerHour": "6"}, (3, 1)) == "CostBudget: the budget of 6 per hour"
    assert broken({"costPerHour": "6"}, (1, 2)) == ("PriceUnknown: pool decode has no costPerHour to hold a budget by")
