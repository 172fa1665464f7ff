"""The network between workers: whoever sends KV cache shares its link, and all share what lies between them.

Each link passes its transfers one after the other. A transfer is over when the slowest of the links on its way has
passed it: the receiver's, whose queue the engine keeps, the sender's, and the fabric's.
"""


class Outlet:
    """One worker's link, as a sender."""

    __slots__ = ("free_s",)

    def __init__(self) -> None:
        self.free_s = 0.0
        """When it has passed all that it was given."""


class Fabric:
    """What lies between the links.

    Args:
        width: how many workers' links it carries at once; infinite if it never is the narrowest part.
    """

    def __init__(self, width: float) -> None:
        self._width = width
        self._free_s = 0.0

    def passed_s(self, outlet: Outlet, alone_s: float, *, now_s: float) -> float:
        """Give a transfer to the sender's link and the fabric; return after how many seconds both have passed it.

        Args:
            outlet: the sender's link.
            alone_s: how long it takes alone.
            now_s: the time.
        """
        outlet.free_s = max(now_s, outlet.free_s) + alone_s
        self._free_s = max(now_s, self._free_s) + alone_s / self._width
        return max(outlet.free_s, self._free_s) - now_s
