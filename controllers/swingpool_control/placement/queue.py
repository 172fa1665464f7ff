"""Prompts that wait for a prefill worker, in the order in which they shall go.

Classes of higher priority go first; among those of one priority and age the tenants' shares are kept level; within a
tenant the prompt that is predicted to take least goes first, where what it has waited counts in its favour. Whoever
has waited for the age of its class goes before all of them, in the order of arrival: so nobody starves, and a prompt
that is that old is overtaken by none.
"""

import math
from heapq import heappop, heappush
from typing import Final

from swingpool_control.placement.settings import PlacementSettings, RequestClass
from swingpool_control.placement.ticket import Ticket

_BUCKETS: Final = 40
_LEAST_S: Final = 1e-4
_PER_OCTAVE: Final = 1.0 / math.log(2.0)


_Entry = tuple[float, int, Ticket]
"""A key, the ticket's serial, and the ticket: out of date once it has left the queue or come back to it."""


def _next(heap: list[_Entry]) -> Ticket | None:
    """Return the first ticket in a heap that waits; drop those before it."""
    while heap:
        _, serial, ticket = heap[0]
        if ticket.waits and ticket.serial == serial:
            return ticket
        heappop(heap)
    return None


class _Tenant:
    """One tenant's waiting prompts of one class."""

    __slots__ = ("heap", "served_s", "version")

    def __init__(self) -> None:
        self.heap: list[_Entry] = []
        self.served_s = 0.0
        """Prefill seconds that it was given, lifted to the others' when it comes back."""
        self.version = 0


class _Level:
    """Waiting prompts of the classes of one priority and one age."""

    def __init__(self, *, priority: int, age_s: float, quantum_s: float) -> None:
        self.priority = priority
        self.age_s = age_s
        self.count = 0
        self.work_s = [0.0] * _BUCKETS
        """Predicted seconds of the waiting prompts, by the magnitude of each."""
        self._quantum_s = quantum_s
        self._tenants: dict[str, _Tenant] = {}
        self._heads: list[tuple[int, float, int, str, int]] = []
        """Tenants that wait: quanta served, their first ticket's key and serial, and the version this is true of."""
        self._arrivals: list[_Entry] = []
        self._level_s = 0.0
        """Prefill seconds of the tenant that was served last."""

    def push(self, ticket: Ticket) -> None:
        tenant = self._tenants.get(ticket.tenant)
        if tenant is None:
            tenant = self._tenants[ticket.tenant] = _Tenant()
        if not tenant.heap:
            tenant.served_s = max(tenant.served_s, self._level_s)
        heappush(tenant.heap, (ticket.key, ticket.serial, ticket))
        if tenant.heap[0][2] is ticket:
            self._offer(ticket.tenant, tenant)
        heappush(self._arrivals, (ticket.arrived_s, ticket.serial, ticket))
        self.count += 1
        self.work_s[_bucket(ticket.work_s)] += ticket.work_s

    def waiting(self) -> list[Ticket]:
        return [ticket for _, serial, ticket in self._arrivals if ticket.waits and ticket.serial == serial]

    def oldest(self) -> Ticket | None:
        return _next(self._arrivals)

    def head(self) -> Ticket | None:
        while self._heads:
            _, _, serial, name, version = self._heads[0]
            tenant = self._tenants.get(name)
            if tenant is not None and tenant.version == version:
                ticket = _next(tenant.heap)
                if ticket is not None and ticket.serial == serial:
                    return ticket
                self._offer(name, tenant)
            heappop(self._heads)
        return None

    def gone(self, ticket: Ticket, *, served: bool) -> None:
        self.count -= 1
        if not self.count:
            self.work_s = [0.0] * _BUCKETS
            self._tenants.clear()
            self._heads.clear()
            self._arrivals.clear()
            self._level_s = 0.0
            return
        self.work_s[_bucket(ticket.work_s)] -= ticket.work_s
        tenant = self._tenants[ticket.tenant]
        if served:
            self._level_s = max(self._level_s, tenant.served_s)
            tenant.served_s += ticket.work_s
        _next(tenant.heap)
        self._offer(ticket.tenant, tenant)

    def _offer(self, name: str, tenant: _Tenant) -> None:
        tenant.version += 1
        if tenant.heap:
            key, serial, _ = tenant.heap[0]
            heappush(self._heads, (int(tenant.served_s / self._quantum_s), key, serial, name, tenant.version))


class _Kind:
    """A class, and where its prompts wait."""

    __slots__ = ("level", "settings", "share")

    def __init__(self, settings: RequestClass, level: _Level, share: float) -> None:
        self.settings = settings
        self.level = level
        self.share = share
        """Of the priorities that there are, which it is: 0 is the lowest, 1 the highest or the only one."""


