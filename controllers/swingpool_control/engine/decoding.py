"""The sequences of a batch that decode, as a group: an iteration that only repeats itself costs no work per sequence.

Each of them gets one token in each iteration, so all that changes follows from how many iterations there were. The
group counts these (`ticks`). It knows when its next sequence has all its tokens, and, as a sequence needs a new block
once in `block_size` iterations, which of them need one now.
"""

from swingpool_control.engine.sequence import Sequence


class Decoding:
    """The group.

    Args:
        block_size: tokens per KV block.
    """

    def __init__(self, block_size: int) -> None:
        self._block_size = block_size
        self.ticks = 0
        """Iterations that are over."""
        self.size = 0
        self._offsets = 0
        """Sum over the sequences of their computed tokens less `ticks`."""
        self._ends: dict[int, list[tuple[int, Sequence]]] = {}
        """Who ends at which tick, with their turns; some entries are out of date."""
        self._none_before = 0
        """No sequence ends at an earlier tick."""
        self._turns = 0
        self._growing: list[dict[Sequence, None]] = [{} for _ in range(block_size)]
        """The sequences that need a new block in iterations whose tick leaves this rest, in the batch's order."""

    @property
    def context_tokens(self) -> int:
        """Tokens that the next iteration reads: what is computed, and one more for each sequence."""
        return self._offsets + self.size * (self.ticks + 1)

    def join(self, sequence: Sequence) -> None:
        """Take in a sequence that misses one token, after all that stand before it in the batch."""
        self._turns += 1
        sequence.decoding, sequence.turn = True, self._turns
        offset = sequence.computed - self.ticks
        sequence.offset_tokens = offset
        self.size += 1
        self._offsets += offset
        self._growing[-offset % self._block_size][sequence] = None
        last_tick = self.ticks + sequence.output_tokens - sequence.emitted
        if self.size == 1 or last_tick < self._none_before:
            self._none_before = last_tick
        alike = self._ends.get(last_tick)
        if alike is None:
            self._ends[last_tick] = [(self._turns, sequence)]
        else:
            alike.append((self._turns, sequence))

    def leave(self, sequence: Sequence, *, under_way: bool) -> None:
        """Let go of a sequence and bring its figures up to date.

        Args:
            sequence: the sequence.
            under_way: whether it holds the block for an iteration that is not over.
        """
        offset = sequence.offset_tokens
        sequence.decoding = False
        sequence.computed = offset + self.ticks
        sequence.emitted = sequence.computed + 1 - sequence.prompt_tokens
        sequence.held = -(-(sequence.computed + under_way) // self._block_size)
        self.size -= 1
        self._offsets -= offset
        del self._growing[-offset % self._block_size][sequence]

    def emitted(self, sequence: Sequence) -> int:
        """Return how many tokens one of its sequences has emitted."""
        return sequence.offset_tokens + self.ticks + 1 - sequence.prompt_tokens

    def growing(self, ahead: int) -> dict[Sequence, None]:
        """Return the sequences that need a new block in the next iteration, or in one that is further ahead."""
        return self._growing[(self.ticks + ahead) % self._block_size]

    def ended(self) -> list[Sequence]:
        """Return the sequences that have all their tokens now, in the batch's order; ask at each tick that ends some.

        They are still in the group.
        """
        found: list[Sequence] = []
        due = self._ends.get(self.ticks)
        if due is None:
            return found
        del self._ends[self.ticks]
        for turn, sequence in due:
            if sequence.decoding and sequence.turn == turn:
                found.append(sequence)
        return found

    def until_end(self) -> int:
        """Return the iterations until the first sequence has all its tokens; 0 for an empty group."""
        if not self.size:
            return 0
        tick = self._none_before if self._none_before > self.ticks else self.ticks
        while not self._ends_any(tick):
            tick += 1
        self._none_before = tick
        return tick - self.ticks

    def _ends_any(self, tick: int) -> bool:
        """Tell whether any sequence has all its tokens at a tick; forget entries that are out of date."""
        due = self._ends.get(tick)
        if due is None:
            return False
        for turn, sequence in due:
            if sequence.decoding and sequence.turn == turn:
                return True
        del self._ends[tick]
        return False

    def blocks_needed(self, iterations: int) -> int:
        """Return the blocks that so many iterations need that follow the one under way."""
        rounds, rest = divmod(iterations, self._block_size)
        return rounds * self.size + sum(len(self.growing(1 + ahead)) for ahead in range(rest))

    def within(self, iterations: int, *, free_blocks: int) -> int:
        """Return how many of so many iterations that follow the one under way find all the blocks that they need."""
        size, block_size = self.size, self._block_size
        if -(-iterations // block_size) * size <= free_blocks:
            return iterations
        rounds = min(iterations // block_size, free_blocks // size)
        found, free_blocks = rounds * block_size, free_blocks - rounds * size
        while found < iterations:
            free_blocks -= len(self.growing(1 + found))
            if free_blocks < 0:
                break
            found += 1
        return found
