"""Prompts that wait for a prefill worker, in the order in which they shall go.

Classes of higher priority go first; within a class the tenants' shares are kept level; within a tenant the prompt that
is predicted to be done soonest goes first, less what it has waited. Whoever has waited for the age of its class goes
before all of them, in the order of arrival: so nobody starves, and a prompt that is that old is overtaken by none.
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


class _Class:
    """Waiting prompts of one class."""

    def __init__(self, settings: RequestClass, *, quantum_s: float) -> None:
        self.settings = settings
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


class PromptQueue:
    """All waiting prompts.

    Args:
        settings: classes, aging, the tenants' quantum.
    """

    def __init__(self, settings: PlacementSettings) -> None:
        self._settings = settings
        ordered = sorted(settings.classes, key=lambda one: -one.priority)
        self._classes = [_Class(one, quantum_s=settings.tenant_quantum_s) for one in ordered]
        self._by_name = {one.settings.name: one for one in self._classes}
        self._default = self._by_name[settings.classes[0].name]
        self._tightest_s = min(one.ttft_s for one in settings.classes)
        self._pushed = 0
        self.count = 0
        self.tokens = 0
        """Prompt tokens of all that wait."""

    def class_of(self, kind: str) -> RequestClass:
        """Return the class of that name, or the one of requests that name none."""
        return self._by_name.get(kind, self._default).settings

    def push(self, ticket: Ticket) -> None:
        """Let a prompt wait; its `work_s` must be set."""
        kind = self._by_name.get(ticket.kind, self._default)
        ticket.key = ticket.work_s * kind.settings.ttft_s / self._tightest_s + self._settings.aging * ticket.arrived_s
        self._pushed += 1
        ticket.waits, ticket.serial = True, self._pushed
        kind.push(ticket)
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
        self._by_name.get(ticket.kind, self._default).gone(ticket, served=served)
        self.count -= 1
        self.tokens -= ticket.tokens

    def head(self, now_s: float) -> Ticket | None:
        """Return the prompt that shall go next, None if none waits."""
        if not self.count:
            return None
        first: Ticket | None = None
        old: Ticket | None = None
        for kind in self._classes:
            if not kind.count:
                continue
            oldest = kind.oldest()
            aged = oldest is not None and now_s - oldest.arrived_s >= kind.settings.age_s
            if oldest is not None and aged and (old is None or oldest.arrived_s < old.arrived_s):
                old = oldest
            if first is None:
                first = kind.head()
        return old or first

    def oldest_s(self) -> float | None:
        """Return when the one that has waited longest arrived, None if none waits."""
        arrivals = [oldest.arrived_s for kind in self._classes if (oldest := kind.oldest()) is not None]
        return min(arrivals, default=None)

    def ahead_s(self, kind: str, work_s: float) -> float:
        """Return the predicted prefill seconds of what waits and would go before such a prompt, about."""
        mine = self._by_name.get(kind, self._default)
        bucket = _bucket(work_s)
        total = 0.0
        for one in self._classes:
            if one.count and one.settings.priority > mine.settings.priority:
                total += sum(one.work_s)
            elif one.count and one.settings.priority == mine.settings.priority:
                total += sum(one.work_s[:bucket]) + one.work_s[bucket] / 2
        return total


def _bucket(work_s: float) -> int:
    """Return the magnitude of a duration, in octaves of a tenth of a millisecond."""
    share = work_s / _LEAST_S
    return min(int(math.log(share) * _PER_OCTAVE) + 1, _BUCKETS - 1) if 1.0 <= share < math.inf else 0
