"""A fixed number of workers in fixed roles."""

from swingpool_control.api.status import FlipRecord
from swingpool_control.simulation.policies.interface import JOIN_SHORTEST_QUEUE, Board, Given, Placing


class Static:
    """Decides nothing."""

    flips: tuple[FlipRecord, ...] = ()

    def __init__(self, _: Given, placing: Placing = JOIN_SHORTEST_QUEUE) -> None:
        self.placing = placing

    def round(self, board: Board, *, now_unix_s: float) -> None:
        """Leave everything as it is."""
