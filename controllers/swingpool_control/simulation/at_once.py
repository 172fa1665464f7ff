"""Placement by a rule that sends every request to a worker as it comes, as most routers do."""

import math
from collections import deque

from swingpool_control.placement.account import Account, Leg
from swingpool_control.placement.dispatcher import Assignment
from swingpool_control.placement.limits import NO_DEFLECTION
from swingpool_control.placement.ticket import Ticket
from swingpool_control.simulation.policies.candidates import Candidate, Hold, PlacementRequest, Split, Whole
from swingpool_control.simulation.policies.interface import Placing


class FirstInLine:
    """Requests in the order of their arrival, and the workers that they wait for: common to all that bind at once."""

    def __init__(self) -> None:
        self.next_s = math.inf
        self.limits = NO_DEFLECTION
        self.accounts: dict[str, Account] = {}
        """Of all workers, by name."""
        self.waiting: deque[Ticket] = deque()
        """Requests that were not sent yet, oldest first."""

    @property
    def queued(self) -> int:
        """Requests that wait."""
        return len(self.waiting)

    @property
    def queued_tokens(self) -> int:
        """Prompt tokens of those."""
        return sum(ticket.tokens for ticket in self.waiting)

    @property
    def serving(self) -> bool:
        """Whether any worker is in rotation; who waits here waits for one."""
        return not self.waiting

    def oldest_wait_s(self, now_s: float) -> float:
        """Return how long the oldest of them has waited; 0 if none waits."""
        return now_s - self.waiting[0].arrived_s if self.waiting else 0.0

    def changed(self, account: Account, *, role: str, in_rotation: bool) -> None:
        """Take in a worker, or what has become of it."""
        self.accounts[account.worker] = account
        account.role, account.in_rotation = role, in_rotation

    def removed(self, account: Account) -> None:
        """Forget a worker that is gone."""
        self.accounts.pop(account.worker, None)

    def offer(self, ticket: Ticket, now_s: float) -> None:
        """Take in a request, or take it back after its prefill failed."""
        self.waiting.append(ticket)

    def withdraw(self, ticket: Ticket) -> None:
        """Forget a request that waits."""
        if ticket in self.waiting:
            self.waiting.remove(ticket)


class AtOnce(FirstInLine):
    """Every request goes to a worker as it comes, by a rule; it waits only while no worker is in rotation.

    Args:
        placing: the rule.
    """

    def __init__(self, placing: Placing) -> None:
        super().__init__()
        self._placing = placing

    def dispatch(self, now_s: float) -> list[Assignment]:
        """Return what goes to workers now; all of it is accounted for as sent."""
        found: list[Assignment] = []
        while self.waiting and (assignment := self._placed(self.waiting[0], now_s)) is not None:
            self.waiting.popleft()
            found.append(assignment)
        return found

    def generate(self, ticket: Ticket, origin: Account, now_s: float) -> Account | None:
        """Return who generates for a request whose prompt is computed, and account for it; None if nobody can."""
        candidates = [candidate_of(one) for one in self.accounts.values()]
        order = self._placing.decode_order(_asked(ticket), candidates, tie=ticket.number, without=origin.worker)
        if not order:
            return None
        chosen = self.accounts[order[0]]
        chosen.decode_sent(ticket.tokens)
        return chosen

    def prefill_ended(
        self,
        account: Account,
        leg: Leg,
        *,
        now_s: float,
        served: bool,
        at_fault: bool = False,
    ) -> None:
        """Account for a prompt's end; whether it was computed, and whether the worker was to blame if not."""
        account.prefill_ended(leg, now_s=now_s, served=served)

    def decode_ended(self, account: Account, tokens: int) -> None:
        """Account for a request's end."""
        account.decode_ended(tokens)

    def _placed(self, ticket: Ticket, now_s: float) -> Assignment | None:
        candidates = [candidate_of(one) for one in self.accounts.values()]
        match self._placing.place(_asked(ticket), candidates, tie=ticket.number, failed=ticket.failed):
            case Split(prefill=worker):
                account = self.accounts[worker]
                leg = account.prefill_sent(ticket.tokens, ticket.tokens, now_s=now_s, hop_s=0.0)
                return Assignment(ticket, account, leg)
            case Whole(workers=workers, why=why):
                account = self.accounts[workers[0]]
                account.decode_sent(ticket.tokens)
                return Assignment(ticket, account, None, why)
            case Hold():
                return None


def candidate_of(account: Account) -> Candidate:
    """Return what a rule sees of a worker."""
    return Candidate(
        worker=account.worker,
        role=account.role,
        in_rotation=account.in_rotation,
        pending_prefill_tokens=account.pending_prefill_tokens,
        prefills_in_flight=account.prefills_in_flight,
        decodes_in_flight=account.decodes_in_flight,
        decode_context_tokens=account.decode_context_tokens,
    )


def _asked(ticket: Ticket) -> PlacementRequest:
    return PlacementRequest(prompt_tokens=ticket.tokens, whole_because=ticket.whole_because)
