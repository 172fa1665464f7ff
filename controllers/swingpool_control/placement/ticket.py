"""One request while it waits and is placed: what placement needs to know of it."""

from swingpool_control.engine.model import PerformanceModel
from swingpool_control.placement.account import Account
from swingpool_control.placement.settings import STANDARD
from swingpool_control.placement.work import prompt_s


class Ticket:
    """A request. Whoever offers it keeps it, and finds in it what became of it.

    Args:
        number: unique; spreads requests over workers that are equally loaded.
        tokens: the prompt's length, exact or estimated.
        arrived_s: when it arrived.
        kind: name of its class; an unknown one counts as the first class.
        tenant: whose it is.
        hashes: chain hashes of the prompt's blocks, first to last; equal ones mean equal content up to there.
        block_tokens: tokens under one hash.
        whole_because: why it must not be split between two workers; empty if it may be.
    """

    __slots__ = (
        "_other",
        "_other_model",
        "_other_s",
        "arrived_s",
        "block_tokens",
        "chain",
        "chain_tokens",
        "failed",
        "hashes",
        "key",
        "kind",
        "model",
        "moved_s",
        "number",
        "serial",
        "spread_s",
        "tenant",
        "tokens",
        "uncached",
        "waits",
        "whole_because",
        "work_s",
    )

    def __init__(
        self,
        number: int,
        tokens: int,
        *,
        arrived_s: float,
        kind: str = STANDARD,
        tenant: str = "",
        hashes: tuple[int, ...] = (),
        block_tokens: int = 0,
        whole_because: str = "",
    ) -> None:
        self.number = number
        self.tokens = max(1, tokens)
        self.arrived_s = arrived_s
        self.kind = kind
        self.tenant = tenant
        self.hashes = hashes if block_tokens > 0 else ()
        self.block_tokens = block_tokens
        self.chain: tuple[int, ...] = ()
        """Chain hashes of its exact blocks of tokens, by which workers' own word of their caches is looked up; none if
        its tokens are not known."""
        self.chain_tokens = 0
        """Tokens under one of those."""
        self.whole_because = whole_because
        self.failed: frozenset[str] = frozenset()
        """Workers that failed its prefill already."""
        self.uncached = self.tokens
        """Tokens to compute on the worker that has most of its prefix."""
        self.work_s = 0.0
        """Predicted seconds of prefill there, alone."""
        self.moved_s = 0.0
        """Predicted seconds in which whoever generates fetches its KV cache; 0 once that is over."""
        self.model: PerformanceModel | None = None
        """What that was predicted by."""
        self._other = -1
        self._other_model: PerformanceModel | None = None
        self._other_s = 0.0
        self.spread_s = 0.0
        """Of those, what is beside an iteration's base; that of a long prompt counts in part."""
        self.key = 0.0
        """Its place in the order: the smallest goes first."""
        self.waits = False
        """Whether it is in the queue now."""
        self.serial = 0
        """Counts up each time that it is queued."""

    def alone_s(self, account: Account, there: int) -> float:
        """Return what a worker's model says that it takes alone, with so many of its tokens in the cache."""
        uncached = self.tokens - there
        if uncached == self.uncached and account.pace.model is self.model:
            return self.work_s
        if uncached != self._other or account.pace.model is not self._other_model:
            self._other, self._other_model = uncached, account.pace.model
            self._other_s = prompt_s(account.pace.model, self.tokens, uncached)
        return self._other_s

    def estimate(self, account: Account, there: int) -> None:
        """Note what it takes alone on the prefill worker that has most of it, so many tokens."""
        self.uncached = self.tokens - there
        self.model = account.pace.model
        self.work_s = prompt_s(self.model, self.tokens, self.uncached)

    def fetched(self, account: Account) -> None:
        """Account for the end of the transfer to whoever generates: its first token is there, or never will be."""
        account.transfer_ended(self.moved_s)
        self.moved_s = 0.0

    def cached(self, blocks: int) -> int:
        """Return the tokens that so many of its blocks spare; the last token is computed always."""
        return min(blocks * self.block_tokens, self.tokens - 1)
