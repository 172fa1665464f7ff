"""KV events: how a worker is told to publish what it stores and removes, and what stands in what it publishes.

Over ZeroMQ each engine step that changed the cache is one message, `(topic, sequence number, batch)`, numbered from 0
on. The last ones are kept: whoever sends a number to the second socket gets all from there on, then the number -1. A
batch is MessagePack, `(time, events, rank)`. Read from `vllm/distributed/kv_events.py` and `vllm/v1/core/block_pool.py`
of 0.32, where events are maps; older versions write them as arrays of the same fields in the same order, and some write
the batch as a map. A worker that restarts counts from 0 again.
"""

import json
from collections.abc import Iterator
from typing import Any, Final

from swingpool_control import names
from swingpool_control.api.access import KVEvents
from swingpool_control.api.v1alpha1 import InferenceClusterSpec, Pool, RouterType
from swingpool_control.placement.cache_events import CacheEvent, Cleared, Key, Removed, Stored, Unfollowed
from swingpool_control.placement.chains import extra_of

END: Final = (-1).to_bytes(8, "big", signed=True)
"""The number after the last message that is sent again."""
_STORED = (
    *("block_hashes", "parent_block_hash", "token_ids", "block_size", "lora_id", "medium", "lora_name"),
    *("extra_keys", "group_idx", "kv_cache_spec_kind"),
)
_REMOVED = ("block_hashes", "medium", "group_idx")
_FIELDS: Final = {"BlockStored": _STORED, "BlockRemoved": _REMOVED, "AllBlocksCleared": ()}
_WHOLE: Final = (None, "full_attention", "mla_attention", "sink_full_attention")
"""Kinds of attention that need all blocks of a prefix. Others need the last few, so a prefix counts by other rules."""
_OWN: Final = (None, "GPU")
"""Where blocks lie that need not be loaded first; builds for processors call their memory so, too."""

Event = dict[str, Any]


class EventError(ValueError):
    """A message that is none; says what is wrong."""


def wanted(spec: InferenceClusterSpec) -> KVEvents | None:
    """Return what the spec wants; an external router has its own ways to learn of caches."""
    return spec.router.built_in.kv_events if spec.router.type is RouterType.BUILT_IN else None


def published(spec: InferenceClusterSpec, pool: Pool) -> bool:
    """Tell whether a pool's workers publish events.

    Those of several data parallel ranks do not: each rank has a cache of its own, and the engine chooses the rank.
    """
    return wanted(spec) is not None and spec.engine.prefix_caching and pool.engine.data_parallel_size == 1


def arguments(spec: InferenceClusterSpec, pool: Pool) -> list[str]:
    """Return the arguments by which a pool's workers publish; none if they shall not."""
    if not published(spec, pool):
        return []
    config = {
        "enable_kv_cache_events": True,
        "publisher": "zmq",
        "endpoint": f"tcp://*:{names.PORT_KV_EVENTS}",
        "replay_endpoint": f"tcp://*:{names.PORT_KV_REPLAY}",
    }
    return ["--kv-events-config", json.dumps(config, separators=(",", ":"))]


def number(frame: bytes) -> int:
    """Return a message's sequence number.

    Raises:
        EventError: it is none.
    """
    if len(frame) != 8:
        raise EventError(f"a sequence number has 8 bytes, not {len(frame)}")
    return int.from_bytes(frame, "big")


def replayed(frames: list[bytes]) -> tuple[bytes, bytes]:
    """Return number and batch of a message that was sent again; the number may be `END`.

    Raises:
        EventError: it is no such message. Before them stand an empty frame and, in newer versions, the topic.
    """
    if len(frames) not in (3, 4):
        raise EventError(f"a message that is sent again has 3 or 4 frames, not {len(frames)}")
    return frames[-2], frames[-1]


def events(batch: object) -> Iterator[CacheEvent]:
    """Yield what a batch tells of the accelerators' memory.

    Args:
        batch: as MessagePack has it, in plain lists and dicts.

    Raises:
        EventError: it is no batch.
    """
    listed = batch.get("events") if isinstance(batch, dict) else None
    if isinstance(batch, list) and len(batch) > 1:
        listed = batch[1]
    if not isinstance(listed, list):
        raise EventError("a batch has a list of events")
    for item in listed:
        found = _event(item)
        if found is not None:
            yield found


def _event(item: object) -> CacheEvent | None:
    kind, event = _named(item)
    if event.get("medium") not in _OWN:
        return None
    if kind == "AllBlocksCleared":
        return Cleared()
    if event.get("group_idx") not in (None, 0):
        why = "its model keeps several kinds of KV cache, which count by rules of their own"
        return Unfollowed(why=why, for_good=True)
    keys = event.get("block_hashes")
    if not isinstance(keys, list) or not all(isinstance(key, int | bytes) for key in keys):
        raise EventError("blocks have hashes, numbers or bytes")
    if kind == "BlockRemoved":
        return Removed(keys=tuple(keys))
    if event.get("kv_cache_spec_kind") not in _WHOLE:
        why = f"its KV cache is of kind {event['kv_cache_spec_kind']!r}, not of whole prefixes"
        return Unfollowed(why=why, for_good=True)
    return _stored(event, tuple(keys))


def _named(item: object) -> tuple[str, Event]:
    """Return an event's name and fields; of an array, those that are known."""
    if isinstance(item, dict):
        kind, event = item.get("type"), item
    elif isinstance(item, list) and item:
        kind = item[0]
        event = dict(zip(_FIELDS.get(kind, ()), item[1:], strict=False)) if isinstance(kind, str) else {}
    else:
        raise EventError("an event is a map, or an array")
    if not isinstance(kind, str) or kind not in _FIELDS:
        raise EventError(f"an event is one of {', '.join(_FIELDS)}, not {kind!r}")
    return kind, event


def _stored(event: Event, keys: tuple[Key, ...]) -> Stored:
    parent, tokens, size = event.get("parent_block_hash"), event.get("token_ids"), event.get("block_size")
    if not isinstance(tokens, list) or not isinstance(size, int) or not isinstance(parent, int | bytes | None):
        raise EventError("stored blocks have tokens, a size, and perhaps a parent")
    return Stored(keys=keys, parent=parent, tokens=tokens, block_tokens=size, extras=_extras(event, len(keys)))


def _extras(event: Event, count: int) -> tuple[str, ...]:
    listed = event.get("extra_keys")
    if isinstance(listed, list):
        return tuple([extra_of(keys) if isinstance(keys, list) else "" for keys in listed])
    adapter = event.get("lora_name") or event.get("lora_id")
    return () if adapter is None else (extra_of([adapter]),) * count
