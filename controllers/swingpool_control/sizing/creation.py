"""How many workers a pool starts with when its Deployment is made."""

from swingpool_control.api.v1alpha1 import ReplicaMode, ScalingMode
from swingpool_control.sizing import allocate, budget, pools
from swingpool_control.view import ClusterView


def at_creation(view: ClusterView, pool: str) -> int | None:
    """Return the workers that a pool without a Deployment is given; None if something else decides.

    It is the pool's fewest, as far as budgets allow beside what runs; and if its Deployment was deleted by somebody, as
    many as the last plan that was carried out gave it.

    Args:
        view: the cluster; neither router nor performance models are needed.
        pool: the pool's name.
    """
    facts = pools.of(view, traffic=None)
    known = next(item for item in facts if item.name == pool)
    if known.mode is ReplicaMode.EXTERNAL:
        return None
    budgets = view.spec.scaling.budgets
    counts = dict(allocate.within_bounds(facts, budgets).counts)
    planned = _planned(view, pool) if view.spec.scaling.mode is ScalingMode.AUTO else 0
    while counts[pool] < min(planned, known.most):
        raised = counts | {pool: counts[pool] + 1}
        if budget.broken(budgets, facts, raised) is not None:
            break
        counts = raised
    return counts[pool]


def _planned(view: ClusterView, pool: str) -> int:
    plan = view.status.plan
    return 0 if plan is None else next((item.replicas for item in plan.pools if item.name == pool), 0)
