"""KV events as vLLM writes them, in the shapes of its versions, and how it is told to."""

from typing import Any

import pytest

from swingpool_control.placement.cache_events import CacheEvent, Cleared, Removed, Stored, Unfollowed
from swingpool_control.placement.chains import extra_of
from swingpool_control.vllm import kv_events

STORED: dict[str, Any] = {
    "type": "BlockStored",
    "block_hashes": [11, 12],
    "parent_block_hash": 10,
    "token_ids": [1, 2, 3, 4],
    "block_size": 2,
    "lora_id": 3,
    "medium": "GPU",
    "lora_name": "sql",
    "extra_keys": [["sql", "salt"], ["sql"]],
    "group_idx": 0,
    "kv_cache_spec_kind": "full_attention",
}


def _array(event: dict[str, Any], fields: int) -> list[Any]:
    return [*event.values()][:fields]


def _read(*events: object) -> list[CacheEvent]:
    return list(kv_events.events([1.0, list(events), 0]))


def test_stored_blocks_are_read_from_maps_and_from_arrays_of_any_length() -> None:
    whole = Stored(
        keys=(11, 12),
        parent=10,
        tokens=[1, 2, 3, 4],
        block_tokens=2,
        extras=(extra_of(["sql", "salt"]), extra_of(["sql"])),
    )
    assert _read(STORED, _array(STORED, 11)) == [whole, whole]
    named = (extra_of(["sql"]),) * 2
    without_keys = [one for one in _read(_array(STORED, 8), STORED | {"extra_keys": None}) if isinstance(one, Stored)]
    assert [one.extras for one in without_keys] == [named, named]
    [oldest] = _read(_array(STORED, 6))
    assert isinstance(oldest, Stored)
    assert oldest.extras == (extra_of([3]),) * 2, "of an adapter only its number is told"
    [plain] = _read(
        STORED | {"extra_keys": [None, None], "lora_name": None, "lora_id": None, "parent_block_hash": None}
    )
    assert isinstance(plain, Stored)
    assert (plain.parent, plain.extras) == (None, ("", ""))


def test_blocks_are_named_by_numbers_or_bytes() -> None:
    [event] = _read({"type": "BlockRemoved", "block_hashes": [b"x", 7], "medium": "GPU"})
    assert event == Removed(keys=(b"x", 7))
    assert _read(["BlockRemoved", [7], "GPU"], ["BlockRemoved", [7]]) == [Removed(keys=(7,))] * 2


def test_only_what_lies_in_the_accelerators_memory_is_told_of() -> None:
    cpu = STORED | {"medium": "CPU"}
    assert _read(cpu, ["BlockRemoved", [7], "STORAGE"], _array(cpu, 11)) == []


def test_all_is_cleared() -> None:
    assert _read({"type": "AllBlocksCleared"}, ["AllBlocksCleared"]) == [Cleared(), Cleared()]


def test_a_batch_may_be_a_map() -> None:
    assert list(kv_events.events({"ts": 1.0, "events": [{"type": "AllBlocksCleared"}]})) == [Cleared()]


@pytest.mark.parametrize("change", [{"group_idx": 1}, {"kv_cache_spec_kind": "sliding_window"}])
def test_caches_in_which_prefixes_count_otherwise_are_not_followed(change: dict[str, Any]) -> None:
    [event] = _read(STORED | change)
    assert isinstance(event, Unfollowed)
    assert event.for_good


@pytest.mark.parametrize(
    "batch",
    [
        None,
        [1.0],
        [1.0, "events"],
        {"ts": 1.0},
        [1.0, [7]],
        [1.0, [[]]],
        [1.0, [["BlockMoved", [7]]]],
        [1.0, [[["BlockStored"], [7]]]],
        [1.0, [{"type": "BlockStored", "block_hashes": ["a"]}]],
        [
            1.0,
            [{"type": "BlockStored", "block_hashes": [1], "token_ids": [1], "block_size": 1, "parent_block_hash": "x"}],
        ],
        [1.0, [{"type": "BlockStored", "block_hashes": [1], "token_ids": "text", "block_size": 1}]],
    ],
)
def test_what_is_no_batch_is_refused(batch: object) -> None:
    with pytest.raises(kv_events.EventError):
        list(kv_events.events(batch))


def test_what_is_told_again_comes_with_its_topic_or_without() -> None:
    assert kv_events.replayed([b"", b"topic", b"12345678", b"x"]) == (b"12345678", b"x")
    assert kv_events.replayed([b"", kv_events.END, b""]) == (kv_events.END, b"")
    with pytest.raises(kv_events.EventError):
        kv_events.replayed([b""])
    assert kv_events.number((7).to_bytes(8, "big")) == 7
    with pytest.raises(kv_events.EventError):
        kv_events.number(b"7")
