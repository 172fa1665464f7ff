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
    by_priority: bool = False
    """Whether the smallest priority goes first, as in vLLM's priority scheduling; else who came first."""
    told: bool = False
    """Whether it is noted which blocks can be found by prefix, for whoever tells of it."""

    def __post_init__(self) -> None:
        """Refuse an engine that could do nothing."""
        for name in ("block_size", "total_blocks", "max_batched_tokens", "max_sequences"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} must be 1 or more, not {getattr(self, name)}")
        if not self.lease_s > 0:
            raise ValueError(f"lease_s must be above zero, not {self.lease_s}")


class Request:
    """One sequence to generate. It is not changed; a plain class, as millions are made."""

    __slots__ = ("block_hashes", "id", "output_tokens", "priority", "prompt_tokens", "remote_decode", "remote_prefill")

    def __init__(
        self,
        *,
        id: str,
        prompt_tokens: int,
        output_tokens: int,
        block_hashes: tuple[Hashable, ...] = (),
        remote_prefill: bool = False,
        remote_decode: bool = False,
        priority: int = 0,
    ) -> None:
        self.id = id
        self.prompt_tokens = prompt_tokens
        """Length of the prompt, 1 or more."""
        self.output_tokens = output_tokens
        """How many tokens it will generate, 1 or more."""
        self.block_hashes = block_hashes
        """Chain hashes of the prompt's full blocks, first to last; equal hashes mean equal content up to there."""
        self.remote_prefill = remote_prefill
        """Its KV cache is pulled from another worker before it decodes."""
        self.remote_decode = remote_decode
        """When it ends its blocks stay, under a lease, for another worker to pull."""
        self.priority = priority
        """The smallest goes first, where the engine goes by it."""


class Transfer:
    """A pull of KV cache that must start now. The driver tells when it ended. A plain class, as millions are made."""

    __slots__ = ("duration_s", "request", "tokens")

    def __init__(self, request: str, tokens: int, duration_s: float) -> None:
        self.request = request
        self.tokens = tokens
        self.duration_s = duration_s
        """Waiting for the link included."""

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Transfer) and self._values() == other._values()

    def __hash__(self) -> int:
        return hash(self._values())

    def __repr__(self) -> str:
        return f"Transfer{self._values()}"

    def _values(self) -> tuple[str, int, float]:
        return self.request, self.tokens, self.duration_s


class Iteration:
    """One pass over a batch of sequences. It is not changed; a plain class, as millions are made."""

    __slots__ = ("admitted", "decode_sequences", "duration_s", "prefill_tokens")

    def __init__(
        self, *, admitted: tuple[str, ...], duration_s: float, prefill_tokens: int, decode_sequences: int
    ) -> None:
        self.admitted = admitted
        """Requests that were let into the batch for it."""
        self.duration_s = duration_s
        self.prefill_tokens = prefill_tokens
        self.decode_sequences = decode_sequences


class Progress:
    """What an iteration brought; one object for all of an engine's iterations."""

    __slots__ = ("ended", "firsts", "repeated", "resumed_s")

    def __init__(self) -> None:
        self.repeated = 0
        """Sequences that got one more token, the iteration's duration after the last."""
        self.firsts: list[str] = []
        """Requests that got their first token."""
        self.resumed_s: list[float] = []
        """When the last tokens came of sequences that were preempted since and got one more now."""
        self.ended: list[str] = []
        """Requests that have all their tokens."""

    def renew(self, repeated: int) -> None:
        """Begin with the next iteration."""
        self.repeated = repeated
        if self.firsts:
            self.firsts.clear()
        if self.resumed_s:
            self.resumed_s.clear()
        if self.ended:
            self.ended.clear()


class Token(NamedTuple):
    """A generated token: the `number`-th of its request, counted from 0."""

    request: str
    number: int
    last: bool


class Lease:
    """Blocks that wait to be pulled. It is not changed; a plain class, as millions are made."""

    __slots__ = ("blocks", "expires_s", "held", "tokens")

    def __init__(self, held: int, blocks: tuple[int, ...], tokens: int, expires_s: float) -> None:
        self.held = held
        """How many they are."""
        self.blocks = blocks
        """Their names; none where blocks are only counted."""
        self.tokens = tokens
        self.expires_s = expires_s

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Lease) and self._values() == other._values()

    def __hash__(self) -> int:
        return hash(self._values())

    def __repr__(self) -> str:
        return f"Lease{self._values()}"

    def _values(self) -> tuple[int, tuple[int, ...], int, float]:
        return self.held, self.blocks, self.tokens, self.expires_s


@dataclass(slots=True)
class Counters:
    """Totals since the engine was made."""

    prefix_caching: bool = True
    """Whether prefixes are sought at all."""
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

    def prompt(self, tokens: int, cached: int, transferred: int) -> None:
        """Count a prompt, when its first token is there."""
        self.local_cache_tokens += cached
        self.transferred_tokens += transferred
        self.local_compute_tokens += tokens - cached - transferred
        if self.prefix_caching:
            self.prefix_queries += tokens
            self.prefix_hits += cached
