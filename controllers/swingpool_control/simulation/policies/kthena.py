"""kthena's disaggregated autoscaling with a fixed ratio of prefill to decode, built from its description.

Each role is scaled by a metric of its own, by ratio to a target with tolerance and windows; then the ratio is
enforced: the role that has too few is raised, and only where its bounds forbid that is the other lowered. If any
role's metric is missing, nothing happens at all.
"""

import math

from swingpool_control import names
from swingpool_control.api.status import FlipRecord, InferenceClusterStatus
from swingpool_control.figures import Unknown
from swingpool_control.simulation.policies import fleet, hpa
from swingpool_control.simulation.policies.fleet import Role
from swingpool_control.simulation.policies.hpa import Behavior, Rules, Stabilizer
from swingpool_control.simulation.policies.interface import JOIN_SHORTEST_QUEUE, Board, Given
from swingpool_control.view import ClusterView

PANIC_OVER_TARGET = 2.0
PANIC_S = 120.0
STABLE = Behavior(
    up=Rules(window_s=0.0, period_s=60.0, percent=100.0, pods=4),
    down=Rules(window_s=300.0, period_s=60.0, percent=100.0, pods=None),
)


def enforce(
    prefill: int,
    decode: int,
    *,
    least: float,
    largest: float,
    bounds: tuple[tuple[int, int], tuple[int, int]],
) -> tuple[int, int]:
    """Return both roles' workers with prefill over decode between `least` and `largest`.

    The roles are moved into their bounds first; one that alone is zero gets a worker; then the role that has too few is
    raised, and if its bound stops that, the other is lowered.

    Args:
        prefill: workers by the prefill metric.
        decode: workers by the decode metric.
        least: smallest ratio of prefill to decode.
        largest: largest ratio of prefill to decode.
        bounds: fewest and most of prefill, then of decode.
    """
    (prefill_least, prefill_most), (decode_least, decode_most) = bounds
    prefill = min(max(prefill, prefill_least), prefill_most)
    decode = min(max(decode, decode_least), decode_most)
    if not prefill and not decode:
        return 0, 0
    prefill, decode = max(1, prefill), max(1, decode)
    if prefill < least * decode:
        prefill = min(prefill_most, math.ceil(least * decode - 1e-9))
        decode = min(decode, max(1, math.floor(prefill / least + 1e-9)))
    elif prefill > largest * decode:
        decode = min(decode_most, math.ceil(prefill / largest - 1e-9))
        prefill = min(prefill, max(1, math.floor(largest * decode + 1e-9)))
    return prefill, decode


class FixedRatio:
    """Both roles by their metrics, and the ratio of the beginning kept.

    Args:
        given: what it is set up with.
        prefills_per_worker: prompts in flight per prefill worker to reach.
        kv_usage: share of decode workers' KV cache to reach.
    """

    flips: tuple[FlipRecord, ...] = ()
    placing = JOIN_SHORTEST_QUEUE

    def __init__(self, given: Given, *, prefills_per_worker: float = 2.0, kv_usage: float = 0.8) -> None:
        self._roles = fleet.of(given)
        self._targets = {names.ROLE_PREFILL: prefills_per_worker, names.ROLE_DECODE: kv_usage}
        self._stabilizers = {role: Stabilizer(STABLE) for role in self._roles}
        self._panic_until_s = dict.fromkeys(self._roles, 0.0)
        self._ratio: float | None = None
        self._next_s = 0.0

    def round(self, board: Board, *, now_unix_s: float) -> None:
        """Every 15 s decide."""
        if now_unix_s < self._next_s:
            return
        self._next_s = now_unix_s + hpa.SYNC_S
        view = board.view(InferenceClusterStatus())
        prefill, decode = (self._roles[role] for role in (names.ROLE_PREFILL, names.ROLE_DECODE))
        if self._ratio is None:
            self._ratio = prefill.asked(view) / max(1, decode.asked(view))
        values = {role.name: _metric(role, view) for role in (prefill, decode)}
        by_metric = {}
        for role in (prefill, decode):
            value = values[role.name]
            if value is None:
                return
            by_metric[role.name] = self._by_metric(role, value, view, now_unix_s)
        wanted = enforce(
            by_metric[names.ROLE_PREFILL],
            by_metric[names.ROLE_DECODE],
            least=self._ratio,
            largest=self._ratio,
            bounds=((max(1, prefill.fewest), prefill.most), (max(1, decode.fewest), decode.most)),
        )
        for role, count in zip((prefill, decode), wanted, strict=True):
            board.act(role.scaled(view, count, reason="metric and ratio"))

    def _by_metric(self, role: Role, value: float, view: ClusterView, now_s: float) -> int:
        """Workers by the role's own metric; in a panic they rise at once and do not fall."""
        current, target = role.asked(view), self._targets[role.name]
        ratio = value / target
        wanted = hpa.by_ratio(role.ready(view), ratio)
        if ratio >= PANIC_OVER_TARGET:
            self._panic_until_s[role.name] = now_s + PANIC_S
        if now_s < self._panic_until_s[role.name]:
            return role.clamp(max(current, wanted))
        return self._stabilizers[role.name].decide(
            current, wanted, fewest=max(1, role.fewest), most=role.most, now_s=now_s
        )


def _metric(role: Role, view: ClusterView) -> float | None:
    """Average of the role's metric over its ready workers; None if any of them lacks it."""
    workers = role.seen(view)
    if not workers:
        return None
    if role.name == names.ROLE_PREFILL:
        return sum(worker.prefills_in_flight for worker in workers) / len(workers)
    total = 0.0
    for worker in workers:
        if isinstance(worker.kv_usage, Unknown):
            return None
        total += worker.kv_usage
    return total / len(workers)
