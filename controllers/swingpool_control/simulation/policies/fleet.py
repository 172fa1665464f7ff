"""The two roles' workers as an autoscaler of Deployments sees them: asked for, ready, and how to change them.

A role is all pools of that role together; they are filled in the spec's order, as far as their bounds allow. Swing
pools are left alone: no peer has such.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from swingpool_control import names
from swingpool_control.actions import SetReplicas
from swingpool_control.api.v1alpha1 import InferenceClusterSpec, Pool, PoolRole
from swingpool_control.engine.model import PerformanceModel
from swingpool_control.figures import Unknown
from swingpool_control.observation import RouterObservation, WorkerObservation
from swingpool_control.simulation.policies.interface import Given, PolicyError
from swingpool_control.sizing.objectives import by_percentile
from swingpool_control.view import ClusterView, WorkerView

ROLES = {names.ROLE_PREFILL: PoolRole.PREFILL, names.ROLE_DECODE: PoolRole.DECODE}


@dataclass(frozen=True, slots=True, kw_only=True)
class Role:
    """One role's pools and what bounds them."""

    name: str
    pools: tuple[Pool, ...]
    model: PerformanceModel
    """Of the first pool: peers know one kind of worker per role."""
    startup_s: float

    @property
    def fewest(self) -> int:
        """Fewest workers of all its pools together."""
        return sum(pool.replicas.fewest for pool in self.pools)

    @property
    def most(self) -> int:
        """Most workers of all its pools together."""
        return sum(pool.replicas.most or 0 for pool in self.pools)

    def asked(self, view: ClusterView) -> int:
        """Workers that were asked for."""
        mine = {pool.name for pool in self.pools}
        return sum(state.replicas for state in view.pools if state.pool in mine)

    def workers(self, view: ClusterView) -> tuple[WorkerView, ...]:
        """Its pods that are not being deleted."""
        mine = {pool.name for pool in self.pools}
        return tuple(worker for worker in view.workers if worker.pool in mine and not worker.deleting)

    def ready(self, view: ClusterView) -> int:
        """Its pods that are ready."""
        return sum(worker.ready for worker in self.workers(view))

    def seen(self, view: ClusterView) -> tuple[WorkerObservation, ...]:
        """What the router sees of its ready pods."""
        ready = {worker.pod for worker in self.workers(view) if worker.ready}
        return tuple(one for one in observed(view).workers if one.pod in ready)

    def clamp(self, count: int) -> int:
        """Return a number of workers moved into the bounds."""
        return min(max(count, self.fewest), self.most)

    def scaled(self, view: ClusterView, count: int, *, reason: str) -> tuple[SetReplicas, ...]:
        """Return the writes that bring the role to a number of workers, moved into its bounds."""
        wanted = distributed(self.pools, count)
        now = {state.pool: state.replicas for state in view.pools}
        return tuple(
            SetReplicas(pool=name, replicas=replicas, reason=reason)
            for name, replicas in wanted.items()
            if now[name] != replicas
        )


def distributed(pools: tuple[Pool, ...], count: int) -> Mapping[str, int]:
    """Spread workers over pools: each pool's fewest, then the pools in their order up to their most."""
    counts = {pool.name: pool.replicas.fewest for pool in pools}
    left = count - sum(counts.values())
    for pool in pools:
        more = max(0, min(left, (pool.replicas.most or 0) - counts[pool.name]))
        counts[pool.name] += more
        left -= more
    return counts


def of(given: Given) -> dict[str, Role]:
    """Return both roles.

    Raises:
        PolicyError: a role has no pool of its own.
    """
    found = {}
    for name, kind in ROLES.items():
        pools = tuple(pool for pool in given.spec.pools if pool.role is kind)
        if not pools:
            raise PolicyError(f"it scales pools of role {kind.value}, and there is none: add one")
        found[name] = Role(
            name=name, pools=pools, model=given.models[pools[0].name], startup_s=given.startup_s[pools[0].name]
        )
    return found


def observed(view: ClusterView) -> RouterObservation:
    """Return what the router tells.

    Raises:
        TypeError: that is unknown, which it never is in a simulation.
    """
    if isinstance(view.router, Unknown):
        raise TypeError(f"a simulated router is never unknown: {view.router.why}")
    return view.router


def objectives_s(spec: InferenceClusterSpec) -> tuple[float, float]:
    """Return the TTFT and ITL objectives for rules that know one number of each: the strictest that is given."""
    return (
        min(by_percentile(spec.objectives.ttft).values()),
        min(by_percentile(spec.objectives.itl).values()),
    )
