"""Whatever is asked of the engine, in whatever order: nothing leaks, nothing starves, no limit is broken."""

from dataclasses import dataclass, field, replace

from hypothesis import given, settings
from hypothesis import strategies as st

from swingpool_control.engine import profile
from swingpool_control.engine.batching import BatchingEngine
from swingpool_control.engine.work import Iteration, Limits, Request, Token, Transfer
from tests.support.plain_engine import PlainEngine, PlainIteration

MODEL = profile.built_in("demo").model()
BLOCK_SIZE = 4

limits = st.builds(
    Limits,
    block_size=st.just(BLOCK_SIZE),
    total_blocks=st.integers(12, 40),
    max_batched_tokens=st.integers(1, 64),
    max_sequences=st.integers(1, 8),
    lease_s=st.just(30.0),
    prefix_caching=st.booleans(),
    by_priority=st.booleans(),
)


@dataclass
class Plan:
    """One request and what happens to it."""

    prompt: int
    output: int
    family: int
    remote_prefill: bool
    remote_decode: bool
    arrives_at_step: int
    abort_after_steps: int | None
    load_fails: bool
    pulled: bool
    priority: int = 0
    id: str = ""
    tokens: list[int] = field(default_factory=list)


plans = st.lists(
    st.builds(
        Plan,
        prompt=st.integers(1, 30),
        output=st.integers(1, 18),
        family=st.integers(0, 2),
        remote_prefill=st.booleans(),
        remote_decode=st.booleans(),
        arrives_at_step=st.integers(0, 12),
        abort_after_steps=st.none() | st.integers(0, 20),
        load_fails=st.booleans(),
        pulled=st.booleans(),
        priority=st.integers(-1, 1),
    ),
    min_size=1,
    max_size=14,
)


