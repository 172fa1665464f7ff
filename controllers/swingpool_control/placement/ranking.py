"""Workers in the order of a figure that changes with every request: kept sorted, so that nobody looks at all."""

from bisect import bisect_left, insort
from collections.abc import Iterator

from swingpool_control.placement.account import Account

Entry = tuple[float, int, Account]


class Ranking:
    """Workers by a key, least first; among equal keys the one that was ranked longest ago comes first."""

    def __init__(self) -> None:
        self._entries: list[Entry] = []
        self._entry_of: dict[str, Entry] = {}
        self._stamp = 0

    def __len__(self) -> int:
        return len(self._entries)

    def __iter__(self) -> Iterator[Account]:
        for _, _, account in self._entries:
            yield account

    def __contains__(self, account: Account) -> bool:
        return account.worker in self._entry_of

    def put(self, account: Account, key: float) -> None:
        """Rank a worker, or rank it anew."""
        known = self._entry_of.get(account.worker)
        if known is not None:
            if known[0] == key:
                return
            del self._entries[bisect_left(self._entries, known)]
        self._stamp += 1
        entry = (key, self._stamp, account)
        self._entry_of[account.worker] = entry
        insort(self._entries, entry)

    def drop(self, account: Account) -> None:
        """Rank a worker no more."""
        known = self._entry_of.pop(account.worker, None)
        if known is not None:
            del self._entries[bisect_left(self._entries, known)]

    def top(self) -> Account | None:
        """Return the first, None if there is none."""
        return self._entries[0][2] if self._entries else None

    def first(self, count: int) -> list[Account]:
        """Return the first so many."""
        return [entry[2] for entry in self._entries[:count]]
