"""What goes into the batching engine and what comes out of it: plain values, no behaviour."""

from collections.abc import Hashable
from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple


class Finish(StrEnum):
    """Why a request ended."""

    LENGTH = "length"
    """All the tokens that were asked for are there."""
    ABORT = "abort"
    """The client went away."""
    ERROR = "error"
    """Its KV cache could not be loaded."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """What one engine may do.

    Raises:
        ValueError: a limit is below 1, or the lease is not above zero.
    """

    block_size: int
    """Tokens per KV block."""
    total_blocks: int
    max_batched_tokens: int
    """Tokens per iteration."""
    max_sequences: int
    """Sequences per iteration."""
    lease_s: float
    """How long blocks wait for another worker to pull them."""
    prefix_caching: bool = True

    def __post_init__(self) -> None:
        """Refuse an engine that could do nothing."""
        for name in ("block_size", "total_blocks", "max_batched_tokens", "max_sequences"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} must be 1 or more, not {getattr(self, name)}")
        if not self.lease_s > 0:
            raise ValueError(f"lease_s must be above zero, not {self.lease_s}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """One sequence to generate."""

    id: str
    prompt_tokens: int
    """Length of the prompt, 1 or more."""
    output_tokens: int
    """How many tokens it will generate, 1 or more."""
    block_hashes: tuple[Hashable, ...] = ()
    """Chain hashes of the prompt's full blocks, first to last; equal hashes mean equal content up to there."""
    remote_prefill: bool = False
    """Its KV cache is pulled from another worker before it decodes."""
    remote_decode: bool = False
    """When it ends its blocks stay, under a lease, for another worker to pull."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Transfer:
    """A pull of KV cache that must start now. The driver tells when it ended."""

    request: str
    tokens: int
    duration_s: float
    """Waiting for the link included."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Iteration:
    """One pass over a batch of sequences."""

    chunks: tuple[tuple[str, int], ...]
    """Request and how many of its tokens are computed."""
    duration_s: float
    prefill_tokens: int
    decode_sequences: int


class Token(NamedTuple):
    """A generated token: the `number`-th of its request, counted from 0."""

    request: str
    number: int
    last: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Lease:
    """Blocks that wait to be pulled."""

    blocks: tuple[int, ...]
    tokens: int
    expires_s: float


@dataclass(slots=True)
class Counters:
    """Totals since the engine was made."""

    local_compute_tokens: int = 0
    """Prompt tokens computed here."""
    local_cache_tokens: int = 0
    """Prompt tokens found in the prefix cache."""
    transferred_tokens: int = 0
    """Prompt tokens whose KV cache came from another worker."""
    prefix_queries: int = 0
    prefix_hits: int = 0
    preemptions: int = 0
    expired_leases: int = 0
