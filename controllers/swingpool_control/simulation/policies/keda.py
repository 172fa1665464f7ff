"""The two KEDA recipes that llm-d's autoscaling guide recommends, built from their description, one role at a time.

The formulas run as Prometheus queries; KEDA hands their answer, a number of replicas, to an HPA as an external metric
with the target 1 per replica, whose tolerance and behaviour apply on top.

- SLO-aware: how far P90 latency lies from its objective, clamped, averaged over 45 s, against two thresholds. The
  guide has one pool; for two it names TTFT for prefill and time per token for decode as future work, which is what is
  done here.
- Token-aware: prefill by the prompt tokens in flight over what a worker computes within the objective; decode by how
  full the KV cache is.
"""

import math
from collections.abc import Callable

from swingpool_control import names
from swingpool_control.api.status import FlipRecord, InferenceClusterStatus
from swingpool_control.engine.model import PerformanceModel, prefill_s
from swingpool_control.figures import Figure, Unknown
from swingpool_control.simulation.policies import fleet, hpa
from swingpool_control.simulation.policies.fleet import Role
from swingpool_control.simulation.policies.hpa import Behavior, Rules, Stabilizer
from swingpool_control.simulation.policies.interface import JOIN_SHORTEST_QUEUE, Board, Given
from swingpool_control.simulation.policies.windows import Average
from swingpool_control.view import ClusterView

CLAMP = 2.0
AVERAGE_S = 45.0
UP, DOWN = 0.55, 0.40
TAIL = 0.65
"""Share of the token-aware threshold that is used, for the tail's sake: the guide says 60 to 70 percent."""
KV_TARGET = 0.8

RECIPE = Behavior(
    up=Rules(window_s=30.0, period_s=60.0, percent=100.0, pods=4),
    down=Rules(window_s=180.0, period_s=120.0, percent=None, pods=1),
)


def slo_aware(replicas: int, stress: float, *, ready: int, provisioned: int) -> int:
    """Return the replicas of the SLO-aware formula.

    Args:
        replicas: as asked for now.
        stress: the clamped and averaged ratio of latency to objective.
        ready: of them, those that serve.
        provisioned: of them, those that exist; those on their way count as relief, on the way up only.
    """
    credited = stress * (ready / provisioned if provisioned else 1.0)
    if credited > UP:
        return replicas + math.ceil(replicas * (credited / UP - 1) - 1e-9)
    if stress < DOWN:
        return replicas - math.floor(replicas * (1 - stress / DOWN) + 1e-9)
    return replicas


def prefill_velocity(model: PerformanceModel) -> float:
    """Return prompt tokens per second as the guide has them measured: a chunk over its idle TTFT, transfer included."""
    chunk = model.max_batched_tokens
    return chunk / (prefill_s(model, prompt_tokens=chunk) + model.transfer_s(tokens=chunk))


class Recipe:
    """A formula for each role, behind an HPA of its own."""

    flips: tuple[FlipRecord, ...] = ()
    placing = JOIN_SHORTEST_QUEUE

    def __init__(self, given: Given, *, formula: Callable[[Given], "Formula"], behavior: Behavior = RECIPE) -> None:
        self._roles = fleet.of(given)
        self._formula = formula(given)
        self._stabilizers = {role: Stabilizer(behavior) for role in self._roles}
        self._next_s = 0.0

    def round(self, board: Board, *, now_unix_s: float) -> None:
        """Sample; every 15 s decide."""
        view = board.view(InferenceClusterStatus())
        self._formula.sample(self._roles, view, now_s=now_unix_s)
        if now_unix_s < self._next_s:
            return
        self._next_s = now_unix_s + hpa.SYNC_S
        for role in self._roles.values():
            current = role.asked(view)
            metric = self._formula.replicas(role, view)
            # AverageValue 1: the HPA divides the metric by the replicas, and its tolerance bounds the quotient.
            wanted = hpa.by_ratio(current, metric / max(1, current))
            chosen = self._stabilizers[role.name].decide(
                current, wanted, fewest=max(1, role.fewest), most=role.most, now_s=now_unix_s
            )
            board.act(role.scaled(view, chosen, reason="external metric"))


class Formula:
    """What the queries answer."""

    def __init__(self, given: Given) -> None:
        self.ttft_s, self.itl_s = fleet.objectives_s(given.spec)

    def sample(self, roles: dict[str, Role], view: ClusterView, *, now_s: float) -> None:
        """Take what is averaged over time."""

    def replicas(self, role: Role, view: ClusterView) -> int:
        """Return the number of replicas for a role."""
        raise NotImplementedError


class SloAware(Formula):
    """By latency against its objective."""

    def __init__(self, given: Given) -> None:
        super().__init__(given)
        self._stress = {role: Average(AVERAGE_S) for role in fleet.ROLES}

    def sample(self, roles: dict[str, Role], view: ClusterView, *, now_s: float) -> None:
        """Take both ratios; no traffic is no stress, as the recipe has it."""
        router = fleet.observed(view)
        for role, latency, limit_s in (
            (names.ROLE_PREFILL, router.ttft_s.p90, self.ttft_s),
            (names.ROLE_DECODE, router.itl_s.p90, self.itl_s),
        ):
            self._stress[role].add(min(_or_none(latency) / limit_s, CLAMP), now_s=now_s)

    def replicas(self, role: Role, view: ClusterView) -> int:
        """Return the number of replicas for a role."""
        return slo_aware(
            role.asked(view),
            self._stress[role.name].value or 0.0,
            ready=role.ready(view),
            provisioned=len(role.workers(view)),
        )


class TokenAware(Formula):
    """By tokens in flight, and by how full the KV cache is."""

    def sample(self, roles: dict[str, Role], view: ClusterView, *, now_s: float) -> None:
        """Nothing is averaged."""

    def replicas(self, role: Role, view: ClusterView) -> int:
        """Return the number of replicas for a role."""
        router = fleet.observed(view)
        if role.name == names.ROLE_DECODE:
            return math.ceil(sum(_or_none(worker.kv_usage) for worker in role.seen(view)) / KV_TARGET - 1e-9)
        tokens = sum(worker.pending_prefill_tokens for worker in router.workers)
        velocity = prefill_velocity(role.model)
        isl = _or_none(router.mean_isl_tokens)
        threshold_s = TAIL * max(self.ttft_s - isl / velocity, 0.1 * self.ttft_s)
        return math.ceil(tokens / velocity / threshold_s - 1e-9)


def _or_none(value: Figure) -> float:
    """A figure, and 0 where there is none: what the recipes' queries make of missing series."""
    return 0.0 if isinstance(value, Unknown) else value
