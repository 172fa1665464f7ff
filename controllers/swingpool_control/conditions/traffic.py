"""MetricsAvailable and ObjectivesMet: do decisions see, and do clients get what was promised."""

from swingpool_control import names
from swingpool_control.api.router import MetricsSource
from swingpool_control.api.status import Condition
from swingpool_control.api.v1alpha1 import RouterType
from swingpool_control.conditions.conditions import Finding, Reason, Status, Type
from swingpool_control.figures import Unknown
from swingpool_control.observation import Percentiles
from swingpool_control.sizing.objectives import by_percentile
from swingpool_control.timestamps import unix_seconds
from swingpool_control.view import ClusterView

GRACE_S = 30.0
"""How long the router may be silent before it is told; a single missed answer is no news."""

FIRST_ANSWER_S = 300.0
"""How long the first answer of a new router is waited for."""

MIN_VALUES = 20
"""Fewest latencies in the window on which an objective is judged."""

RECOVERED = 0.9
"""Share of a missed objective under which it counts as met again."""


def metrics_available(
    view: ClusterView, before: Condition | None, *, router_seen_unix_s: float | None, now_unix_s: float
) -> Finding:
    """Return whether decisions have the figures they need.

    Args:
        view: the cluster.
        before: the condition as it was last written.
        router_seen_unix_s: when the router was known last; None if never.
        now_unix_s: the time.
    """
    if not isinstance(view.router, Unknown):
        if isinstance(view.router.arrived_requests, Unknown) and view.spec.router.type is RouterType.EXTERNAL:
            why = view.router.arrived_requests.why
            message = f"roles and sizes hold, since workers before an external router must tell its load: {why}"
            return _metrics("False", Reason.WORKERS_SILENT, message)
        return _metrics("True", Reason.ROUTER_ANSWERS, _source(view))
    known = router_seen_unix_s is not None
    if known and router_seen_unix_s is not None and now_unix_s - router_seen_unix_s < GRACE_S and before is not None:
        return _metrics(before.status, before.reason, before.message)
    if not known and (before is None or _is_waiting(before, now_unix_s)):
        return _metrics("Unknown", Reason.WAITING_FOR_ROUTER, "the router has not answered yet")
    message = f"no router answers, so roles and sizes hold; look at the pods of Deployment {names.router(view.name)}"
    return _metrics("False", Reason.ROUTER_UNREACHABLE, message)


def objectives_met(view: ClusterView, before: Condition | None) -> Finding:
    """Return whether TTFT and ITL hold, as the router measures them; too few values change nothing.

    Args:
        view: the cluster.
        before: the condition as it was last written.
    """
    router = view.router
    if isinstance(router, Unknown):
        return _kept(before) or _objectives("Unknown", Reason.WAITING_FOR_ROUTER, "the router tells nothing")
    if router.ttft_s.count == 0:
        return _objectives("Unknown", Reason.NO_TRAFFIC, "no request was served lately")
    if router.ttft_s.count < MIN_VALUES and (kept := _kept(before)) is not None:
        return kept
    missed = [
        name
        for name, limits, seen in (
            ("TTFT", by_percentile(view.spec.objectives.ttft), router.ttft_s),
            ("ITL", by_percentile(view.spec.objectives.itl), router.itl_s),
        )
        if _is_missed(limits, seen, was_missed=before is not None and f"{name} is" in before.message)
    ]
    if not missed:
        return _objectives("True", Reason.MET, "TTFT and ITL hold at every percentile that is asked for")
    message = " and ".join(f"{name} is above its objective" for name in missed)
    return _objectives("False", Reason.MISSED, message)


def _source(view: ClusterView) -> str:
    """Return where figures come from, in words."""
    if view.spec.router.type is RouterType.BUILT_IN:
        return "the router tells what it sees"
    if view.spec.router.external.metrics.source is MetricsSource.PROMETHEUS:
        return "Prometheus tells what it scraped of the workers"
    return "the workers tell what they see"


def _is_missed(limits: dict[str, float], seen: Percentiles, *, was_missed: bool) -> bool:
    margin = RECOVERED if was_missed else 1.0
    for name, limit_s in limits.items():
        value = getattr(seen, name)
        if not isinstance(value, Unknown) and value > limit_s * margin:
            return True
    return False


def _is_waiting(before: Condition, now_unix_s: float) -> bool:
    return before.status == "True" or (
        before.status == "Unknown" and now_unix_s - unix_seconds(before.last_transition_time) < FIRST_ANSWER_S
    )


def _kept(before: Condition | None) -> Finding | None:
    return None if before is None else _objectives(before.status, before.reason, before.message)


def _metrics(status: Status, reason: str, message: str) -> Finding:
    return Finding(type=Type.METRICS_AVAILABLE, status=status, reason=reason, message=message)


def _objectives(status: Status, reason: str, message: str) -> Finding:
    return Finding(type=Type.OBJECTIVES_MET, status=status, reason=reason, message=message)
