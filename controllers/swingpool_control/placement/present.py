"""What of a prompt lies where, in tokens: as the workers tell it where they do, else as it was sent there.

Both are asked of a worker of which not all is known, and the deeper one counts: what it told of is there, and what it
was sent probably is. A worker of which all is known has what it told of, and what was sent there since.
"""

from typing import Final

from swingpool_control.placement.cache_events import CacheEvent, Key, Stored
from swingpool_control.placement.chains import TOKEN_BYTES, packed
from swingpool_control.placement.prefixes import Prefixes
from swingpool_control.placement.promised import Promised
from swingpool_control.placement.ticket import Ticket
from swingpool_control.placement.told import Told

TOLD: Final = "told"
ESTIMATED: Final = "estimated"


class Present:
    """Asked for each prompt.

    Args:
        ttl_s: how long what was sent somewhere is believed to be there.
    """

    def __init__(self, *, ttl_s: float) -> None:
        self.believed = Prefixes(ttl_s=ttl_s)
        self.told: Told | None = None
        """What workers tell; None if none is asked to."""
        self._promised = Promised()

    def follow(self) -> Told:
        """Go by what workers tell from now on, too."""
        if self.told is None:
            self.told = Told()
        return self.told

    def take(self, worker: str, event: CacheEvent) -> None:
        """Take in what a worker tells next."""
        told = self.told
        if told is None:
            return
        if isinstance(event, Stored) and event.parent is not None and not told.has(worker, event.parent):
            self._learn_parent(told, worker, event, event.parent)
        last = told.take(worker, event)
        if last:
            self._promised.kept(worker, last)

    def _learn_parent(self, told: Told, worker: str, event: Stored, parent: Key) -> None:
        """Find out what a block holds that was told of before anyone listened: a prompt that was sent there shows it.

        The worker computed what follows it there, so it had found it, and all before it. That two prompts go on alike
        after different beginnings, block by block, is taken to be chance; a worker of which this is asked is not one of
        which all is known.
        """
        raw, width = packed(event.tokens), TOKEN_BYTES * event.block_tokens
        if raw is None or len(raw) < width * len(event.keys):
            return
        extras = event.extras or ("",) * len(event.keys)
        blocks = [(raw[at * width : (at + 1) * width], extra) for at, extra in enumerate(extras)]
        before = self._promised.before(worker, blocks)
        if before:
            told.adopt(worker, parent, before)

    def begin(self, worker: str, *, missing: str = "") -> None:
        """Follow what a worker tells from now on; see `Told.begin`."""
        self.follow().begin(worker, missing=missing)
        self._promised.forget(worker)

    def tokens(self, ticket: Ticket, *, now_s: float) -> dict[str, int]:
        """Return the workers that have most of a prompt, and how many of its tokens each spares."""
        told = self.told
        if told is None or not ticket.chain:
            if not ticket.hashes:
                return {}
            found = self.believed.holders(ticket.hashes, now_s=now_s)
            for worker, blocks in found.items():
                found[worker] = ticket.cached(blocks)
            return found
        return self._with_told(told, ticket, now_s=now_s)

    def _with_told(self, told: Told, ticket: Ticket, *, now_s: float) -> dict[str, int]:
        size, most = ticket.chain_tokens, _most(ticket)
        found = {worker: min(blocks * size, most) for worker, blocks in told.holders(ticket.chain).items()}
        for worker, blocks in self._promised.depths(ticket.chain, now_s=now_s).items():
            if blocks * size > found.get(worker, 0):
                found[worker] = min(blocks * size, most)
        if ticket.hashes:
            for worker, blocks in self.believed.holders(ticket.hashes, now_s=now_s).items():
                if not told.knows(worker):
                    found[worker] = max(found.get(worker, 0), ticket.cached(blocks))
        return found

    def at(self, ticket: Ticket, worker: str, *, now_s: float) -> int:
        """Return how many of a prompt's tokens one worker spares."""
        told = self.told
        if told is None or not ticket.chain:
            if not ticket.hashes:
                return 0
            return ticket.cached(self.believed.depth(worker, ticket.hashes, now_s=now_s))
        blocks = max(told.depth(worker, ticket.chain), self._promised.depth(worker, ticket.chain, now_s=now_s))
        there = min(blocks * ticket.chain_tokens, _most(ticket))
        if ticket.hashes and not told.knows(worker):
            there = max(there, ticket.cached(self.believed.depth(worker, ticket.hashes, now_s=now_s)))
        return there

    def among(self, found: dict[str, int], ticket: Ticket, worker: str, *, now_s: float) -> int:
        """Return the same of a worker that may not be among those that have most: what is told can be looked up."""
        there = found.get(worker)
        if there is not None:
            return there
        return self.at(ticket, worker, now_s=now_s) if ticket.chain and self.told is not None else 0

    def how(self, ticket: Ticket, worker: str) -> str:
        """Return whether what of a prompt lies at a worker is told or estimated; empty if nobody tells anything."""
        told = self.told
        if told is None:
            return ""
        return TOLD if ticket.chain and told.knows(worker) else ESTIMATED

    def sent(self, ticket: Ticket, worker: str, *, capacity_tokens: int, now_s: float) -> None:
        """Note that a worker computes, or is sent, a prompt.

        Args:
            ticket: the request.
            worker: the worker.
            capacity_tokens: what its cache holds.
            now_s: the time.
        """
        if ticket.hashes:
            most = capacity_tokens // ticket.block_tokens
            self.believed.used(worker, ticket.hashes, most_blocks=most, now_s=now_s)
        told = self.told
        if told is not None and ticket.chain and told.depth(worker, ticket.chain) < len(ticket.chain):
            self._promised.add(worker, ticket.chain, now_s=now_s)

    def forget(self, worker: str) -> None:
        """Forget what was sent to a worker that is gone, or has probably restarted: what it tells, it tells itself."""
        self.believed.forget(worker)
        self._promised.forget(worker)


def _most(ticket: Ticket) -> int:
    """Return what can be spared of a prompt at most: the block of its last token is computed always."""
    return (ticket.tokens - 1) // ticket.chain_tokens * ticket.chain_tokens
