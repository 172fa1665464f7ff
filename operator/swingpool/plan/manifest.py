"""The InferenceCluster of a plan, as YAML to apply."""

from typing import Any

import yaml

from swingpool.plan.run import Plan
from swingpool_control import names
from swingpool_control.planning import cluster
from swingpool_control.planning.check import Check, holds


def manifest(plan: Plan, *, name: str) -> str:
    """Return the manifest; empty if no mix held.

    Swing pools may shrink in quiet times only where the simulation says that everything held so too.
    """
    chosen = plan.chosen
    if chosen is None:
        return ""
    fixed = not may_shrink(plan.elastic)
    spec = cluster.spec(plan.asked.spec, chosen.mix, fixed=fixed)
    content: dict[str, Any] = {
        "apiVersion": f"{names.GROUP}/{names.VERSION}",
        "kind": names.KIND,
        "metadata": {"name": name},
        "spec": spec.model_dump(mode="json", by_alias=True, exclude_unset=True, exclude_none=True),
    }
    return yaml.safe_dump(content, sort_keys=False, allow_unicode=True, width=120)


def may_shrink(elastic: Check | None) -> bool:
    """Return whether the simulation held with swing pools that shrink in quiet times."""
    return elastic is not None and holds(elastic.result)
