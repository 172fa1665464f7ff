"""Continuous batching as vLLM does it, without a clock: the simulated worker and the simulator drive the same code.

The driver alternates `schedule(now_s)` and, when the iteration's time has passed, `complete(now_s)` or, if it asks for
no single token, `advance(now_s)`. In between it may add, abort, and report how pulls of KV cache ended. Everything is
deterministic.

Each iteration computes some of the tokens that its sequences miss; a sequence that misses none emits one more. All of
the batch take part in each: a sequence is let in only while some of the token budget is left, and needs one token of it
at least. Hence all but the last one miss a single token when an iteration begins, and only the last can be a prompt in
chunks. Those that miss a single token are the group that decodes; an iteration costs no work for any one of them.

Where priorities count, whoever is last by priority and arrival is preempted, as in vLLM. If that is the sequence itself
that lacks a block, those after it in the batch go on all the same, where vLLM lets them wait for one iteration.
"""

from swingpool_control.engine.cache import Cache
from swingpool_control.engine.decoding import Decoding
from swingpool_control.engine.iterating import iteration
from swingpool_control.engine.link import Link
from swingpool_control.engine.model import PerformanceModel
from swingpool_control.engine.queues import Queues, rank_of
from swingpool_control.engine.sequence import Sequence
from swingpool_control.engine.work import Counters, Iteration, Lease, Limits, Progress, Request, Token, Transfer


