"""Which workers are whose, where several pickers serve one cluster and share nothing.

A picker knows what it sent itself at once, and what others sent a second later or, of prompts, hardly ever: they are
done by then. Pickers that all send to whoever looks idle meet at the same workers. So each minds a part of the workers
first. All of them see the same workers and the same pickers, and so find the same parts without a word.
"""

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """One picker's part: the `number`th of `of`, from 0."""

    number: int = 0
    of: int = 1

    def own(self, workers: Sequence[str]) -> Sequence[str]:
        """Return one's own of the workers of a role, which must be in the same order with all pickers.

        Parts are of one size, whatever the numbers: who lies on a border belongs to both sides. Where there are fewer
        workers than pickers, each has one, together with others.
        """
        count = len(workers)
        first = self.number * count // self.of
        last = -(-(self.number + 1) * count // self.of)
        return workers[first:last]

    def sharers(self, workers: Sequence[str]) -> dict[str, int]:
        """Return in how many parts each worker is."""
        found = dict.fromkeys(workers, 0)
        for number in range(self.of):
            for worker in Part(number=number, of=self.of).own(workers):
                found[worker] += 1
        return found
