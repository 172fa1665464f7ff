"""KV blocks: shared by prefix, evicted by age, never lost."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from swingpool_control.engine.batching import BatchingEngine
from swingpool_control.engine.blocks import BlockPool, UnnamedPool
from swingpool_control.engine.profile import built_in
from swingpool_control.engine.work import Limits


def taken(pool: BlockPool, count: int) -> list[int]:
    blocks: list[int] = []
    pool.take(blocks, count)
    return blocks


def test_the_oldest_free_block_is_taken_first_and_forgotten() -> None:
    pool = BlockPool(3)
    first = taken(pool, 2)
    for block, name in zip(first, "ab", strict=True):
        pool.remember(block, name)
    pool.release(first, len(first))
    assert pool.find_prefix("ab") == first
    assert taken(pool, 1) == [2], "the block that nobody ever used comes first"
    assert taken(pool, 1) == [first[1]], "then a prompt's tail"
    assert pool.find_prefix("ab") == [first[0]], "its head is kept longest"


def test_a_shared_block_stays_until_its_last_holder_lets_go() -> None:
    pool = BlockPool(2)
    blocks = taken(pool, 1)
    pool.remember(blocks[0], "a")
    pool.share(blocks)
    pool.release(blocks, len(blocks))
    assert pool.used == 1
    pool.release(blocks, len(blocks))
    assert pool.used == 0
    pool.share(pool.find_prefix("a"))
    assert pool.used == 1, "found again after all had let go"


def test_sharing_counts_free_blocks_once() -> None:
    pool = BlockPool(4)
    held, let_go = taken(pool, 1), taken(pool, 1)
    pool.release(let_go, len(let_go))
    assert pool.free == 3
    assert pool.free_after_sharing([*held, *let_go]) == 2


def test_equal_content_is_named_once() -> None:
    pool = BlockPool(2)
    one, two = taken(pool, 2)
    pool.remember(one, "a")
    pool.remember(two, "a")
    assert pool.find_prefix("a") == [one]


def test_refusals() -> None:
    pool = BlockPool(1)
    with pytest.raises(ValueError, match="2 blocks asked for, 1 free"):
        taken(pool, 2)
    with pytest.raises(ValueError, match="block 0 is not held"):
        pool.release([0], 1)
    with pytest.raises(ValueError, match="at least one KV block"):
        BlockPool(0)


@given(steps=st.lists(st.tuples(st.booleans(), st.integers(0, 8)), max_size=40))
def test_counted_blocks_are_as_many_as_named_ones(steps: list[tuple[bool, int]]) -> None:
    named, counted = BlockPool(12), UnnamedPool(12)
    held: list[tuple[list[int], list[int]]] = []
    for takes, count in steps:
        if takes and count <= named.free:
            held.append((taken(named, count), taken(counted, count)))
        elif held:
            ours, theirs = held.pop()
            named.release(ours, len(ours))
            counted.release(theirs, len(ours))
        assert (named.free, named.used) == (counted.free, counted.used)
        if named.free < 12:
            with pytest.raises(ValueError, match="free"):
                taken(counted, counted.free + 1)
            with pytest.raises(ValueError, match="are held"):
                counted.release([], counted.used + 1)


def test_blocks_are_counted_only_where_no_prefix_is_sought() -> None:
    model = built_in("demo").model()
    limits = Limits(block_size=16, total_blocks=8, max_batched_tokens=64, max_sequences=4, lease_s=1.0)
    with pytest.raises(ValueError, match="prefix_caching off"):
        BatchingEngine(model, limits, counted=True)
    assert BatchingEngine(model, replace(limits, prefix_caching=False), counted=True).pool.free == 8