class PromptQueue:
    """All waiting prompts.

    Args:
        settings: classes, aging, the tenants' quantum.
    """

    def __init__(self, settings: PlacementSettings) -> None:
        self._settings = settings
        self._pushed = 0
        self.count = 0
        self.tokens = 0
        """Prompt tokens of all that wait."""
        self._levels: list[_Level] = []
        self._by_name: dict[str, _Kind] = {}
        self._arrange(settings.classes)

    def _arrange(self, classes: tuple[RequestClass, ...]) -> None:
        """Make levels for classes: many classes may be alike but for their names, and cost no more than one then."""
        found: dict[tuple[int, float], _Level] = {}
        for one in sorted(classes, key=lambda one: -one.priority):
            at = (one.priority, one.age_s)
            if at not in found:
                found[at] = _Level(priority=one.priority, age_s=one.age_s, quantum_s=self._settings.tenant_quantum_s)
        priorities = sorted({one.priority for one in classes})
        most = len(priorities) - 1
        shares = {priority: rank / most if most else 1.0 for rank, priority in enumerate(priorities)}
        self._levels = list(found.values())
        self._by_name = {one.name: _Kind(one, found[one.priority, one.age_s], shares[one.priority]) for one in classes}
        self._default = self._by_name[classes[0].name]
        self._tightest_s = min(one.ttft_s for one in classes)

    def reclassify(self, classes: tuple[RequestClass, ...]) -> None:
        """Go by other classes from now on; what waits keeps its arrival, and takes its place anew.

        Args:
            classes: at least one; the first is that of requests that name none, or one that is not among them.
        """
        waiting = [ticket for level in self._levels for ticket in level.waiting()]
        waiting.sort(key=lambda ticket: ticket.serial)
        self._arrange(classes)
        self.count = self.tokens = 0
        for ticket in waiting:
            self.push(ticket)

    def class_of(self, kind: str) -> RequestClass:
        """Return the class of that name, or the one of requests that name none."""
        return self._by_name.get(kind, self._default).settings

    def share_of(self, kind: str) -> float:
        """Return how urgent a class is among all: 0 for the lowest priority, 1 for the highest or the only one."""
        return self._by_name.get(kind, self._default).share

    def push(self, ticket: Ticket) -> None:
        """Let a prompt wait; its `work_s` must be set."""
        kind = self._by_name.get(ticket.kind, self._default)
        ticket.key = ticket.work_s * kind.settings.ttft_s / self._tightest_s + self._settings.aging * ticket.arrived_s
        self._pushed += 1
        ticket.waits, ticket.serial = True, self._pushed
        kind.level.push(ticket)
        self.count += 1
        self.tokens += ticket.tokens

    def remove(self, ticket: Ticket, *, served: bool) -> None:
        """Let a prompt wait no more.

        Args:
            ticket: one that waits.
            served: whether it goes to a worker now, which counts towards its tenant's share.
        """
        if not ticket.waits:
            return
        ticket.waits = False
        self._by_name.get(ticket.kind, self._default).level.gone(ticket, served=served)
        self.count -= 1
        self.tokens -= ticket.tokens

    def head(self, now_s: float) -> Ticket | None:
        """Return the prompt that shall go next, None if none waits."""
        if not self.count:
            return None
        first: Ticket | None = None
        old: Ticket | None = None
        priority = 0
        for level in self._levels:
            if not level.count:
                continue
            oldest = level.oldest()
            aged = oldest is not None and now_s - oldest.arrived_s >= level.age_s
            if oldest is not None and aged and (old is None or oldest.arrived_s < old.arrived_s):
                old = oldest
            if first is None or level.priority == priority:
                head = level.head()
                if head is not None and (first is None or head.key < first.key):
                    first, priority = head, level.priority
        return old or first

    def oldest_s(self) -> float | None:
        """Return when the one that has waited longest arrived, None if none waits."""
        arrivals = [oldest.arrived_s for level in self._levels if (oldest := level.oldest()) is not None]
        return min(arrivals, default=None)

    def ahead_s(self, kind: str, work_s: float) -> float:
        """Return about how many seconds of prefill wait that would go before such a prompt.

        Args:
            kind: name of its class.
            work_s: its own predicted seconds of prefill.
        """
        priority = self._by_name.get(kind, self._default).settings.priority
        bucket = _bucket(work_s)
        total = 0.0
        for level in self._levels:
            if level.count and level.priority > priority:
                total += sum(level.work_s)
            elif level.count and level.priority == priority:
                total += sum(level.work_s[:bucket]) + level.work_s[bucket] / 2
        return total


def _bucket(work_s: float) -> int:
    """Return the magnitude of a duration, in octaves of a tenth of a millisecond."""
    share = work_s / _LEAST_S
    return min(int(math.log(share) * _PER_OCTAVE) + 1, _BUCKETS - 1) if 1.0 <= share < math.inf else 0
