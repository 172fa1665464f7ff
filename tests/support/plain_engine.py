"""Continuous batching as plainly as it can be said: what the engine does for a group, done for one sequence at a time.

The engine is compared with it, step by step. Each iteration computes some of the tokens that its sequences miss; a
sequence that misses none emits one more. So a decoding sequence is one that misses one token.
"""

from collections import OrderedDict, deque
from dataclasses import dataclass

from swingpool_control.engine.blocks import BlockPool
from swingpool_control.engine.model import PerformanceModel
from swingpool_control.engine.sequence import Sequence
from swingpool_control.engine.work import Counters, Lease, Limits, Request, Token, Transfer


@dataclass(frozen=True)
class PlainIteration:
    """One pass over the batch."""

    chunks: tuple[tuple[str, int], ...]
    duration_s: float
    prefill_tokens: int
    decode_sequences: int


class PlainEngine:
    """One worker's scheduler and KV cache."""

    def __init__(self, model: PerformanceModel, limits: Limits) -> None:
        self.model = model
        self.limits = limits
        self.pool = BlockPool(limits.total_blocks)
        self.counters = Counters(limits.prefix_caching)
        self._sequences: dict[str, Sequence] = {}
        self._waiting: deque[Sequence] = deque()
        self._preempted: deque[Sequence] = deque()
        """Before all that wait, to be computed anew."""
        self._loading: dict[str, Sequence] = {}
        self._loaded: deque[Sequence] = deque()
        """Before all others: they hold all the blocks they need, so whoever waited before them might wait for ever."""
        self._running: list[Sequence] = []
        self._leases: OrderedDict[str, Lease] = OrderedDict()
        self._transfers: list[Transfer] = []
        self._link_free_s = 0.0
        self._added = 0

    # What it knows

    @property
    def running(self) -> int:
        """Sequences in the batch."""
        return len(self._running)

    @property
    def waiting(self) -> int:
        """Sequences that are not in the batch: queued, preempted, or loading their KV cache."""
        return len(self._sequences) - len(self._running)

    @property
    def loading(self) -> int:
        """Sequences whose KV cache is on its way."""
        return len(self._loading)

    @property
    def kv_usage(self) -> float:
        """Share of the KV blocks that are held, 0-1."""
        return self.pool.used / self.pool.total

    @property
    def leases(self) -> int:
        """Finished requests whose blocks wait to be pulled."""
        return len(self._leases)

    @property
    def next_expiry_s(self) -> float | None:
        """When the next lease ends, or None if none is held."""
        return min((lease.expires_s for lease in self._leases.values()), default=None)

    @property
    def idle(self) -> bool:
        """Whether it holds no request; leases may be held still."""
        return not self._sequences

    # What comes in

    def add(self, request: Request) -> None:
        """Queue a request.

        Raises:
            ValueError: its id is in use, it is empty, or it could never fit into the KV cache.
        """
        if request.id in self._sequences or request.id in self._leases:
            raise ValueError(f"request {request.id} exists already")
        if request.prompt_tokens < 1 or request.output_tokens < 1:
            raise ValueError(f"request {request.id} needs at least one token of prompt and of output")
        if self._blocks_for(request.prompt_tokens + request.output_tokens) > self.pool.total:
            raise ValueError(
                f"request {request.id} needs {request.prompt_tokens + request.output_tokens} tokens of KV cache, "
                f"the engine has {self.pool.total * self.limits.block_size}"
            )
        self._added += 1
        sequence = Sequence(request, self._added)
        self._sequences[request.id] = sequence
        self._waiting.append(sequence)
        self._sort()

    def abort(self, request_id: str) -> bool:
        """End a request now and free its blocks; False if there is none of that id."""
        sequence = self._sequences.pop(request_id, None)
        if sequence is None:
            return False
        self._loading.pop(request_id, None)
        for queue in (self._running, self._loaded, self._preempted, self._waiting):
            if sequence in queue:
                queue.remove(sequence)
        self._free(sequence)
        return True

    def loaded(self, request_id: str) -> None:
        """Tell that a request's KV cache has arrived; a request that was aborted meanwhile is none of our business."""
        sequence = self._loading.pop(request_id, None)
        if sequence is None:
            return
        sequence.transferred = sequence.request.prompt_tokens - sequence.cached
        self._name_blocks(sequence)
        self._loaded.append(sequence)
        self._sort()

    def load_failed(self, request_id: str, *, recompute: bool) -> bool:
        """Tell that a request's KV cache cannot be had: compute the prompt here, or end the request.

        Returns:
            Whether the request ended.
        """
        if recompute:
            sequence = self._loading.pop(request_id, None)
            if sequence is not None:
                self._restart(sequence)
            return False
        return self.abort(request_id)

    # Leases

    def lease(self, request_id: str) -> Lease | None:
        """Return the lease on a finished request's blocks, or None if they were pulled or given up."""
        return self._leases.get(request_id)

    def renew(self, request_id: str, *, now_s: float) -> bool:
        """Extend a lease by its full duration; False if there is none any more."""
        lease = self._leases.get(request_id)
        if lease is None or lease.expires_s <= now_s:
            return False
        self._leases[request_id] = Lease(lease.held, lease.blocks, lease.tokens, now_s + self.limits.lease_s)
        return True

    def release(self, request_id: str) -> bool:
        """Free a lease's blocks because they were pulled or are not wanted; False if there is none any more."""
        lease = self._leases.pop(request_id, None)
        if lease is None:
            return False
        self.pool.release(lease.blocks, lease.held)
        return True

    def expire(self, *, now_s: float) -> tuple[str, ...]:
        """Free the blocks of all leases that have ended; return their requests."""
        ended = tuple(name for name, lease in self._leases.items() if lease.expires_s <= now_s)
        for name in ended:
            self.release(name)
        self.counters.expired_leases += len(ended)
        return ended

    # Iterations

    def schedule(self, *, now_s: float) -> PlainIteration | None:
        """Choose the next iteration, or None if nothing can be computed now.

        It may start transfers whether or not there is an iteration: see `take_transfers`.
        """
        self.expire(now_s=now_s)
        chunks: list[tuple[Sequence, int]] = []
        preemptions = self.counters.preemptions
        budget = self._schedule_running(chunks, self.limits.max_batched_tokens)
        # Whoever was preempted must not come back at once into the space that was made.
        if preemptions == self.counters.preemptions or not chunks:
            self._admit(chunks, budget, now_s)
        if not chunks:
            return None
        return self._iteration(chunks)

    def take_transfers(self) -> tuple[Transfer, ...]:
        """Return the transfers that `schedule` started since the last call."""
        transfers = tuple(self._transfers)
        self._transfers.clear()
        return transfers

    def complete(self, iteration: PlainIteration, *, now_s: float) -> list[Token]:
        """Account for an iteration whose time has passed; return the tokens it generated, in the batch's order.

        Requests that were aborted meanwhile are passed over.
        """
        tokens: list[Token] = []
        for request_id, count in iteration.chunks:
            sequence = self._sequences.get(request_id)
            if sequence is None:
                continue
            sequence.computed += count
            if sequence.named_blocks < len(sequence.request.block_hashes):
                self._name_blocks(sequence)
            if sequence.computed < sequence.prompt_tokens + sequence.emitted:
                continue
            index = sequence.emitted
            if not index:
                self._count_prompt(sequence)
            sequence.emitted += 1
            last = sequence.emitted >= sequence.request.output_tokens
            tokens.append(Token(request_id, index, last))
            if last:
                self._finish(sequence, now_s)
        return tokens

    def _schedule_running(self, chunks: list[tuple[Sequence, int]], budget: int) -> int:
        """Give every running sequence its next tokens, in the batch's order; preempt if blocks lack."""
        position = 0
        block_size = self.limits.block_size
        while position < len(self._running) and budget:
            sequence = self._running[position]
            count = sequence.prompt_tokens + sequence.emitted - sequence.computed
            count = min(count, budget)
            roomy = sequence.computed + count <= len(sequence.blocks) * block_size
            while not roomy and not self._grow(sequence, sequence.computed + count):
                victim = max(self._running, key=_rank) if self.limits.by_priority else self._running[-1]
                self._running.remove(victim)
                self.counters.preemptions += 1
                self._restart(victim)
                if victim is sequence:
                    break
                for chunk in [chunk for chunk in chunks if chunk[0] is victim]:
                    chunks.remove(chunk)
                    budget += chunk[1]
                    position -= 1
            if sequence not in self._running:
                continue
            chunks.append((sequence, count))
            budget -= count
            position += 1
        return budget

    def _admit(self, chunks: list[tuple[Sequence, int]], budget: int, now_s: float) -> None:
        """Let sequences into the batch in order, until one does not fit."""
        while budget and len(self._running) < self.limits.max_sequences:
            queue = self._loaded or self._preempted or self._waiting
            if not queue or (queue is not self._loaded and not self._reserve(queue[0])):
                return
            sequence = queue.popleft()
            if sequence.remote:
                self._load(sequence, now_s)
                continue
            count = min(sequence.missing, budget)
            self._grow(sequence, sequence.computed + count)
            self._running.append(sequence)
            chunks.append((sequence, count))
            budget -= count

    def _reserve(self, sequence: Sequence) -> bool:
        """Take what the prefix cache has of a sequence, if the rest of it fits beside it.

        The whole must fit, though it is computed in chunks: else it would be preempted half-way, again and again.
        """
        shared: list[int] = []
        if self.limits.prefix_caching:
            # The last prompt token is always computed: its result is the first generated token.
            usable = (sequence.request.prompt_tokens - 1) // self.limits.block_size
            shared = self.pool.find_prefix(sequence.request.block_hashes[:usable])
        if self._blocks_for(sequence.tokens) - len(shared) > self.pool.free_after_sharing(shared):
            return False
        self.pool.share(shared)
        sequence.blocks = list(shared)
        sequence.named_blocks = len(shared)
        sequence.computed = len(shared) * self.limits.block_size
        if not sequence.started:
            sequence.started = True
            sequence.cached = sequence.computed
        return True

    def _count_prompt(self, sequence: Sequence) -> None:
        """Count a prompt once, when its first token is there."""
        prompt = sequence.request.prompt_tokens
        self.counters.local_cache_tokens += sequence.cached
        self.counters.transferred_tokens += sequence.transferred
        self.counters.local_compute_tokens += prompt - sequence.cached - sequence.transferred
        if self.limits.prefix_caching:
            self.counters.prefix_queries += prompt
            self.counters.prefix_hits += sequence.cached

    def _load(self, sequence: Sequence, now_s: float) -> None:
        """Start to pull the KV cache of a sequence whose cached prefix is reserved."""
        prompt = sequence.request.prompt_tokens
        self._grow(sequence, prompt)
        tokens = prompt - sequence.computed
        sequence.computed = prompt - 1
        sequence.remote = False
        self._loading[sequence.request.id] = sequence
        start_s = max(now_s, self._link_free_s)
        self._link_free_s = start_s + self.model.transfer_s(tokens=tokens)
        self._transfers.append(
            Transfer(request=sequence.request.id, tokens=tokens, duration_s=self._link_free_s - now_s)
        )

    def _grow(self, sequence: Sequence, tokens: int) -> bool:
        """Hold blocks for so many tokens of a sequence; False, and nothing is taken, if they are not free."""
        lacking = self._blocks_for(tokens) - len(sequence.blocks)
        if lacking > self.pool.free:
            return False
        if lacking > 0:
            self.pool.take(sequence.blocks, lacking)
        return True

    def _iteration(self, chunks: list[tuple[Sequence, int]]) -> PlainIteration:
        prefill = prefill_context = decodes = decode_context = 0
        for sequence, count in chunks:
            if count == 1:
                decodes += 1
                decode_context += sequence.computed + 1
            else:
                prefill += count
                prefill_context += count * sequence.computed + count * count // 2
        return PlainIteration(
            chunks=tuple((sequence.request.id, count) for sequence, count in chunks),
            duration_s=self.model.step_s(
                prefill_tokens=prefill,
                prefill_context_tokens=prefill_context,
                decode_sequences=decodes,
                decode_context_tokens=decode_context,
            ),
            prefill_tokens=prefill,
            decode_sequences=decodes,
        )

    def _name_blocks(self, sequence: Sequence) -> None:
        """Let the prefix cache know the prompt's blocks that are full now."""
        full = min(sequence.computed // self.limits.block_size, len(sequence.request.block_hashes))
        for index in range(sequence.named_blocks, full):
            if self.limits.prefix_caching:
                self.pool.remember(sequence.blocks[index], sequence.request.block_hashes[index])
        sequence.named_blocks = max(sequence.named_blocks, full)

    def _finish(self, sequence: Sequence, now_s: float) -> None:
        request = sequence.request
        del self._sequences[request.id]
        self._running.remove(sequence)
        if request.remote_decode:
            held = sequence.blocks[: self._blocks_for(request.prompt_tokens)]
            rest = sequence.blocks[len(held) :]
            self.pool.release(rest, len(rest))
            self._leases[request.id] = Lease(
                held=len(held), blocks=tuple(held), tokens=request.prompt_tokens, expires_s=now_s + self.limits.lease_s
            )
        else:
            self._free(sequence)

    def _restart(self, sequence: Sequence) -> None:
        """Put a sequence back before all that wait, to be computed from the start."""
        self._free(sequence)
        sequence.computed = 0
        if self.limits.by_priority:
            self._waiting.append(sequence)
            self._sort()
        else:
            self._preempted.appendleft(sequence)

    def _sort(self) -> None:
        """Bring those that wait into the order of their priorities, where these count."""
        if self.limits.by_priority:
            self._waiting = deque(sorted(self._waiting, key=_rank))
            self._loaded = deque(sorted(self._loaded, key=_rank))

    def _free(self, sequence: Sequence) -> None:
        self.pool.release(sequence.blocks, len(sequence.blocks))
        sequence.blocks = []
        sequence.named_blocks = 0

    def _blocks_for(self, tokens: int) -> int:
        return -(-tokens // self.limits.block_size)


def _rank(sequence: Sequence) -> tuple[int, int]:
    return sequence.request.priority, sequence.number
