"""What a worker tells of itself: what it serves, which version it is, how much KV cache it has, whether it is idle."""

import re
from collections.abc import Mapping
from dataclasses import dataclass

from swingpool.profiling.wire import WorkerClient, WorkerError

_SAMPLE = re.compile(r"^vllm:([a-z_]+)\{(.*)\} (\S+)$", re.MULTILINE)
_LABEL = re.compile(r'(\w+)="((?:[^"\\]|\\.)*)"')
_SHOWN = ("block_size", "cache_dtype", "enable_prefix_caching", "num_gpu_blocks")


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerFacts:
    """One worker."""

    model: str
    version: str
    longest: int
    """Longest context, tokens."""
    kv_capacity_tokens: int
    settings: Mapping[str, str]
    """Of its KV cache, as it shows them."""


async def read(client: WorkerClient, model: str) -> WorkerFacts:
    """Return what the worker tells.

    Raises:
        WorkerError: it cannot be asked, or does not tell how much KV cache it has.
    """
    version = str((await client.get("/version")).get("version", "unknown"))
    cards = (await client.get("/v1/models")).get("data") or [{}]
    card = next((one for one in cards if one.get("id") == model), cards[0])
    labels = _cache_labels(await client.metrics())
    try:
        capacity = int(labels["num_gpu_blocks"]) * int(labels["block_size"])
    except (KeyError, ValueError) as error:
        raise WorkerError("vllm:cache_config_info does not tell num_gpu_blocks and block_size") from error
    return WorkerFacts(
        model=model,
        version=version,
        longest=int(card.get("max_model_len") or 0),
        kv_capacity_tokens=capacity,
        settings={name: labels[name] for name in _SHOWN if name in labels},
    )


async def first_model(client: WorkerClient) -> str:
    """Return the name of the model that the worker serves.

    Raises:
        WorkerError: it cannot be asked, or serves none.
    """
    cards = (await client.get("/v1/models")).get("data")
    if not cards:
        raise WorkerError("the worker serves no model")
    return str(cards[0]["id"])


async def busy_with(client: WorkerClient) -> float:
    """Return how many requests it runs or holds back, over all its engines.

    Raises:
        WorkerError: it cannot be asked.
    """
    text = await client.metrics()
    names = ("num_requests_running", "num_requests_waiting")
    return sum(float(found[3]) for found in _SAMPLE.finditer(text) if found[1] in names)


def _cache_labels(text: str) -> dict[str, str]:
    for found in _SAMPLE.finditer(text):
        if found[1] == "cache_config_info":
            return {label[1]: label[2] for label in _LABEL.finditer(found[2])}
    return {}