def request(plan: Plan) -> Request:
    return Request(
        id=plan.id,
        prompt_tokens=plan.prompt,
        output_tokens=plan.output,
        block_hashes=tuple((plan.family, index) for index in range(plan.prompt // BLOCK_SIZE)),
        remote_prefill=plan.remote_prefill,
        remote_decode=plan.remote_decode,
        priority=plan.priority,
    )


class Harness:
    """Drives an engine through plans with a virtual clock, and checks what must hold after every step."""

    def __init__(self, engine: BatchingEngine, todo: list[Plan]) -> None:
        self.engine = engine
        self.plans = {plan.id: plan for plan in todo}
        self.live: dict[str, int] = {}
        self.ended: set[str] = set()
        self.now_s = 0.0
        self.transfers: list[tuple[float, str]] = []
        self.first_scheduled: list[str] = []
        self.arrival_order: list[str] = []

    def arrive(self, step: int) -> None:
        for plan in self.plans.values():
            if plan.arrives_at_step == step:
                self.engine.add(request(plan))
                self.live[plan.id] = step
                self.arrival_order.append(plan.id)

    def abort(self, step: int) -> None:
        for name, since in list(self.live.items()):
            after = self.plans[name].abort_after_steps
            if after is not None and step - since >= after:
                assert self.engine.abort(name)
                self.end(name)

    def end(self, name: str) -> None:
        del self.live[name]
        self.ended.add(name)

    def finish_transfers(self) -> None:
        for ready_s, name in list(self.transfers):
            if ready_s > self.now_s:
                continue
            self.transfers.remove((ready_s, name))
            if self.plans[name].load_fails:
                self.engine.load_failed(name, recompute=True)
            else:
                self.engine.loaded(name)

    def iterate(self) -> bool:
        iteration = self.engine.schedule(now_s=self.now_s)
        self.transfers += [(self.now_s + t.duration_s, t.request) for t in self.engine.take_transfers()]
        self.check_blocks()
        if iteration is None:
            return False
        self.check_iteration(iteration, self.engine.chunks)
        self.now_s += iteration.duration_s
        for token in self.engine.complete(now_s=self.now_s):
            self.token(token)
        self.check_blocks()
        return True

    def token(self, token: Token) -> None:
        plan = self.plans[token.request]
        assert token.number == len(plan.tokens), "tokens come in order, each once"
        plan.tokens.append(token.number)
        assert token.last == (len(plan.tokens) == plan.output)
        if token.last:
            self.end(token.request)
            if plan.remote_decode and plan.pulled:
                assert self.engine.release(token.request)
                assert not self.engine.release(token.request), "a second pull finds nothing"

    def check_iteration(self, iteration: Iteration, chunks: tuple[tuple[str, int], ...]) -> None:
        engine = self.engine
        assert iteration.duration_s > 0
        assert sum(count for _, count in chunks) <= engine.limits.max_batched_tokens
        assert len(chunks) == engine.running <= engine.limits.max_sequences
        assert all(count >= 1 for _, count in chunks)
        names = [name for name, _ in chunks]
        assert len(set(names)) == len(names)
        self.first_scheduled += [name for name in names if name not in self.first_scheduled]

    def check_blocks(self) -> None:
        engine = self.engine
        pool = engine.pool
        assert pool.free + pool.used == pool.total
        assert 0 <= engine.kv_usage <= 1
        assert engine.running + engine.waiting == len(self.live)
        assert engine.idle == (not self.live)
        if not self.live and not engine.leases:
            assert pool.used == 0, "blocks leaked"

    def run(self) -> None:
        step = 0
        while self.live or step <= 12:
            self.arrive(step)
            self.abort(step)
            self.finish_transfers()
            if not self.iterate():
                self.wait()
            step += 1
            assert step < 1500, "requests starve"

    def wait(self) -> None:
        """Nothing can be computed: go on to the next thing that may change it."""
        moments = [ready_s for ready_s, _ in self.transfers]
        if self.engine.next_expiry_s is not None:
            moments.append(self.engine.next_expiry_s)
        if self.live:
            assert moments or len(self.ended) + len(self.live) < len(self.plans), "stuck for ever"
        self.now_s = max(self.now_s, min(moments, default=self.now_s + 0.01))


def harness(bounds: Limits, todo: list[Plan], engine: BatchingEngine | None = None) -> Harness:
    for index, plan in enumerate(todo):
        plan.id = f"r{index}"
        plan.tokens = []
    return Harness(engine or BatchingEngine(MODEL, bounds), todo)


class Compared(BatchingEngine):
    """Does everything as the plain engine does it too, or fails; the same with blocks that are only counted."""

    def __init__(self, bounds: Limits) -> None:
        super().__init__(MODEL, bounds)
        self.plain = PlainEngine(MODEL, bounds)
        self.counting = None if bounds.prefix_caching else BatchingEngine(MODEL, bounds, counted=True)
        self.iteration: PlainIteration | None = None

    @property
    def others(self) -> tuple[PlainEngine | BatchingEngine, ...]:
        return (self.plain,) if self.counting is None else (self.plain, self.counting)

    def add(self, request: Request) -> None:
        super().add(request)
        for other in self.others:
            other.add(request)

    def abort(self, request_id: str) -> bool:
        ended = super().abort(request_id)
        assert all(other.abort(request_id) == ended for other in self.others)
        return ended

    def loaded(self, request_id: str) -> None:
        super().loaded(request_id)
        for other in self.others:
            other.loaded(request_id)

    def load_failed(self, request_id: str, *, recompute: bool) -> bool:
        ended = super().load_failed(request_id, recompute=recompute)
        if self.plain.lease(request_id) is None:
            self.plain.load_failed(request_id, recompute=recompute)
        if self.counting is not None:
            self.counting.load_failed(request_id, recompute=recompute)
        return ended

    def release(self, request_id: str) -> bool:
        released = super().release(request_id)
        assert all(other.release(request_id) == released for other in self.others)
        return released

    def schedule(self, *, now_s: float) -> Iteration | None:
        iteration = super().schedule(now_s=now_s)
        self.iteration = self.plain.schedule(now_s=now_s)
        assert (iteration is None) == (self.iteration is None)
        if iteration is not None and self.iteration is not None:
            assert self.chunks == self.iteration.chunks
            for name in ("prefill_tokens", "decode_sequences", "duration_s"):
                assert getattr(iteration, name) == getattr(self.iteration, name)
        if self.counting is not None:
            self.counting.schedule(now_s=now_s)
            assert self.counting.chunks == self.chunks
        self.compare()
        return iteration

    def take_transfers(self) -> list[Transfer]:
        started = super().take_transfers()
        assert all(list(other.take_transfers()) == started for other in self.others)
        return started

    def complete(self, *, now_s: float) -> list[Token]:
        tokens = super().complete(now_s=now_s)
        assert self.iteration is not None
        assert self.plain.complete(self.iteration, now_s=now_s) == tokens
        if self.counting is not None:
            assert self.counting.complete(now_s=now_s) == tokens
        self.compare()
        return tokens

    def compare(self) -> None:
        for other in self.others:
            for name in ("running", "waiting", "loading", "leases", "kv_usage", "idle", "counters", "next_expiry_s"):
                assert getattr(other, name) == getattr(self, name), name
        for request_id in self.plain._leases:
            assert self.plain.lease(request_id) == self.lease(request_id), "its blocks have the same names"


@settings(max_examples=100, deadline=None)
@given(bounds=limits, todo=plans)
def test_it_does_for_a_group_what_is_done_for_one_after_the_other(bounds: Limits, todo: list[Plan]) -> None:
    harness(bounds, todo, Compared(bounds)).run()


@settings(max_examples=100)
@given(bounds=limits, todo=plans)
def test_nothing_leaks_and_every_request_ends(bounds: Limits, todo: list[Plan]) -> None:
    run = harness(bounds, todo)
    run.run()
    assert run.ended == set(run.plans)
    for plan in run.plans.values():
        if plan.abort_after_steps is None:
            assert len(plan.tokens) == plan.output
    run.engine.expire(now_s=run.now_s + bounds.lease_s)
    assert run.engine.leases == 0
    assert run.engine.pool.used == 0


@given(bounds=limits, todo=plans)
def test_first_come_first_served(bounds: Limits, todo: list[Plan]) -> None:
    for plan in todo:
        plan.remote_prefill = False
        plan.abort_after_steps = None
        plan.priority = 0
    run = harness(bounds, todo)
    run.run()
    assert run.first_scheduled == run.arrival_order


@given(bounds=limits, todo=plans)
def test_who_comes_at_once_goes_by_priority_then_by_arrival(bounds: Limits, todo: list[Plan]) -> None:
    for plan in todo:
        plan.remote_prefill = False
        plan.abort_after_steps = None
        plan.arrives_at_step = 0
    run = harness(replace(bounds, by_priority=True), todo)
    run.run()
    assert run.first_scheduled == sorted(run.arrival_order, key=lambda name: run.plans[name].priority)


@given(bounds=limits, todo=plans)
def test_the_same_input_gives_the_same_output(bounds: Limits, todo: list[Plan]) -> None:
    ends = []
    for _ in range(2):
        run = harness(bounds, todo)
        run.run()
        ends.append((run.now_s, run.first_scheduled, run.engine.counters))
    assert ends[0] == ends[1]


@given(bounds=limits, todo=plans)
def test_every_prompt_token_is_accounted_for_once(bounds: Limits, todo: list[Plan]) -> None:
    for plan in todo:
        plan.abort_after_steps = None
    run = harness(bounds, todo)
    run.run()
    counters = run.engine.counters
    total = counters.local_compute_tokens + counters.local_cache_tokens + counters.transferred_tokens
    assert total == sum(plan.prompt for plan in todo)
    assert counters.prefix_hits <= counters.prefix_queries
