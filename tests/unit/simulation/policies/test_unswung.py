"""Swing pools, for policies that have none: no worker is lost, and each role may have them all."""

from typing import Any

from swingpool_control.api.v1alpha1 import PoolRole
from swingpool_control.simulation.policies.unswung import unswung
from tests.support.simulations import spec


def test_a_swing_pool_becomes_a_pool_of_each_role() -> None:
    pools: list[dict[str, Any]] = [
        {"name": "prefill", "role": "Prefill"},
        {"name": "swing", "role": "Swing", "replicas": {"min": 1, "max": 6}, "costPerHour": "2"},
        {"name": "kept", "role": "Swing", "replicas": {"mode": "Fixed", "count": 3}},
    ]
    changed, start = unswung(spec(pools), {"swing": 5})
    by_name = {pool.name: pool for pool in changed.pools}
    assert start == {"prefill": 1, "swing-prefill": 2, "swing-decode": 3, "kept-prefill": 1, "kept-decode": 2}
    assert {pool.role for pool in changed.pools} == {PoolRole.PREFILL, PoolRole.DECODE}
    assert (by_name["swing-prefill"].replicas.min, by_name["swing-decode"].replicas.min) == (0, 1)
    assert by_name["swing-prefill"].replicas.max == by_name["swing-decode"].replicas.max == 6
    assert by_name["swing-decode"].cost_per_hour == "2"
    assert (by_name["kept-prefill"].replicas.count, by_name["kept-decode"].replicas.count) == (1, 2)


def test_without_swing_pools_nothing_changes() -> None:
    plain = spec([{"name": "prefill", "role": "Prefill"}, {"name": "decode", "role": "Decode"}])
    assert unswung(plain, {"prefill": 2}) == (plain, {"prefill": 2})
