"""Sequences that are to be let into the batch, and in which order."""

from bisect import insort
from collections import deque

from swingpool_control.engine.sequence import Sequence


class Queues:
    """Three queues; each is served before those below it.

    Args:
        by_priority: whether each queue is in the order of priorities, and what was preempted waits among the others, as
            in vLLM's priority scheduling.
    """

    def __init__(self, *, by_priority: bool = False) -> None:
        self._by_priority = by_priority
        self.loaded: deque[Sequence] = deque()
        """They hold all the blocks they need, so whoever waited before them might wait for ever."""
        self.preempted: deque[Sequence] = deque()
        """To be computed anew; empty where priorities count."""
        self.waiting: deque[Sequence] = deque()

    @property
    def next(self) -> deque[Sequence]:
        """The queue whose first is served next; empty if all are."""
        return self.loaded or self.preempted or self.waiting

    def wait(self, sequence: Sequence) -> None:
        """Let a sequence wait that has come."""
        if self._by_priority:
            _insert(self.waiting, sequence)
        else:
            self.waiting.append(sequence)

    def wait_again(self, sequence: Sequence) -> None:
        """Let a sequence wait that was preempted, or must be computed here after all."""
        if self._by_priority:
            _insert(self.waiting, sequence)
        else:
            self.preempted.appendleft(sequence)

    def load(self, sequence: Sequence) -> None:
        """Let a sequence wait whose KV cache is there."""
        if self._by_priority:
            _insert(self.loaded, sequence)
        else:
            self.loaded.append(sequence)

    def remove(self, sequence: Sequence) -> None:
        """Forget a sequence, wherever it waits."""
        for queue in (self.loaded, self.preempted, self.waiting):
            if sequence in queue:
                queue.remove(sequence)


def _insert(queue: deque[Sequence], sequence: Sequence) -> None:
    insort(queue, sequence, key=rank_of)


def rank_of(sequence: Sequence) -> tuple[int, int]:
    """Return a sequence's place where priorities count: the smallest goes first, among equals who came first."""
    return sequence.request.priority, sequence.number
