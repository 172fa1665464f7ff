"""Blocks that finished requests leave for other workers to pull, each kept for the same time unless it is renewed."""

import math
from collections import OrderedDict

from swingpool_control.engine.work import Lease


class Leases:
    """All leases of one engine, in the order in which they end.

    Args:
        lease_s: how long each lasts.
    """

    def __init__(self, lease_s: float) -> None:
        self._lease_s = lease_s
        self._by_request: OrderedDict[str, Lease] = OrderedDict()
        self._latest_s = -math.inf
        self.none_before_s = math.inf
        """No lease ends before."""

    def __len__(self) -> int:
        return len(self._by_request)

    @property
    def next_expiry_s(self) -> float | None:
        """When the next lease ends, or None if none is held."""
        for lease in self._by_request.values():
            return lease.expires_s
        return None

    def get(self, request_id: str) -> Lease | None:
        """Return the lease on a request's blocks, or None if there is none any more."""
        return self._by_request.get(request_id)

    def add(self, request_id: str, *, held: int, blocks: tuple[int, ...], tokens: int, now_s: float) -> None:
        """Begin a lease."""
        # A clock that steps back by a moment must not bring them out of their order.
        self._latest_s = max(self._latest_s, now_s + self._lease_s)
        if not self._by_request:
            self.none_before_s = self._latest_s
        self._by_request[request_id] = Lease(held, blocks, tokens, self._latest_s)

    def renew(self, request_id: str, *, now_s: float) -> bool:
        """Let a lease last for its full duration from now; False if there is none any more."""
        lease = self._by_request.get(request_id)
        if lease is None or lease.expires_s <= now_s:
            return False
        del self._by_request[request_id]
        self.add(request_id, held=lease.held, blocks=lease.blocks, tokens=lease.tokens, now_s=now_s)
        return True

    def pop(self, request_id: str) -> Lease | None:
        """End a lease; None if there is none any more."""
        return self._by_request.pop(request_id, None)

    def expired(self, *, now_s: float) -> list[str]:
        """Return the requests whose leases have ended and are to be popped."""
        if now_s < self.none_before_s:
            return []
        found: list[str] = []
        self.none_before_s = math.inf
        for request_id, lease in self._by_request.items():
            if lease.expires_s > now_s:
                self.none_before_s = lease.expires_s
                break
            found.append(request_id)
        return found
