"""Workers in the order of a figure that changes with every request: kept sorted, so that nobody looks at all."""

from collections.abc import Iterator

from swingpool_control.placement.account import Account


class Ranking:
    """Workers by a key, least first; among equal keys the one that was ranked longest ago comes first."""

    def __init__(self) -> None:
        self.accounts: list[Account] = []
        """In their order; only to be looked at."""
        self._keys: list[float] = []
        """Theirs."""
        self._key_of: dict[str, float] = {}

    def __len__(self) -> int:
        return len(self.accounts)

    def __iter__(self) -> Iterator[Account]:
        return iter(self.accounts)

    def __contains__(self, account: Account) -> bool:
        return account.worker in self._key_of

    def put(self, account: Account, key: float) -> None:
        """Rank a worker, or rank it anew."""
        known = self._key_of.get(account.worker)
        if known is not None:
            if known == key:
                return
            self._take_out(account, known)
        self._key_of[account.worker] = key
        place = self._behind(key)
        self._keys.insert(place, key)
        self.accounts.insert(place, account)

    def drop(self, account: Account) -> None:
        """Rank a worker no more."""
        known = self._key_of.pop(account.worker, None)
        if known is not None:
            self._take_out(account, known)

    def top(self) -> Account | None:
        """Return the first, None if there is none."""
        return self.accounts[0] if self.accounts else None

    def first(self, count: int) -> list[Account]:
        """Return the first so many."""
        return self.accounts[:count]

    def _take_out(self, account: Account, key: float) -> None:
        place = self._behind(key) - 1
        while self.accounts[place].worker != account.worker:
            place -= 1
        del self._keys[place], self.accounts[place]

    def _behind(self, key: float) -> int:
        """Return the place behind all whose keys are not above."""
        keys = self._keys
        low, high = 0, len(keys)
        while low < high:
            middle = (low + high) // 2
            if key < keys[middle]:
                high = middle
            else:
                low = middle + 1
        return low
