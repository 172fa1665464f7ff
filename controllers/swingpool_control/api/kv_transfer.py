"""How workers exchange KV cache, and what else keeps it: alike for all pools, since vLLM refuses mixed ones."""

from enum import StrEnum
from typing import Annotated

from pydantic import Field

from swingpool_control.api.base import ApiModel
from swingpool_control.api.quantities import PositiveDuration
from swingpool_control.api.rules import Rule

Size = Annotated[
    str,
    Field(min_length=1, max_length=32),
    Rule(
        cel="isQuantity(self) && quantity(self).isGreaterThan(quantity('0'))",
        message="must be a size such as 64Gi",
    ),
]


class KVConnector(StrEnum):
    """By what means KV cache moves between workers."""

    NIXL = "Nixl"
    MOONCAKE_STORE = "MooncakeStore"


class KVBuffer(StrEnum):
    """Where KV cache lies that moves."""

    ACCELERATOR = "Accelerator"
    HOST = "Host"


class HostCacheType(StrEnum):
    """What keeps KV cache in a worker's host memory."""

    OFFLOADING = "Offloading"
    LMCACHE = "LMCache"


class HostCache(ApiModel):
    """A second tier of KV cache, in host memory."""

    type: Annotated[
        HostCacheType,
        Field(description="Offloading: vLLM's own connector. LMCache: that library, which the image must bring."),
    ] = HostCacheType.OFFLOADING
    size: Annotated[Size, Field(description="Host memory of one worker that it may use, such as 64Gi.")]


class KVTransfer(ApiModel):
    """How KV cache moves; alike for all pools. A change rolls them, and old and new workers are never paired."""

    connector: Annotated[
        KVConnector,
        Field(
            description="Nixl: a decode worker pulls a prompt's KV cache from its prefill worker. MooncakeStore: both "
            "use one Mooncake store, which the pods must be told of by MOONCAKE_CONFIG_PATH; vLLM 0.21 or newer."
        ),
    ] = KVConnector.NIXL
    buffer: Annotated[
        KVBuffer,
        Field(
            description="Where KV cache lies that moves: in the accelerators' memory, or in the host's, as builds of "
            "vLLM for CPUs need it. With Nixl."
        ),
    ] = KVBuffer.ACCELERATOR
    lease_duration: Annotated[
        PositiveDuration,
        Field(
            description="How long a prefill worker keeps a prompt's KV cache that nobody fetches; whole seconds, "
            "rounded up. From vLLM 0.22 on whoever waits for it renews this; before, it is the whole time."
        ),
    ] = "30s"
    host_cache: Annotated[
        HostCache | None,
        Field(description="Keep KV cache in host memory too, beside the exchange. Default: no such tier."),
    ] = None
