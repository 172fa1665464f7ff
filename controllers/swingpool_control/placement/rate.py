"""How much comes in per second, as a moving average that weighs the newest most."""

from math import exp


class Rate:
    """A rate.

    Args:
        over_s: what is older than this counts little.
    """

    __slots__ = ("_at_s", "_over_s", "_sum")

    def __init__(self, *, over_s: float) -> None:
        self._over_s = over_s
        self._sum = 0.0
        self._at_s = 0.0

    def add(self, amount: float, now_s: float) -> None:
        """Count what comes in now."""
        self._sum = self._sum * exp(min(0.0, self._at_s - now_s) / self._over_s) + amount
        self._at_s = now_s

    def rate(self, now_s: float) -> float:
        """Return how much comes in per second."""
        return self._sum * exp(min(0.0, self._at_s - now_s) / self._over_s) / self._over_s
