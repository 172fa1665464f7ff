"""Sequences that are to be let into the batch, and in which order."""

from collections import deque

from swingpool_control.engine.sequence import Sequence


class Queues:
    """Three queues; each is served before those below it."""

    def __init__(self) -> None:
        self.loaded: deque[Sequence] = deque()
        """They hold all the blocks they need, so whoever waited before them might wait for ever."""
        self.preempted: deque[Sequence] = deque()
        """To be computed anew."""
        self.waiting: deque[Sequence] = deque()

    @property
    def next(self) -> deque[Sequence]:
        """The queue whose first is served next; empty if all are."""
        return self.loaded or self.preempted or self.waiting

    def remove(self, sequence: Sequence) -> None:
        """Forget a sequence, wherever it waits."""
        for queue in (self.loaded, self.preempted, self.waiting):
            if sequence in queue:
                queue.remove(sequence)
