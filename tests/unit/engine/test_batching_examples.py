"""The engine by worked examples: the numbers were computed by hand."""

from typing import Any, NamedTuple

import pytest

from swingpool_control.engine.batching import BatchingEngine
from swingpool_control.engine.linear import LinearModel, StepCost
from swingpool_control.engine.work import Iteration, Limits, Request, Token


def model(**changes: float) -> LinearModel:
    costs: dict[str, Any] = {"prefill_base_s": 0.1, "prefill_token_s": 0.01, "prefill_context_token2_s": 0.001}
    return LinearModel(
        name="by hand",
        step=StepCost(base_s=1.0, sequence_s=0.2, context_token_s=0.03, **{**costs, **changes}),
        kv_capacity_tokens=10_000,
        kv_bytes_per_token=10,
        max_batched_tokens=8,
        max_sequences=4,
        link_bytes_per_s=20,
        link_latency_s=1.0,
        startup_s=0,
    )


def engine(*, blocks: int = 100, budget: int = 8, sequences: int = 4, block_size: int = 4) -> BatchingEngine:
    limits = Limits(
        block_size=block_size, total_blocks=blocks, max_batched_tokens=budget, max_sequences=sequences, lease_s=30
    )
    return BatchingEngine(model(), limits)


class Step(NamedTuple):
    """An iteration, and what was in it."""

    chunks: tuple[tuple[str, int], ...]
    iteration: Iteration

    @property
    def duration_s(self) -> float:
        return self.iteration.duration_s


def step(of: BatchingEngine, now_s: float = 0.0) -> tuple[Step, list[Token]]:
    iteration = of.schedule(now_s=now_s)
    assert iteration is not None
    chunks = of.chunks
    return Step(chunks, iteration), of.complete(now_s=now_s + iteration.duration_s)


def test_a_prompt_is_chunked_by_the_budget_and_then_decodes() -> None:
    one = engine(budget=8)
    one.add(Request(id="a", prompt_tokens=12, output_tokens=2))
    first, tokens = step(one)
    assert first.chunks == (("a", 8),)
    assert first.duration_s == pytest.approx(1.0 + 0.1 + 8 * 0.01 + 32 * 0.001)
    assert not tokens
    second, tokens = step(one)
    assert second.chunks == (("a", 4),)
    assert second.duration_s == pytest.approx(1.0 + 0.1 + 4 * 0.01 + (4 * 8 + 8) * 0.001)
    assert tokens == [Token("a", 0, False)]
    third, tokens = step(one)
    assert third.iteration.decode_sequences == 1
    assert third.duration_s == pytest.approx(1.0 + 0.2 + 13 * 0.03)
    assert tokens == [Token("a", 1, True)]
    assert one.idle
    assert one.schedule(now_s=0) is None


def test_running_sequences_decode_before_new_prompts_are_computed() -> None:
    one = engine(budget=6)
    one.add(Request(id="a", prompt_tokens=2, output_tokens=9))
    step(one)
    one.add(Request(id="b", prompt_tokens=10, output_tokens=1))
    mixed, _ = step(one)
    assert mixed.chunks == (("a", 1), ("b", 5))
    assert (mixed.iteration.prefill_tokens, mixed.iteration.decode_sequences) == (5, 1)
    assert (one.running, one.waiting) == (2, 0)


def test_sequences_beyond_the_limit_wait() -> None:
    one = engine(sequences=1)
    for name in "ab":
        one.add(Request(id=name, prompt_tokens=2, output_tokens=2))
    first, _ = step(one)
    assert first.chunks == (("a", 2),)
    assert (one.running, one.waiting) == (1, 1)


def test_a_common_prefix_is_computed_once_but_never_the_last_token() -> None:
    one = engine()
    hashes = ("p0", "p1")
    one.add(Request(id="a", prompt_tokens=8, output_tokens=1, block_hashes=hashes))
    step(one)
    one.add(Request(id="b", prompt_tokens=8, output_tokens=1, block_hashes=hashes))
    again, tokens = step(one)
    assert again.chunks == (("b", 4),), "both blocks are cached; the one with the last token is computed all the same"
    assert tokens == [Token("b", 0, True)]
    assert (one.counters.local_cache_tokens, one.counters.local_compute_tokens) == (4, 12)
    assert (one.counters.prefix_hits, one.counters.prefix_queries) == (4, 16)


def test_the_youngest_is_preempted_when_blocks_run_out() -> None:
    one = engine(blocks=4, budget=100)
    one.add(Request(id="old", prompt_tokens=7, output_tokens=5))
    one.add(Request(id="young", prompt_tokens=8, output_tokens=4))
    both, _ = step(one)
    assert len(both.chunks) == 2
    assert one.pool.free == 0
    alone, _ = step(one)
    assert alone.chunks == (("old", 1),), "its token fills the block; the young one needs another and has none"
    assert one.counters.preemptions == 1
    assert (one.running, one.waiting) == (1, 1)
    produced = {"old": 2, "young": 1}
    while not one.idle:
        for token in step(one)[1]:
            assert token.number == produced[token.request], "generated tokens survive a preemption"
            produced[token.request] += 1
    assert produced == {"old": 5, "young": 4}


