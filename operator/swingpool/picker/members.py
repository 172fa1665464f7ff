"""Which workers exist, as whoever runs them says: what the static file and the Kubernetes watch have in common."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True, slots=True, kw_only=True)
class Member:
    """One worker that exists and has an address."""

    pod: str
    uid: str
    address: str
    """`ip:port` of its HTTP API."""
    role: str
    """Value of the role label; empty if it has none."""
    pool: str = ""
    """Name of its pool; empty if that is not known."""
    ready: bool = True
    deleting: bool = False
    generation: str = ""
    """Value of the generation label: workers of two generations cannot exchange KV cache."""
    tls: bool = False
    """Whether it speaks TLS, and takes those alone who show it a certificate."""
    kv_events: str = ""
    """`ip:port` where it publishes what its KV cache holds; empty if it does not."""
    kv_replay: str = ""
    """`ip:port` where it tells again what it published."""
    asleep: str = ""
    """The manager's mark that it sleeps, shall, or wakes; empty for none."""


Publish = Callable[[Sequence[Member]], None]


class WorkerSource(Protocol):
    """Follows the workers of one cluster."""

    async def follow(self, publish: Publish) -> None:
        """Call `publish` with all members at once and again after each change; never returns by itself.

        A source that cannot see its origin publishes nothing, so that what was known last stays.
        """
        ...
