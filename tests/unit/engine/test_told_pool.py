"""A pool that tells: who hears all changes knows at each moment what can be found by prefix."""

from collections.abc import Hashable

from hypothesis import given
from hypothesis import strategies as st

from swingpool_control.engine.blocks import ToldPool

CHAINS = [(1,), (1, 2), (1, 2, 3), (4,), (4, 5), (6,)]
STEPS = st.lists(st.tuples(st.sampled_from(["compute", "forget"]), st.sampled_from(CHAINS)), max_size=40)


@given(STEPS, st.integers(3, 6))
def test_who_hears_all_changes_knows_what_can_be_found(steps: list[tuple[str, tuple[int, ...]]], total: int) -> None:
    pool, heard = ToldPool(total), set[Hashable]()
    for kind, chain in steps:
        if kind == "forget" and len(chain) == 1:
            pool.forget_all()
        else:
            _compute(pool, chain)
        for content, found in pool.take_changes():
            if content is None:
                heard.clear()
            elif found:
                assert content not in heard
                heard.add(content)
            else:
                heard.remove(content)
        known = {content for chain in CHAINS for content in pool_contents(pool, chain)}
        assert known <= heard, "what can be found was told"
        assert all(pool.find_prefix((content,)) for content in heard), "what was told is there"
    assert pool.take_changes() == []


def _compute(pool: ToldPool, chain: tuple[int, ...]) -> None:
    """Compute a prompt, as an engine does: share what is there, take the rest, and let go of it."""
    blocks = pool.find_prefix(chain)
    pool.share(blocks)
    missing = len(chain) - len(blocks)
    pool.take(blocks, missing)
    for index in range(len(chain) - missing, len(chain)):
        pool.remember(blocks[index], chain[index])
    pool.release(blocks, len(blocks))


def pool_contents(pool: ToldPool, chain: tuple[int, ...]) -> tuple[int, ...]:
    """Return the leading contents of a prompt that can be found."""
    return chain[: len(pool.find_prefix(chain))]
