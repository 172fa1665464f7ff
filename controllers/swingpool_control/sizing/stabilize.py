"""Down is slow: a pool shrinks only to what was enough during the whole scale-down window."""

from swingpool_control.sizing.memory import Lower


def remember(lower: tuple[Lower, ...], newest: Lower, *, window_s: float) -> tuple[Lower, ...]:
    """Return the history with one entry more, without what lies before the window but for one entry."""
    begin = newest.at_unix_s - window_s
    history = (*lower, newest)
    older = [item for item in history if item.at_unix_s <= begin]
    return (*older[-1:], *(item for item in history if item.at_unix_s > begin))


def fewest(lower: tuple[Lower, ...], *, window_s: float, now_unix_s: float) -> dict[str, int] | None:
    """Return the workers by pool that were enough during the whole window; None if it is not over yet."""
    if not lower or lower[0].at_unix_s > now_unix_s - window_s:
        return None
    found: dict[str, int] = {}
    for item in lower:
        for pool, count in item.workers:
            found[pool] = max(found.get(pool, 0), count)
    return found
