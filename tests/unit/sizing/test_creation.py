"""How many workers a pool without a Deployment is given."""

from dataclasses import replace
from typing import Any

import pytest

from swingpool_control.api.status import InferenceClusterStatus, Plan, PlannedPool
from swingpool_control.sizing.creation import at_creation
from swingpool_control.timestamps import rfc3339
from swingpool_control.view import ClusterView
from tests.unit.swing.fleet import T0, Fleet, spec

DECODE = {"name": "decode", "role": "Decode", "replicas": {"min": 1, "max": 8}}


def view(pool: dict[str, Any], *, running: int = 0, planned: int | None = None, **parts: Any) -> ClusterView:
    """A cluster that has `running` decode workers, and whose pool `new` has no Deployment."""
    fleet = Fleet(spec([DECODE, pool], **parts))
    fleet.pods, fleet.replicas["decode"] = [], running
    for _ in range(running):
        fleet.create("decode", ready=True)
    found = fleet.view()
    pools = tuple(replace(s, exists=False, replicas=0, surge=1) if s.pool == "new" else s for s in found.pools)
    plan = None if planned is None else Plan(at=rfc3339(T0), pools=(PlannedPool(name="new", replicas=planned),))
    return replace(found, pools=pools, status=InferenceClusterStatus(plan=plan))


def new(**replicas: Any) -> dict[str, Any]:
    return {"name": "new", "role": "Prefill", "replicas": replicas}


@pytest.mark.parametrize("mode", ["Auto", "Recommend"])
@pytest.mark.parametrize(
    ("replicas", "expected"),
    [
        ({"min": 3, "max": 4}, 3),
        ({"min": 0, "max": 4}, 0),
        ({"mode": "Fixed", "count": 4}, 4),
        ({"mode": "External"}, None),
    ],
)
def test_a_new_pool_gets_its_fewest(replicas: dict[str, Any], expected: int | None, mode: str) -> None:
    assert at_creation(view(new(**replicas), scaling={"mode": mode}), "new") == expected


def test_budgets_hold_beside_what_runs() -> None:
    budgets = {"budgets": {"accelerators": [{"product": "*", "max": 8}]}}
    assert at_creation(view(new(min=3, max=4), running=6, scaling=budgets), "new") == 1
    assert at_creation(view(new(min=3, max=4), running=8, scaling=budgets), "new") == 0


def test_a_deployment_that_was_deleted_comes_back_as_large_as_it_was_planned() -> None:
    assert at_creation(view(new(min=1, max=6), planned=5), "new") == 5
    assert at_creation(view(new(min=1, max=4), planned=5), "new") == 4
    assert at_creation(view(new(min=1, max=6), planned=5, scaling={"mode": "Recommend"}), "new") == 1
    budgets = {"budgets": {"accelerators": [{"product": "*", "max": 5}]}}
    assert at_creation(view(new(min=1, max=6), running=1, planned=5, scaling=budgets), "new") == 3
