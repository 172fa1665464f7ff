"""Kubernetes' HorizontalPodAutoscaler, by its documentation and the autoscaling/v2 API.

A metric's ratio to its target gives a number of replicas; within a tolerance nothing changes; pods that are not ready
count as idle on the way up. What comes out is stabilized over a window in each direction, and bounded by policies of
how many pods may come or go in a period.
"""

import math
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass

from swingpool_control import names
from swingpool_control.api.status import FlipRecord, InferenceClusterStatus
from swingpool_control.figures import Unknown
from swingpool_control.simulation.policies import fleet
from swingpool_control.simulation.policies.fleet import Role
from swingpool_control.simulation.policies.interface import JOIN_SHORTEST_QUEUE, Board, Given
from swingpool_control.simulation.policies.windows import Average
from swingpool_control.view import ClusterView

TOLERANCE = 0.1
EPSILON = 1e-9
"""What rounding errors may amount to."""
SYNC_S = 15.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Rules:
    """One direction of `behavior`: the most pods, or the largest share, that may come or go in a period."""

    window_s: float
    period_s: float
    percent: float | None
    pods: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Behavior:
    """Both directions; the defaults are those of Kubernetes."""

    up: Rules = Rules(window_s=0.0, period_s=15.0, percent=100.0, pods=4)
    down: Rules = Rules(window_s=300.0, period_s=15.0, percent=100.0, pods=None)


def by_ratio(current: int, ratio: float, *, tolerance: float = TOLERANCE) -> int:
    """Return the replicas for a ratio of metric to target over all of them."""
    return current if abs(ratio - 1.0) <= tolerance + EPSILON else math.ceil(ratio * current - EPSILON)


def by_pods(values: Mapping[str, float], target: float, *, current: int, missing: int) -> int | None:
    """Return the replicas for a metric that each pod has; None if no pod has it.

    Pods without the metric count as idle where the others ask for more, and as right on target where they ask for less;
    if that turns the direction, nothing changes.

    Args:
        values: the metric by pod.
        target: average to reach.
        current: replicas that are asked for now.
        missing: pods without the metric, such as those that start.
    """
    if not values:
        return None
    ratio = sum(values.values()) / len(values) / target
    if not missing:
        return current if abs(ratio - 1.0) <= TOLERANCE + EPSILON else math.ceil(ratio * len(values) - EPSILON)
    everyone = len(values) + missing
    assumed = 0.0 if ratio > 1.0 else target
    again = (sum(values.values()) + missing * assumed) / everyone / target
    if abs(again - 1.0) <= TOLERANCE + EPSILON or (again > 1.0) != (ratio > 1.0):
        return current
    wanted = math.ceil(again * everyone - EPSILON)
    return max(current, wanted) if again > 1.0 else min(current, wanted)


class Stabilizer:
    """Recommendations, windows and policies of one autoscaled object."""

    def __init__(self, behavior: Behavior) -> None:
        self._behavior = behavior
        self._recommended: deque[tuple[float, int]] = deque()
        self._changes: deque[tuple[float, int]] = deque()

    def decide(self, current: int, wanted: int, *, fewest: int, most: int, now_s: float) -> int:
        """Return the replicas to set."""
        up, down = self._behavior.up, self._behavior.down
        longest_s = max(up.window_s, down.window_s)
        while self._recommended and self._recommended[0][0] < now_s - longest_s:
            self._recommended.popleft()
        self._recommended.append((now_s, wanted))
        lowest = min(n for at_s, n in self._recommended if at_s >= now_s - up.window_s)
        highest = max(n for at_s, n in self._recommended if at_s >= now_s - down.window_s)
        stable = min(max(current, lowest), highest)
        limited = self._limited(current, stable, now_s)
        chosen = min(max(limited, fewest), most)
        if chosen != current:
            self._changes.append((now_s, chosen - current))
        return chosen

    def _limited(self, current: int, wanted: int, now_s: float) -> int:
        if wanted > current:
            rules = self._behavior.up
            before = current - self._net(rules.period_s, now_s)
            allowed = [before + rules.pods] if rules.pods is not None else []
            if rules.percent is not None:
                allowed.append(math.ceil(before * (1 + rules.percent / 100) - EPSILON))
            return min(wanted, max(current, *allowed))
        if wanted < current:
            rules = self._behavior.down
            before = current - self._net(rules.period_s, now_s)
            allowed = [before - rules.pods] if rules.pods is not None else []
            if rules.percent is not None:
                allowed.append(int(before * (1 - rules.percent / 100)))
            return max(wanted, min(current, *allowed))
        return current

    def _net(self, period_s: float, now_s: float) -> int:
        """Pods that came in the period, less those that went."""
        longest_s = max(self._behavior.up.period_s, self._behavior.down.period_s)
        while self._changes and self._changes[0][0] <= now_s - longest_s:
            self._changes.popleft()
        return sum(change for at_s, change in self._changes if at_s > now_s - period_s)


class Utilization:
    """An HPA for each role on how busy its workers are.

    Args:
        given: what it is set up with.
        target: average to reach, 0-1.
        decode_by_kv: whether decode workers are measured by how full their KV cache is; otherwise, as prefill workers
            are, by the share of time in which they compute anything (what `DCGM_FI_DEV_GPU_UTIL` tells).
        average_s: time over which the metric is averaged.
        behavior: of both.
    """

    flips: tuple[FlipRecord, ...] = ()
    placing = JOIN_SHORTEST_QUEUE

    def __init__(
        self,
        given: Given,
        *,
        target: float = 0.8,
        decode_by_kv: bool = False,
        average_s: float = 30.0,
        behavior: Behavior = Behavior(),
    ) -> None:
        self._roles = fleet.of(given)
        self._target = target
        self._decode_by_kv = decode_by_kv
        self._average_s = average_s
        self._by_pod: dict[str, Average] = {}
        self._stabilizers = {role: Stabilizer(behavior) for role in self._roles}
        self._next_s = 0.0

    def round(self, board: Board, *, now_unix_s: float) -> None:
        """Sample; every 15 s decide."""
        view = board.view(InferenceClusterStatus())
        for role in self._roles.values():
            self._sample(role, view, now_unix_s)
        if now_unix_s < self._next_s:
            return
        self._next_s = now_unix_s + SYNC_S
        for role in self._roles.values():
            board.act(role.scaled(view, self._wanted(role, view, now_unix_s), reason="utilization"))

    def _sample(self, role: Role, view: ClusterView, now_s: float) -> None:
        by_kv = self._decode_by_kv and role.name == names.ROLE_DECODE
        for worker in role.seen(view):
            value = worker.kv_usage if by_kv else worker.running
            if isinstance(value, Unknown):
                continue
            average = self._by_pod.setdefault(worker.pod, Average(self._average_s))
            average.add(value if by_kv else float(value > 0), now_s=now_s)

    def _wanted(self, role: Role, view: ClusterView, now_s: float) -> int:
        pods = role.workers(view)
        values = {}
        for pod in pods:
            average = self._by_pod.get(pod.pod)
            if pod.ready and average is not None and average.value is not None:
                values[pod.pod] = average.value
        current = role.asked(view)
        wanted = by_pods(values, self._target, current=role.asked(view), missing=len(pods) - len(values))
        return self._stabilizers[role.name].decide(
            current,
            current if wanted is None else wanted,
            fewest=max(1, role.fewest),
            most=role.most,
            now_s=now_s,
        )
