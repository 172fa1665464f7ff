"""Prompts that wait for one certain worker, which has their beginning in its cache or is the only one left to try."""

from bisect import insort
from collections.abc import Iterator
from itertools import islice

from swingpool_control.placement.account import Account
from swingpool_control.placement.ticket import Ticket

_Entry = tuple[float, int, Ticket, float]
"""Key, serial, ticket, and the seconds that it is predicted to take there."""


class Held:
    """Such prompts by worker, each worker's in their order."""

    def __init__(self) -> None:
        self._entries: dict[str, list[_Entry]] = {}
        self._accounts: dict[str, Account] = {}
        self._where: dict[Ticket, str] = {}
        self.tokens = 0

    def __len__(self) -> int:
        return len(self._where)

    def __contains__(self, ticket: Ticket) -> bool:
        return ticket in self._where

    def accounts(self) -> Iterator[Account]:
        """Return the workers that are waited for."""
        return iter(list(self._accounts.values()))

    def hold(self, ticket: Ticket, account: Account, work_s: float) -> None:
        """Let a prompt wait for a worker."""
        insort(self._entries.setdefault(account.worker, []), (ticket.key, ticket.serial, ticket, work_s))
        self._accounts[account.worker] = account
        self._where[ticket] = account.worker
        account.held_s += work_s
        self.tokens += ticket.tokens

    def some(self, count: int) -> list[Account]:
        """Return at most so many of the workers that are waited for."""
        return list(islice(self._accounts.values(), count))

    def last(self, account: Account) -> tuple[Ticket, float]:
        """Return the last of the prompts that wait for a worker, and the seconds that it is predicted to take there."""
        entry = self._entries[account.worker][-1]
        return entry[2], entry[3]

    def of(self, account: Account) -> list[Ticket]:
        """Return all prompts that wait for a worker."""
        return [entry[2] for entry in self._entries.get(account.worker, ())]

    def oldest_s(self) -> float | None:
        """Return when the one that has waited longest arrived, None if none waits."""
        return min((ticket.arrived_s for ticket in self._where), default=None)

    def release(self, ticket: Ticket) -> bool:
        """Let a prompt wait no more; False if it did not."""
        worker = self._where.pop(ticket, None)
        if worker is None:
            return False
        entries = self._entries[worker]
        index = next(number for number, entry in enumerate(entries) if entry[2] is ticket)
        account = self._accounts[worker]
        account.held_s = max(0.0, account.held_s - entries[index][3])
        self.tokens -= ticket.tokens
        del entries[index]
        if not entries:
            account.held_s = 0.0
            del self._entries[worker], self._accounts[worker]
        return True