def test_who_has_loaded_goes_on_when_the_last_running_one_is_preempted() -> None:
    one = engine(blocks=4, budget=100)
    one.add(Request(id="grows", prompt_tokens=8, output_tokens=5))
    one.add(Request(id="loads", prompt_tokens=8, output_tokens=1, remote_prefill=True))
    step(one)
    one.loaded("loads")
    following, tokens = step(one)
    assert following.chunks == (("loads", 1),), "else nothing would ever happen again"
    assert tokens == [Token("loads", 0, True)]
    assert one.counters.preemptions == 1


def test_remote_prefill_decodes_once_its_cache_has_come() -> None:
    one = engine()
    one.add(Request(id="a", prompt_tokens=8, output_tokens=2, remote_prefill=True))
    one.add(Request(id="b", prompt_tokens=4, output_tokens=1, remote_prefill=True))
    assert one.schedule(now_s=0) is None
    transfers = one.take_transfers()
    assert [(t.request, t.tokens, t.duration_s) for t in transfers] == [("a", 8, 5.0), ("b", 4, 8.0)], (
        "1 s of latency and half a second per token; the second one waits for the link"
    )
    assert (one.running, one.waiting) == (0, 2)
    one.loaded("a")
    first, tokens = step(one)
    assert first.chunks == (("a", 1),), "nothing is left to compute but the last prompt token"
    assert tokens == [Token("a", 0, False)]
    assert one.counters.transferred_tokens == 8
    assert one.counters.local_compute_tokens == 0


@pytest.mark.parametrize("recompute", [True, False])
def test_a_failed_transfer_is_recomputed_or_ends_the_request(recompute: bool) -> None:
    one = engine()
    one.add(Request(id="a", prompt_tokens=8, output_tokens=1, remote_prefill=True))
    one.schedule(now_s=0)
    assert one.load_failed("a", recompute=recompute) is not recompute
    if recompute:
        assert step(one)[1] == [Token("a", 0, True)]
        assert one.counters.local_compute_tokens == 8
    assert one.idle
    assert one.pool.used == 0


def test_blocks_of_a_remote_decode_are_kept_until_pulled() -> None:
    one = engine()
    one.add(Request(id="a", prompt_tokens=5, output_tokens=1, remote_decode=True))
    iteration, _ = step(one)
    lease = one.lease("a")
    assert lease is not None
    assert len(lease.blocks) == 2
    assert lease.expires_s == iteration.duration_s + 30
    assert one.idle
    assert one.pool.used == 2
    assert one.release("a")
    assert one.pool.used == 0
    assert not one.release("a")


def test_a_lease_ends_by_itself_unless_it_is_renewed() -> None:
    one = engine()
    for name in "ab":
        one.add(Request(id=name, prompt_tokens=3, output_tokens=1, remote_decode=True))
    iteration, _ = step(one)
    ended_s = iteration.duration_s
    assert one.renew("b", now_s=ended_s + 20)
    assert one.next_expiry_s == ended_s + 30
    assert one.expire(now_s=ended_s + 29.9) == []
    assert one.expire(now_s=ended_s + 30) == ["a"]
    assert not one.renew("a", now_s=ended_s + 30)
    assert not one.renew("b", now_s=ended_s + 50), "too late"
    assert one.expire(now_s=ended_s + 50) == ["b"]
    assert one.counters.expired_leases == 2
    assert one.pool.used == 0


def test_aborts_free_everything_wherever_the_request_is() -> None:
    one = engine(sequences=1)
    one.add(Request(id="loading", prompt_tokens=8, output_tokens=1, remote_prefill=True))
    one.add(Request(id="running", prompt_tokens=8, output_tokens=3))
    one.add(Request(id="waiting", prompt_tokens=8, output_tokens=3))
    iteration = one.schedule(now_s=0)
    assert iteration is not None
    for name in ("running", "waiting", "loading"):
        assert one.abort(name)
        assert not one.abort(name)
    assert one.complete(now_s=1) == [], "a token that nobody waits for"
    one.loaded("loading")
    assert one.pool.used == 0
    assert one.schedule(now_s=1) is None


def test_refusals() -> None:
    one = engine(blocks=2)
    with pytest.raises(ValueError, match="9 tokens of KV cache, the engine has 8"):
        one.add(Request(id="a", prompt_tokens=8, output_tokens=1))
    with pytest.raises(ValueError, match="at least one token"):
        one.add(Request(id="a", prompt_tokens=0, output_tokens=1))
    one.add(Request(id="a", prompt_tokens=1, output_tokens=1))
    with pytest.raises(ValueError, match="exists already"):
        one.add(Request(id="a", prompt_tokens=1, output_tokens=1))
    with pytest.raises(ValueError, match="lease_s must be above zero"):
        Limits(block_size=1, total_blocks=1, max_batched_tokens=1, max_sequences=1, lease_s=0)
    with pytest.raises(ValueError, match="block_size must be 1 or more"):
        Limits(block_size=0, total_blocks=1, max_batched_tokens=1, max_sequences=1, lease_s=1)
