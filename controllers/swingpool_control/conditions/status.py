"""The status that a user reads, built so that nothing changes in it while nothing happens."""

from swingpool_control.api.status import FlipRecord, InferenceClusterStatus, Plan
from swingpool_control.view import ClusterView


def build(
    view: ClusterView,
    *,
    plan: Plan | None,
    flips: tuple[FlipRecord, ...],
    now_unix_s: float,
    router_seen_unix_s: float | None = None,
    applied_generation: int | None = None,
    apply_error: str = "",
) -> InferenceClusterStatus:
    """Return the status; equal to `view.status` if nothing happened, so that nothing need be written.

    Args:
        view: the cluster.
        plan: the last plan of the sizing loop; None if it has not decided yet: the one in the status stays.
        flips: all flips known to the swing loop, newest first.
        now_unix_s: the time.
        router_seen_unix_s: when the router was known last (`SwingMemory.router_seen_unix_s`); None if never.
        applied_generation: generation of the spec whose children were applied last; None if that is `view.generation`.
        apply_error: why the children could not be applied; empty if they could.
    """
    del plan, flips, now_unix_s, router_seen_unix_s, applied_generation, apply_error
    return view.status


def invalid(
    status: InferenceClusterStatus, *, generation: int, message: str, now_unix_s: float
) -> InferenceClusterStatus:
    """Return the status of a cluster whose spec cannot be used (`view.InvalidSpecError`); what runs is left alone.

    Args:
        status: as it was last written.
        generation: of the refused spec.
        message: what is wrong with it, by field.
        now_unix_s: the time.
    """
    del generation, message, now_unix_s
    return status
