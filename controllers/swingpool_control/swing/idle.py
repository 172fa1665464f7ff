"""Which workers hold nothing, and since when: the proof that a draining worker is empty."""

from collections.abc import Collection
from dataclasses import dataclass, replace

from swingpool_control.figures import Unknown
from swingpool_control.observation import WorkerObservation
from swingpool_control.swing.guards import observed
from swingpool_control.view import ClusterView


@dataclass(frozen=True, slots=True, kw_only=True)
class Idle:
    """A worker that was seen to hold nothing."""

    uid: str
    since_unix_s: float
    scraped_unix_s: float
    """Of the last scrape that showed it, by the router's clock."""
    scrapes: int
    """How many different scrapes showed it without one between that did not."""


def holds_nothing(sight: WorkerObservation) -> bool:
    """Tell whether it is certain that a worker holds no request and is sent none; never if a figure is unknown."""
    if isinstance(sight.running, Unknown) or isinstance(sight.waiting, Unknown):
        return False
    held = sight.prefills_in_flight + sight.decodes_in_flight + sight.pending_prefill_tokens
    # A router that has not seen yet that the worker drains goes on sending to it.
    return held == 0 and not sight.in_rotation and sight.running == 0 and sight.waiting == 0


def follow(view: ClusterView, idle: tuple[Idle, ...], *, uids: Collection[str], now_unix_s: float) -> tuple[Idle, ...]:
    """Return the workers among `uids` that are idle now, with how long they have been so.

    Args:
        view: the cluster now.
        idle: the answer of the step before.
        uids: uids of the workers to follow.
        now_unix_s: the time.
    """
    sights = observed(view)
    before = {item.uid: item for item in idle}
    found = []
    for worker in view.workers:
        sight = sights.get(worker.pod)
        if worker.uid not in uids or sight is None or not holds_nothing(sight):
            continue
        if sight.role != worker.role:  # it may be sent something yet
            continue
        scraped = sight.scraped_unix_s
        if isinstance(scraped, Unknown):
            continue
        known = before.get(worker.uid)
        if known is None:
            known = Idle(uid=worker.uid, since_unix_s=now_unix_s, scraped_unix_s=scraped, scrapes=1)
        elif scraped > known.scraped_unix_s:
            known = replace(known, scraped_unix_s=scraped, scrapes=known.scrapes + 1)
        found.append(known)
    return tuple(found)


def settled(idle: tuple[Idle, ...], uid: str, *, settle_s: float, now_unix_s: float) -> bool:
    """Tell whether a worker has been idle for `settle_s`, shown by at least two scrapes."""
    return any(item.uid == uid and item.scrapes >= 2 and now_unix_s - item.since_unix_s >= settle_s for item in idle)