class BatchingEngine:
    """One worker's scheduler and KV cache.

    Args:
        model: how long iterations and transfers take.
        limits: what the engine may do.
        counted: whether blocks are only counted, not named: faster, for drivers that ask for no block's name.

    Raises:
        ValueError: blocks are counted, which have no names, and shall be found by prefix.
    """

    def __init__(self, model: PerformanceModel, limits: Limits, *, counted: bool = False) -> None:
        self.model = model
        self.limits = limits
        self._most = limits.max_sequences
        self.counters = Counters(limits.prefix_caching)
        self._cache = Cache(limits, counted=counted)
        self.pool = self._cache.pool
        self._sequences: dict[str, Sequence] = {}
        self._queues = Queues(by_priority=limits.by_priority)
        self._by_priority = limits.by_priority
        self._added = 0
        self._loading: dict[str, Sequence] = {}
        self._running: dict[Sequence, None] = {}
        """The batch, in order."""
        self._decoding = Decoding(limits.block_size)
        """All of the batch but those of `_computing`."""
        self._computing: list[tuple[Sequence, int]] = []
        """Those of the batch that miss more, or were let in just now, and their tokens in the present iteration."""
        self._under_way = False
        self._transfers: list[Transfer] = []
        self._progress = Progress()
        self._link = Link(model)

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
        return len(self._cache.leases)

    @property
    def next_expiry_s(self) -> float | None:
        """When the next lease ends, or None if none is held."""
        return self._cache.leases.next_expiry_s

    @property
    def idle(self) -> bool:
        """Whether it holds no request; leases may be held still."""
        return not self._sequences

    @property
    def decode_context_tokens(self) -> int:
        """Tokens that the decoding sequences read in the iteration under way, summed."""
        return self._decoding.context_tokens

    @property
    def chunks(self) -> tuple[tuple[str, int], ...]:
        """Each request of the iteration under way, and how many of its tokens are computed; in the batch's order."""
        decoding = tuple((sequence.request.id, 1) for sequence in self._running if sequence.decoding)
        return decoding + tuple((sequence.request.id, count) for sequence, count in self._computing if sequence.running)

    def cached_tokens(self, request_id: str) -> int:
        """Return how many of a request's prompt tokens the prefix cache had; 0 if it is not live or not admitted."""
        sequence = self._sequences.get(request_id)
        return sequence.cached if sequence else 0

    # What comes in

    def add(self, request: Request) -> None:
        """Queue a request.

        Raises:
            ValueError: its id is in use, it is empty, or it could never fit into the KV cache.
        """
        if request.id in self._sequences or self._cache.leases.get(request.id) is not None:
            raise ValueError(f"request {request.id} exists already")
        if request.prompt_tokens < 1 or request.output_tokens < 1:
            raise ValueError(f"request {request.id} needs at least one token of prompt and of output")
        if self._cache.blocks_for(request.prompt_tokens + request.output_tokens) > self.pool.total:
            raise ValueError(
                f"request {request.id} needs {request.prompt_tokens + request.output_tokens} tokens of KV cache, "
                f"the engine has {self.pool.total * self.limits.block_size}"
            )
        self._added += 1
        sequence = Sequence(request, self._added)
        self._sequences[request.id] = sequence
        self._queues.wait(sequence)

    def abort(self, request_id: str) -> bool:
        """End a request now and free its blocks; False if there is none of that id."""
        sequence = self._sequences.pop(request_id, None)
        if sequence is None:
            return False
        if sequence.running:
            self._leave_batch(sequence)
        elif self._loading.pop(request_id, None) is None:
            self._queues.remove(sequence)
        self._cache.free(sequence)
        return True

    def loaded(self, request_id: str) -> None:
        """Tell that a request's KV cache has arrived; a request that was aborted meanwhile is none of our business."""
        sequence = self._loading.pop(request_id, None)
        if sequence is None:
            return
        sequence.transferred = sequence.prompt_tokens - sequence.cached
        self._cache.name(sequence)
        self._queues.load(sequence)

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

    def lease(self, request_id: str) -> Lease | None:
        """Return the lease on a finished request's blocks, or None if they were pulled or given up."""
        return self._cache.leases.get(request_id)

    def renew(self, request_id: str, *, now_s: float) -> bool:
        """Extend a lease by its full duration; False if there is none any more."""
        return self._cache.leases.renew(request_id, now_s=now_s)

    def release(self, request_id: str) -> bool:
        """Free a lease's blocks because they were pulled or are not wanted; False if there is none any more."""
        return self._cache.release(request_id)

    def expire(self, *, now_s: float) -> list[str]:
        """Free the blocks of all leases that have ended; return their requests."""
        ended = self._cache.leases.expired(now_s=now_s)
        for request_id in ended:
            self._cache.release(request_id)
        self.counters.expired_leases += len(ended)
        return ended

    # Iterations

    def schedule(self, *, now_s: float) -> Iteration | None:
        """Choose the next iteration, or None if nothing can be computed now.

        It may start transfers whether or not there is an iteration: see `take_transfers`.
        """
        if now_s >= self._cache.leases.none_before_s:
            self.expire(now_s=now_s)
        preemptions = self.counters.preemptions
        unfinished = self._computing
        if unfinished:
            self._computing = []
        self._grow_decoding(now_s)
        budget = self.limits.max_batched_tokens - self._decoding.size
        for sequence, _ in unfinished:
            budget -= self._go_on(sequence, budget, now_s)
        admitted: tuple[str, ...] = ()
        # Whoever was preempted must not come back at once into the space that was made.
        roomy = preemptions == self.counters.preemptions or not self._running
        if roomy and budget and len(self._running) < self._most and self._queues.next:
            admitted = self._admit(budget, now_s)
        if not self._running:
            return None
        self._under_way = True
        return iteration(self.model, self._decoding, self._computing, admitted)

    def take_transfers(self) -> list[Transfer]:
        """Return the transfers that `schedule` started since the last call."""
        started = self._transfers
        if started:
            self._transfers = []
        return started

    def complete(self, *, now_s: float) -> list[Token]:
        """Account for the iteration under way; return the tokens that it generated, in the batch's order.

        Requests that were aborted meanwhile are passed over.
        """
        tokens: list[Token] = []
        for sequence in self._running:
            if sequence.decoding:
                number = self._decoding.emitted(sequence)
                tokens.append(Token(sequence.request.id, number, number + 1 >= sequence.output_tokens))
        computing = [(sequence, sequence.emitted) for sequence, _ in self._computing]
        self.advance(now_s=now_s)
        for sequence, number in computing:
            if sequence.emitted > number:
                tokens.append(Token(sequence.request.id, number, sequence.emitted >= sequence.output_tokens))
        return tokens

    def advance(self, *, now_s: float) -> Progress:
        """Account for the iteration under way; return what it brought until the next call, but not each token."""
        decoding = self._decoding
        progress = self._progress
        progress.renew(decoding.size)
        self._under_way = False
        if decoding.size:
            decoding.ticks += 1
            for sequence in decoding.ended():
                self._leave_batch(sequence)
                self._finish(sequence, now_s)
                progress.ended.append(sequence.request.id)
        computed = self._computing
        if computed:
            self._computing = []
            for sequence, count in computed:
                if sequence.running:
                    self._compute(sequence, count, progress, now_s)
        return progress

    def foresee(self) -> int:
        """Return how many iterations follow the one under way that surely repeat it and end none, left alone."""
        blocked = len(self._running) >= self._most
        if self._computing or len(self._cache.leases) or (self._queues.next and not blocked):
            return 0
        ahead = self._decoding.until_end() - 2
        return self._decoding.within(ahead, free_blocks=self.pool.free) if ahead > 0 else 0

    def following_s(self, count: int) -> float:
        """Return the duration of so many foreseen iterations, the one under way being the first."""
        batch = self._decoding
        return self.model.decode_steps_s(steps=count, sequences=batch.size, context_tokens=batch.context_tokens)

    def repeat(self, times: int) -> None:
        """Account for so many foreseen iterations, the one under way being the first; the next is under way then."""
        decoding = self._decoding
        if self._cache.counted:
            self.pool.take([], decoding.blocks_needed(times))
            decoding.ticks += times
            return
        for _ in range(times):
            decoding.ticks += 1
            for sequence in decoding.growing(0):
                self.pool.take(sequence.blocks, 1)

    def _grow_decoding(self, now_s: float) -> None:
        """Give a block to every decoding sequence that needs one; preempt others if they lack."""
        growing = self._decoding.growing(0)
        if not growing:
            return
        if self._cache.counted and len(growing) <= self.pool.free:
            self.pool.take([], len(growing))
            return
        grown: set[Sequence] = set()
        for sequence in tuple(growing):
            while sequence.running and not self.pool.free:
                victim = self._victim()
                self._preempt(victim, now_s, grown=victim in grown)
            if sequence.running:
                self.pool.take(sequence.blocks, 1)
                grown.add(sequence)

    def _go_on(self, sequence: Sequence, budget: int, now_s: float) -> int:
        """Compute more of the sequence at the batch's end, if it is still there; return how many tokens."""
        if not sequence.running:
            return 0
        count = min(sequence.missing, budget)
        while not self._cache.grow(sequence, sequence.computed + count):
            victim = self._victim()
            self._preempt(victim, now_s, grown=True)  # whoever decodes has its block for this iteration by now
            if victim is sequence:
                return 0
        self._computing.append((sequence, count))
        return count

    def _victim(self) -> Sequence:
        """Return who is preempted next: the last of the batch, or the last by priority and arrival."""
        if self._by_priority:
            return max(self._running, key=rank_of)
        return next(reversed(self._running))

    def _preempt(self, sequence: Sequence, now_s: float, *, grown: bool) -> None:
        """Put a sequence of the batch back; `grown`: whether it has its block for this iteration already."""
        if sequence.decoding:
            sequence.last_s = now_s
        self.counters.preemptions += 1
        self._leave_batch(sequence, grown=grown)
        self._restart(sequence)

    def _admit(self, budget: int, now_s: float) -> tuple[str, ...]:
        """Let sequences into the batch in order, until one does not fit; return their requests."""
        admitted: list[str] = []
        queues = self._queues
        while budget and len(self._running) < self._most:
            queue = queues.next
            if not queue or (queue is not queues.loaded and not self._cache.reserve(queue[0])):
                break
            sequence = queue.popleft()
            if sequence.remote:
                self._load(sequence, now_s)
                continue
            count = min(sequence.missing, budget)
            self._cache.grow(sequence, sequence.computed + count)
            sequence.running = True
            self._running[sequence] = None
            self._computing.append((sequence, count))
            admitted.append(sequence.request.id)
            budget -= count
        return tuple(admitted)

    def _load(self, sequence: Sequence, now_s: float) -> None:
        """Start to pull the KV cache of a sequence whose cached prefix is reserved."""
        prompt = sequence.prompt_tokens
        self._cache.grow(sequence, prompt)
        tokens = prompt - sequence.computed
        sequence.computed = prompt - 1
        sequence.remote = False
        self._loading[sequence.request.id] = sequence
        self._transfers.append(Transfer(sequence.request.id, tokens, self._link.start(tokens, now_s=now_s)))

    def _compute(self, sequence: Sequence, count: int, progress: Progress, now_s: float) -> None:
        """Account for tokens of a sequence; if it misses none it emits one."""
        sequence.computed += count
        self._cache.name(sequence)
        if sequence.computed < sequence.prompt_tokens + sequence.emitted:
            self._computing.append((sequence, 0))
            return
        if not sequence.emitted:
            self.counters.prompt(sequence.prompt_tokens, sequence.cached, sequence.transferred)
            progress.firsts.append(sequence.request.id)
        else:
            progress.resumed_s.append(sequence.last_s)
        sequence.emitted += 1
        if sequence.emitted < sequence.output_tokens:
            self._decoding.join(sequence)
            return
        self._leave_batch(sequence)
        self._finish(sequence, now_s)
        progress.ended.append(sequence.request.id)

    def _leave_batch(self, sequence: Sequence, *, grown: bool = False) -> None:
        sequence.running = False
        del self._running[sequence]
        if sequence.decoding:
            self._decoding.leave(sequence, under_way=self._under_way or grown)

    def _finish(self, sequence: Sequence, now_s: float) -> None:
        request = sequence.request
        del self._sequences[request.id]
        if request.remote_decode:
            self._cache.keep(sequence, now_s=now_s)
        else:
            self._cache.free(sequence)

    def _restart(self, sequence: Sequence) -> None:
        """Let a sequence wait to be computed from the start: before all others, or where its priority puts it."""
        self._cache.free(sequence)
        sequence.computed = 0
        self._queues.wait_again(sequence)
