"""A worker's KV cache as its sequences hold it: blocks for their tokens, shared by prefix, kept under leases."""

from swingpool_control.engine.blocks import BlockPool, ToldPool, UnnamedPool
from swingpool_control.engine.leases import Leases
from swingpool_control.engine.sequence import Sequence
from swingpool_control.engine.work import Limits


class Cache:
    """All blocks of one engine, and who holds them.

    Args:
        limits: their number and size, whether prefixes are shared, how long a lease lasts.
        counted: whether blocks are only counted, not named.

    Raises:
        ValueError: blocks are counted, which have no names, and shall be found by prefix.
    """

    def __init__(self, limits: Limits, *, counted: bool) -> None:
        if counted and limits.prefix_caching:
            raise ValueError("blocks without names cannot be found by prefix: turn prefix_caching off")
        self.pool = _pool(limits, counted=counted)
        self.counted = counted
        self.leases = Leases(limits.lease_s)
        self._block_size = limits.block_size
        self._shares = limits.prefix_caching

    def blocks_for(self, tokens: int) -> int:
        """Return how many blocks so many tokens need."""
        return -(-tokens // self._block_size)

    def reserve(self, sequence: Sequence) -> bool:
        """Take what is cached of a sequence's prefix, if the rest of it fits beside it; else False.

        The whole must fit, though it is computed in chunks: else it would be preempted half-way, again and again.
        """
        shared: list[int] = []
        free = self.pool.free
        if self._shares:
            # The last prompt token is always computed: its result is the first generated token.
            usable = (sequence.prompt_tokens - 1) // self._block_size
            shared = self.pool.find_prefix(sequence.request.block_hashes[:usable])
            free = self.pool.free_after_sharing(shared)
        if self.blocks_for(sequence.prompt_tokens + sequence.emitted) - len(shared) > free:
            return False
        if shared:
            self.pool.share(shared)
        sequence.blocks = shared
        sequence.held = sequence.named_blocks = len(shared)
        sequence.computed = len(shared) * self._block_size
        if not sequence.started:
            sequence.started = True
            sequence.cached = sequence.computed
        return True

    def grow(self, sequence: Sequence, tokens: int) -> bool:
        """Hold blocks for so many tokens of a sequence; False, and nothing is taken, if they are not free."""
        lacking = self.blocks_for(tokens) - sequence.held
        if lacking > self.pool.free:
            return False
        if lacking > 0:
            self.pool.take(sequence.blocks, lacking)
            sequence.held += lacking
        return True

    def name(self, sequence: Sequence) -> None:
        """Let a prompt's blocks that are full now be found by others."""
        hashes = sequence.request.block_hashes
        if sequence.named_blocks >= len(hashes):
            return
        full = min(sequence.computed // self._block_size, len(hashes))
        if self._shares:
            for index in range(sequence.named_blocks, full):
                self.pool.remember(sequence.blocks[index], hashes[index])
        sequence.named_blocks = max(sequence.named_blocks, full)

    def free(self, sequence: Sequence) -> None:
        """Let go of all blocks of a sequence."""
        self.pool.release(sequence.blocks, sequence.held)
        sequence.blocks = []
        sequence.held = sequence.named_blocks = 0

    def keep(self, sequence: Sequence, *, now_s: float) -> None:
        """Keep a prompt's blocks under a lease; let go of the rest."""
        kept = self.blocks_for(sequence.prompt_tokens)
        if sequence.held > kept:
            self.pool.release(sequence.blocks[kept:], sequence.held - kept)
        self.leases.add(
            sequence.request.id,
            held=kept,
            blocks=tuple(sequence.blocks[:kept]),
            tokens=sequence.prompt_tokens,
            now_s=now_s,
        )

    def release(self, request_id: str) -> bool:
        """End a lease and free its blocks; False if there is none any more."""
        lease = self.leases.pop(request_id)
        if lease is None:
            return False
        self.pool.release(lease.blocks, lease.held)
        return True


def _pool(limits: Limits, *, counted: bool) -> BlockPool:
    if counted:
        return UnnamedPool(limits.total_blocks)
    return ToldPool(limits.total_blocks) if limits.told else BlockPool(limits.total_blocks)
