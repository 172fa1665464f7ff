"""Times between tokens, counted by the run: iterations of equal or slowly growing length, each for a whole batch."""

from swingpool_control.engine.model import PerformanceModel
from swingpool_control.simulation.histogram import Histogram, bucket_of


class Gaps:
    """Counts times between tokens, and how many of them lie within limits.

    Args:
        limits_s: the limits.
    """

    def __init__(self, limits_s: tuple[float, ...]) -> None:
        self._limits_s = limits_s
        self.within = [0] * len(limits_s)
        """For each limit, how many lie within it, all in all."""
        self._new = Histogram()

    def add(self, gap_s: float, count: int) -> None:
        """Count one so many times."""
        self._count(gap_s, gap_s, gap_s * count, count)

    def add_run(
        self, model: PerformanceModel, *, steps: int, sequences: int, context_tokens: int, pace: float = 1.0
    ) -> None:
        """Count those of decode iterations in a row: one each for every sequence.

        Args:
            model: how long they take.
            steps: how many iterations.
            sequences: sequences in the batch.
            context_tokens: what the first one reads.
            pace: what their durations are multiplied by.
        """
        first_s = pace * model.decode_steps_s(steps=1, sequences=sequences, context_tokens=context_tokens)
        if steps == 1:
            self.add(first_s, sequences)
            return
        last_context = context_tokens + (steps - 1) * sequences
        last_s = pace * model.decode_steps_s(steps=1, sequences=sequences, context_tokens=last_context)
        if bucket_of(first_s) == bucket_of(last_s) and not self._parted(first_s, last_s):
            total_s = pace * model.decode_steps_s(steps=steps, sequences=sequences, context_tokens=context_tokens)
            self._count(first_s, last_s, total_s * sequences, steps * sequences)
            return
        half = steps // 2
        middle = context_tokens + half * sequences
        self.add_run(model, steps=half, sequences=sequences, context_tokens=context_tokens, pace=pace)
        self.add_run(model, steps=steps - half, sequences=sequences, context_tokens=middle, pace=pace)

    def take(self) -> Histogram:
        """Return what was counted since the last call."""
        taken, self._new = self._new, Histogram()
        return taken

    def _parted(self, least_s: float, most_s: float) -> bool:
        return any(least_s <= limit_s < most_s for limit_s in self._limits_s)

    def _count(self, least_s: float, most_s: float, total_s: float, count: int) -> None:
        self._new.add_alike(least_s, most_s, total=total_s, count=count)
        for index, limit_s in enumerate(self._limits_s):
            if most_s <= limit_s:
                self.within[index] += count
