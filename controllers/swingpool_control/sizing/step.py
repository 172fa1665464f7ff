"""One step of the sizing loop."""

from swingpool_control.api.status import Plan
from swingpool_control.sizing.memory import SizingMemory, SizingResult
from swingpool_control.timestamps import rfc3339
from swingpool_control.view import ClusterView


def step(view: ClusterView, memory: SizingMemory, *, now_unix_s: float) -> SizingResult:
    """Decide how many workers each pool has, and move every drain under way on by one step.

    Call it every `result.next_step_s` seconds, and at once after a change of the spec. `SizingMemory()` is the memory
    to start with; drains under way are found on the pods. The view must show the manager's own writes as soon as they
    are answered.

    Args:
        view: the cluster; `view.models` holds the performance model of each pool.
        memory: what the step before returned.
        now_unix_s: the time.
    """
    del view
    return SizingResult(actions=(), plan=Plan(at=rfc3339(now_unix_s)), memory=memory)
