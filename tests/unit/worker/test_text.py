"""Tokens and text: the same everywhere, and countable."""

from hypothesis import given
from hypothesis import strategies as st

from swingpool.worker import text

BLOCK = 4


@given(st.text(max_size=400), st.integers(0, 300))
def test_an_answer_follows_from_the_prompt_alone(prompt: str, tokens: int) -> None:
    one = text.from_text(prompt, block_size=BLOCK, seed=1)
    two = text.from_text(prompt, block_size=BLOCK * 2, seed=1)
    assert text.answer(one.seed, tokens) == text.answer(two.seed, tokens)
    assert one.tokens == two.tokens


@given(st.integers(), st.integers(1, 300))
def test_an_answer_has_as_many_tokens_as_it_was_generated_from(seed: int, tokens: int) -> None:
    answer = text.answer(seed, tokens)
    assert answer.isascii()
    assert text.from_text(answer, block_size=BLOCK, seed=0).tokens == tokens


@given(st.text(min_size=1, max_size=200))
def test_four_characters_are_a_token(prompt: str) -> None:
    assert text.from_text(prompt, block_size=BLOCK, seed=0).tokens == -(-len(prompt) // 4)


def test_an_empty_prompt_is_one_token() -> None:
    assert text.from_text("", block_size=BLOCK, seed=0).tokens == 1


@given(st.lists(st.integers(0, 2**31), min_size=1, max_size=50), st.lists(st.integers(0, 9), max_size=20))
def test_token_ids_are_counted_exactly_and_share_their_prefix(ids: list[int], more: list[int]) -> None:
    short = text.from_ids(ids, block_size=BLOCK, seed=0)
    longer = text.from_ids([*ids, *more], block_size=BLOCK, seed=0)
    assert short.tokens == len(ids)
    assert len(short.block_hashes) == len(ids) // BLOCK
    assert longer.block_hashes[: len(short.block_hashes)] == short.block_hashes


def test_a_change_at_the_start_changes_all_blocks() -> None:
    one = text.from_text("a" + "x" * 63, block_size=BLOCK, seed=0).block_hashes
    two = text.from_text("b" + "x" * 63, block_size=BLOCK, seed=0).block_hashes
    assert len(one) == len(two) == 4
    assert not set(one) & set(two)


def test_seeds_and_choices_differ() -> None:
    first = text.from_text("hello", block_size=BLOCK, seed=0)
    assert first.seed != text.from_text("hello", block_size=BLOCK, seed=1).seed
    assert text.variant(first.seed, 0) == first.seed
    assert text.variant(first.seed, 1) != first.seed


def test_natural_lengths_spread_around_their_mean() -> None:
    lengths = [text.natural_length(text.from_ids([n], block_size=BLOCK, seed=0).seed) for n in range(4000)]
    mean = sum(lengths) / len(lengths)
    assert abs(mean - text.MEAN_OUTPUT_TOKENS) < 0.05 * text.MEAN_OUTPUT_TOKENS
    assert min(lengths) >= 1
    assert max(lengths) > 2 * mean


@given(st.text(min_size=1, max_size=200))
def test_a_text_and_its_token_ids_have_the_same_blocks(prompt: str) -> None:
    ids = text.tokens_of(prompt)
    assert len(ids) == text.from_text(prompt, block_size=BLOCK, seed=0).tokens
    blocks = text.told(ids, block_size=BLOCK)
    assert blocks == text.told([*ids, 7], block_size=BLOCK)[: len(blocks)]
    assert len(blocks) == len(ids) // BLOCK
    if blocks:
        other = text.told([ids[0] + 1, *ids[1:]], block_size=BLOCK)
        assert not set(blocks) & set(other)


def test_an_empty_text_is_one_token_id() -> None:
    assert len(text.tokens_of("")) == 1
