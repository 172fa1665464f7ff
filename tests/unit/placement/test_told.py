"""What workers tell of their caches: whatever they store and remove, in whatever order, is looked up as it is."""

from array import array
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from swingpool_control.placement.cache_events import CacheEvent, Cleared, Key, Removed, Stored, Unfollowed
from swingpool_control.placement.chains import MOST_BLOCKS, chain_of, common
from swingpool_control.placement.told import Told

SIZE = 4
WORKERS = ("a", "b", "c")
PROMPTS = [[first, *[second] * 3, *[third] * 4, *range(8)] for first in (1, 2) for second in (1, 2) for third in (1, 2)]
"""Of four blocks: any two have none, one or two in common, or all."""


def chain(tokens: list[int]) -> tuple[int, ...]:
    return chain_of(tokens, block_tokens=SIZE)


@dataclass
class Engine:
    """A worker's cache, by the plainest of means: how often each beginning of a prompt lies there."""

    copies: Counter[tuple[int, ...]] = field(default_factory=Counter)

    def store(self, tokens: list[int], start: int, end: int) -> Stored:
        keys = [self.key(tokens[: (index + 1) * SIZE]) for index in range(start, end)]
        for index in range(start, end):
            self.copies[tuple(tokens[: (index + 1) * SIZE])] += 1
        return Stored(
            keys=tuple(keys),
            parent=self.key(tokens[: start * SIZE]) if start else None,
            tokens=tokens[start * SIZE : end * SIZE],
            block_tokens=SIZE,
        )

    def remove(self, content: tuple[int, ...]) -> Removed:
        self.copies[content] -= 1
        if not self.copies[content]:
            del self.copies[content]
        return Removed(keys=(self.key(list(content)),))

    def clear(self) -> Cleared:
        self.copies.clear()
        return Cleared()

    def depth(self, tokens: list[int]) -> int:
        for index in range(len(tokens) // SIZE):
            if not self.copies[tuple(tokens[: (index + 1) * SIZE])]:
                return index
        return len(tokens) // SIZE

    @staticmethod
    def key(tokens: list[int]) -> Key:
        return hash((7, *tokens))


@given(st.data(), st.booleans())
def test_whatever_is_stored_and_removed_is_looked_up_as_it_is(data: st.DataObject, ends_first: bool) -> None:
    told, engines = Told(), {worker: Engine() for worker in WORKERS}
    for worker in WORKERS:
        told.begin(worker)
    for _ in range(data.draw(st.integers(0, 40))):
        worker = data.draw(st.sampled_from(WORKERS))
        told.take(worker, step(engines[worker], data, ends_first=ends_first))
    for tokens in PROMPTS:
        depths = {worker: engine.depth(tokens) for worker, engine in engines.items()}
        assert {worker: told.depth(worker, chain(tokens)) for worker in WORKERS} == depths
        assert told.holders(chain(tokens)) == {worker: depth for worker, depth in depths.items() if depth}
    for worker, engine in engines.items():
        assert told.knows(worker)
        assert told.count(worker) == len(engine.copies)
        told.forget(worker)
    assert not told._holders, "nothing is left of workers that are followed no more"
    assert not told._headless


def step(engine: Engine, data: st.DataObject, *, ends_first: bool) -> CacheEvent:
    """Let something happen that can happen to a cache: blocks follow those that are there."""
    kind = data.draw(st.sampled_from(["store", "store", "store", "remove", "clear"]))
    contents = sorted(engine.copies, key=lambda content: (-len(content), content))
    if kind == "remove" and contents:
        if ends_first:
            ends = [one for one in contents if not any(other != one and other[: len(one)] == one for other in contents)]
            return engine.remove(data.draw(st.sampled_from(ends)))
        return engine.remove(data.draw(st.sampled_from(contents)))
    if kind == "clear" and data.draw(st.booleans()):
        return engine.clear()
    tokens = data.draw(st.sampled_from(PROMPTS))
    start = data.draw(st.integers(0, engine.depth(tokens)))
    return engine.store(tokens, min(start, 3), data.draw(st.integers(min(start, 3) + 1, 4)))


def test_a_content_is_gone_with_the_last_block_that_holds_it() -> None:
    told, engine = Told(), Engine()
    told.begin("a")
    tokens = PROMPTS[0]
    told.take("a", engine.store(tokens, 0, 4))
    told.take("a", engine.store(tokens, 0, 4))  # two prompts at once: neither found what the other computes
    told.take("a", engine.remove(tuple(tokens[:SIZE])))
    assert told.depth("a", chain(tokens)) == 4
    told.take("a", engine.remove(tuple(tokens[:SIZE])))
    assert told.depth("a", chain(tokens)) == 0


def test_blocks_without_a_known_beginning_count_for_nothing_and_say_that_not_all_is_known() -> None:
    told, engine = Told(), Engine()
    told.begin("a", missing="its history is too long")
    told.take("a", engine.store(PROMPTS[0], 2, 4))
    assert told.depth("a", chain(PROMPTS[0])) == 0
    assert told.count("a") == 2
    assert told.why_not("a") == "its history is too long"
    told.take("a", engine.store(PROMPTS[-1], 0, 3))
    assert told.depth("a", chain(PROMPTS[-1])) == 3, "what it told of is there, whatever else is"
    told.take("a", Removed(keys=(Engine.key(PROMPTS[0][: 3 * SIZE]),)))
    assert told.count("a") == 4
    told.take("a", Cleared())
    assert told.knows("a"), "with nothing there, nothing is missing"


def test_who_is_quiet_is_not_known_until_it_speaks() -> None:
    told = Told()
    assert told.why_not("a") == "it is not followed"
    told.begin("a")
    told.quiet("a", "the connection broke")
    assert (told.knows("a"), told.why_not("a")) == (False, "the connection broke")
    told.quiet("a", "")
    assert told.knows("a")
    told.take("a", Unfollowed(why="it has blocks of a second kind"))
    assert told.why_not("a") == "it has blocks of a second kind"


def test_after_something_that_is_not_followed_nothing_is_known_and_for_good_nothing_ever() -> None:
    told, engine = Told(), Engine()
    told.begin("a")
    told.take("a", engine.store(PROMPTS[0], 0, 4))
    told.take("a", Unfollowed(why="a message was not read"))
    assert told.depth("a", chain(PROMPTS[0])) == 0, "it may have told that they are gone"
    told.take("a", engine.store(PROMPTS[0], 0, 3))
    assert told.depth("a", chain(PROMPTS[0])) == 3
    told.take("a", Unfollowed(why="a second kind", for_good=True))
    told.take("a", engine.store(PROMPTS[0], 0, 3))
    told.take("a", Cleared())
    assert (told.depth("a", chain(PROMPTS[0])), told.why_not("a")) == (0, "a second kind")


def test_events_that_contradict_themselves_are_told_from_others() -> None:
    for worker, event in {
        "a": Stored(keys=(1, 2), parent=None, tokens=[1] * 7, block_tokens=4),
        "b": Stored(keys=(1,), parent=None, tokens=[1] * 4, block_tokens=4, extras=("x", "y")),
        "c": Stored(keys=(1,), parent=None, tokens=[2**70] * 4, block_tokens=4),
    }.items():
        told = Told()
        told.begin(worker)
        told.take(worker, event)
        assert not told.knows(worker)
        assert told.count(worker) == 0
    told = Told()
    told.begin("a")
    told.take("a", Stored(keys=(1,), parent=None, tokens=[1] * 4, block_tokens=4))
    told.take("a", Stored(keys=(2,), parent=None, tokens=[1] * 8, block_tokens=8))
    assert "blocks are of 8 tokens" in told.why_not("a")


def test_adapters_and_salts_keep_prompts_apart() -> None:
    tokens = PROMPTS[0]
    plain = chain(tokens)
    adapter = chain_of(tokens, block_tokens=SIZE, adapter="sql")
    salted = chain_of(tokens, block_tokens=SIZE, salt="mine")
    assert len({plain[0], adapter[0], salted[0]}) == len({plain[3], adapter[3], salted[3]}) == 3
    told = Told()
    told.begin("a")
    keys = (1, 2, 3, 4)
    extras = ("['sql']",) * 4
    told.take("a", Stored(keys=keys, parent=None, tokens=tokens, block_tokens=SIZE, extras=extras))
    assert [told.depth("a", one) for one in (plain, adapter, salted)] == [0, 4, 0]


@given(st.lists(st.integers(0, 3), max_size=30), st.lists(st.integers(0, 3), max_size=30))
def test_prompts_share_as_many_blocks_as_they_begin_alike(one: list[int], other: list[int]) -> None:
    alike = 0
    while alike < min(len(one), len(other)) and one[alike] == other[alike]:
        alike += 1
    assert common(chain(one), chain(other)) == alike // SIZE


def test_tokens_may_come_as_a_list_or_packed() -> None:
    assert chain_of(array("q", range(20)), block_tokens=SIZE) == chain(list(range(20)))
    odd: Any = array("d", [1.0] * 20)
    assert chain_of(odd, block_tokens=SIZE) == ()


def test_a_prompt_that_is_no_list_of_numbers_has_no_blocks() -> None:
    prompts: list[Any] = [[2**64] * 8, ["a"] * 8, [1.5] * 8]
    for odd in prompts:
        assert chain_of(odd, block_tokens=SIZE) == ()
    assert len(chain_of(range(8 * MOST_BLOCKS), block_tokens=SIZE)) == MOST_BLOCKS
