"""What a router believes of workers' caches, and how prompts become chains."""

from hypothesis import given
from hypothesis import strategies as st

from swingpool_control.placement.prefixes import Prefixes
from swingpool_control.placement.prompts import CHUNK_BYTES, chain_of

CHAINS = st.lists(st.integers(0, 3), min_size=1, max_size=6).map(
    lambda steps: tuple(hash(tuple(steps[: index + 1])) for index in range(len(steps)))
)


@given(st.lists(st.tuples(st.sampled_from("abc"), CHAINS), max_size=30), CHAINS)
def test_a_worker_has_the_longest_beginning_that_it_was_sent(
    sent: list[tuple[str, tuple[int, ...]]], asked: tuple[int, ...]
) -> None:
    prefixes = Prefixes(ttl_s=10.0)
    for worker, chain in sent:
        prefixes.used(worker, chain, most_blocks=1000, now_s=0.0)
    for worker in "abc":
        common = [
            sum(1 for one, two in zip(chain, asked, strict=False) if one == two)
            for name, chain in sent
            if name == worker
        ]
        depth = prefixes.depth(worker, asked, now_s=1.0)
        assert depth == max(common, default=0)
        assert prefixes.holders(asked, now_s=1.0).get(worker, 0) == depth
        assert prefixes.depth(worker, asked, now_s=11.0) == 0, "it is believed for so long"


def test_a_full_cache_forgets_what_was_used_longest_ago_the_tail_first() -> None:
    prefixes = Prefixes(ttl_s=10.0)
    prefixes.used("a", (1, 2, 3), most_blocks=4, now_s=0.0)
    prefixes.used("a", (7, 8), most_blocks=4, now_s=0.0)
    assert prefixes.depth("a", (1, 2, 3), now_s=0.0) == 2
    prefixes.forget("a")
    assert prefixes.holders((1, 2, 3), now_s=0.0) == {}


def chat(*contents: object) -> dict[str, object]:
    return {"model": "m", "messages": [{"role": "user", "content": content} for content in contents]}


def test_prompts_that_begin_alike_have_chains_that_begin_alike() -> None:
    shared, more = "x" * 3 * CHUNK_BYTES, "y" * 2 * CHUNK_BYTES
    one, two = chain_of(chat(shared), chat=True), chain_of(chat(shared, more), chat=True)
    assert len(one) == 3
    assert two[:2] == one[:2]
    assert len(two) > len(one)
    assert chain_of(chat(shared) | {"model": "lora"}, chat=True)[:1] != one[:1], "another model has another cache"
    assert chain_of(chat(shared) | {"tools": [{"type": "function"}]}, chat=True)[:1] != one[:1]


def test_completions_and_tokens_have_chains_and_odd_bodies_have_none() -> None:
    assert len(chain_of({"prompt": "x" * 2 * CHUNK_BYTES}, chat=False)) == 2
    assert len(chain_of({"prompt": [1] * CHUNK_BYTES}, chat=False)) == 4
    odd: list[dict[str, object]] = [{}, {"prompt": None}, {"prompt": ["a", "b"]}, {"prompt": 3}, {"messages": 3}]
    assert all(chain_of(body, chat=is_chat) == () for body in odd for is_chat in (True, False))
    assert chain_of(chat([{"type": "image_url", "image_url": {"url": "x" * 5000}}], 3), chat=True)
