"""What a simulated router asks of whoever places requests: the live dispatcher, or a rule that binds at once."""

from typing import Protocol

from swingpool_control.placement.account import Account, Leg
from swingpool_control.placement.dispatcher import Assignment
from swingpool_control.placement.limits import DeflectionLimits
from swingpool_control.placement.ticket import Ticket


class Placer(Protocol):
    """Places requests on workers, and keeps their accounts."""

    next_s: float
    """When to dispatch again if nothing happens before."""
    limits: DeflectionLimits

    @property
    def queued(self) -> int:
        """Requests that wait."""
        ...

    @property
    def queued_tokens(self) -> int:
        """Prompt tokens of those."""
        ...

    @property
    def serving(self) -> bool:
        """Whether any worker is in rotation, so that whatever waits will be served."""
        ...

    def oldest_wait_s(self, now_s: float) -> float:
        """Return how long the oldest of them has waited; 0 if none waits."""
        ...

    def changed(self, account: Account, *, role: str, in_rotation: bool) -> None:
        """Take in a worker, or what has become of it."""
        ...

    def removed(self, account: Account) -> None:
        """Forget a worker that is gone."""
        ...

    def offer(self, ticket: Ticket, now_s: float) -> None:
        """Take in a request, or take it back after its prefill failed."""
        ...

    def withdraw(self, ticket: Ticket) -> None:
        """Forget a request that waits."""
        ...

    def dispatch(self, now_s: float) -> list[Assignment]:
        """Return what goes to workers now; all of it is accounted for as sent."""
        ...

    def generate(self, ticket: Ticket, origin: Account, now_s: float) -> Account | None:
        """Return who generates for a request whose prompt is computed, and account for it; None if nobody can."""
        ...

    def prefill_ended(self, account: Account, leg: Leg, *, now_s: float, served: bool, at_fault: bool = False) -> None:
        """Account for a prompt's end; whether it was computed, and whether the worker was to blame if not."""
        ...

    def decode_ended(self, account: Account, tokens: int) -> None:
        """Account for a request's end."""
        ...
