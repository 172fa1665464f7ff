"""All workers as placement sees them: their accounts, ranked by what each role is chosen by."""

from collections.abc import Iterable
from typing import Final

from swingpool_control import names
from swingpool_control.placement.account import Account, Leg
from swingpool_control.placement.parts import Part
from swingpool_control.placement.present import Present
from swingpool_control.placement.ranking import Ranking
from swingpool_control.placement.settings import PlacementSettings
from swingpool_control.placement.ticket import Ticket

_LOOK_AT: Final = 3
"""Decode workers, the best by rank, that are compared for one request."""
MEAN_OUTPUT_TOKENS: Final = 200.0
"""Tokens over which a decode worker's speed counts for a request, until it is known better."""


class Roster:
    """The workers.

    Args:
        settings: what placement goes by.
    """

    def __init__(self, settings: PlacementSettings) -> None:
        self.present = Present(ttl_s=settings.prefix_ttl_s)
        self.openings = Ranking()
        """Prefill workers in rotation, by when they may get the next prompt; of other pickers' parts only those that
        are in this one's, too."""
        self.spare = Ranking()
        """The others, for what has waited long."""
        self.decoders = Ranking()
        """Decode workers in rotation, by the time between two tokens."""
        self.generating: dict[str, int] = {}
        """Decode workers in rotation by their generation: only with those of its own can a worker exchange KV cache."""
        self.mean_output_tokens = MEAN_OUTPUT_TOKENS
        self._settings = settings
        self._accounts: dict[str, Account] = {}
        self._penalised: list[Account] = []
        self._part = Part()
        self._divided = False
        self._changed = False
        """Whether workers came or went since they were divided last."""

    def get(self, worker: str) -> Account | None:
        """Return a worker's account, None if there is no such worker."""
        return self._accounts.get(worker)

    def accounts(self) -> Iterable[Account]:
        """Return all accounts."""
        return self._accounts.values()

    def update(self, account: Account, *, role: str, in_rotation: bool) -> None:
        """Take in a worker, or what has become of it."""
        self._accounts[account.worker] = account
        before = account.role
        if role != before:
            account.role = role
            account.epoch += 1
        changed = account.in_rotation != in_rotation or role != before
        account.in_rotation = in_rotation
        self.rank(account)
        self._changed = self._changed or changed

    def among(self, part: Part) -> None:
        """Be one of several pickers from now on: mind one part of the workers before the others."""
        if part != self._part:
            self._part, self._changed = part, True

    def lent(self, ticket: Ticket, *, now_s: float) -> Account | None:
        """Return a prefill worker of another picker's part that seems free, for a prompt that has waited for long."""
        account = self.spare.top()
        if account is None or account.worker in ticket.failed or account.opens_s > now_s or account.prefills_in_flight:
            return None
        if account.generation not in self.generating:
            return None
        pace = account.pace
        patience_s = self._settings.spare_patience / self._part.of * (pace.base_s + pace.token_s * pace.budget)
        return account if now_s - ticket.arrived_s >= patience_s else None

    def _divide(self) -> None:
        """Tell one's own workers from those of other pickers."""
        self._changed = False
        if self._part.of == 1 and not self._divided:
            return
        self._divided = self._part.of > 1
        for account in self._accounts.values():
            account.alone = self._part.of == 1
        for role in ROLES:
            serving = sorted(one.worker for one in self._accounts.values() if one.in_rotation and one.role == role)
            sharers = self._part.sharers(serving)
            own = set(self._part.own(serving))
            for worker in serving:
                account = self._accounts[worker]
                account.sharers = sharers[worker]
                if account.foreign != (worker not in own):
                    account.foreign = worker not in own
                    self.rank(account)

    def remove(self, account: Account) -> None:
        """Forget a worker that is gone."""
        account.in_rotation = False
        if self._accounts.get(account.worker) is account:
            del self._accounts[account.worker]
            self.openings.drop(account)
            self.spare.drop(account)
            self._no_decoder(account)
            self.present.forget(account.worker)
            self._changed = True

    def rank(self, account: Account) -> None:
        """Rank a worker anew after something about it has changed."""
        if self._accounts.get(account.worker) is not account:
            return
        if account.takes_prompts:
            if account.decodes_in_flight:
                account.foresee_steps()  # it may keep no more requests than it has room for
            mine, others = (self.spare, self.openings) if account.foreign else (self.openings, self.spare)
            mine.put(account, account.foresee_opening(self._settings.lead_s, self._settings.lead_share))
            if len(others):
                others.drop(account)
        else:
            if account in self.openings:
                self.openings.drop(account)
            if len(self.spare):
                self.spare.drop(account)
        if account.generates:
            if account not in self.decoders:
                self.generating[account.generation] = self.generating.get(account.generation, 0) + 1
            self.decoders.put(account, account.foresee_steps())
        else:
            self._no_decoder(account)

    def pairs(self) -> bool:
        """Tell whether a prefill and a decode worker can exchange KV cache."""
        return any(one.generation in self.generating for one in self.openings)

    def _no_decoder(self, account: Account) -> None:
        if account not in self.decoders:
            return
        self.decoders.drop(account)
        self.generating[account.generation] -= 1
        if not self.generating[account.generation]:
            del self.generating[account.generation]

    # Accounting

    def prefill_sent(self, ticket: Ticket, account: Account, *, now_s: float) -> Leg:
        """Account for a prompt that goes to a prefill worker now."""
        uncached = ticket.tokens
        if ticket.hashes or ticket.chain:
            uncached -= self.present.at(ticket, account.worker, now_s=now_s)
            self.has_prefix(ticket, account, now_s=now_s)
        leg = account.prefill_sent(ticket.tokens, uncached, now_s=now_s, hop_s=self._settings.hop_s)
        self.rank(account)
        return leg

    def prefill_ended(self, account: Account, leg: Leg, *, now_s: float, served: bool) -> None:
        """Account for a prompt's end."""
        account.prefill_ended(leg, now_s=now_s, served=served)
        if served:
            account.succeeded()
        self.rank(account)

    def failed(self, account: Account, *, now_s: float) -> None:
        """Account for an answer that shows a worker to be at fault."""
        account.failed(now_s=now_s)
        if account not in self._penalised:
            self._penalised.append(account)
        self.rank(account)

    def forgive(self, now_s: float) -> None:
        """Let workers whose penalty is over get requests as before, and divide anew those that came."""
        if self._changed:
            self._divide()
        if not self._penalised:
            return
        over = [one for one in self._penalised if one.penalty_until_s <= now_s]
        self._penalised = [one for one in self._penalised if one.penalty_until_s > now_s]
        for account in over:
            account.forgiven()
            self.rank(account)

    def decode_sent(self, ticket: Ticket, account: Account, *, now_s: float) -> None:
        """Account for a request that a worker generates for from now on."""
        if ticket.hashes or ticket.chain:
            self.has_prefix(ticket, account, now_s=now_s)
        account.decode_sent(ticket.tokens)
        self.rank(account)

    def fetches(self, ticket: Ticket, account: Account, *, now_s: float) -> None:
        """Account for a request that a worker generates for, whose KV cache it fetches but for what lies there."""
        there = self.present.at(ticket, account.worker, now_s=now_s)
        ticket.moved_s = account.model.transfer_s(tokens=ticket.tokens - there)
        account.transfer_sent(ticket.moved_s, now_s=now_s)
        self.decode_sent(ticket, account, now_s=now_s)

    def decode_ended(self, account: Account, tokens: int) -> None:
        """Account for a request's end, or its move to another worker."""
        account.decode_ended(tokens)
        self.rank(account)

    def has_prefix(self, ticket: Ticket, account: Account, *, now_s: float) -> None:
        """Note that a worker will have a prompt's KV cache."""
        capacity_tokens = account.model.kv_capacity_tokens
        self.present.sent(ticket, account.worker, capacity_tokens=capacity_tokens, now_s=now_s)

    # Who generates

    def decoder(self, ticket: Ticket, origin: Account, *, now_s: float) -> Account | None:
        """Return who should generate for a request whose prompt another worker has computed.

        That is where its tokens come fastest, or where so much of its conversation lies that fetching the rest makes up
        for slower ones.

        Args:
            ticket: the request.
            origin: who computed its prompt, which cannot fetch the KV cache from itself.
            now_s: the time.
        """
        if self._changed:
            self._divide()
        present = self.present
        holders = present.tokens(ticket, now_s=now_s)
        first = self.decoders.top()
        fits = first is not None and first is not origin and first.generation == origin.generation
        if fits and not holders and first is not None and first.link_free_s <= now_s:
            return first  # most of the time: nobody's tokens come faster, and nothing is in the way
        asked = self.decoders.first(_LOOK_AT)
        for worker in holders:
            holder = self._accounts.get(worker)
            if holder is not None and holder.generates and holder not in asked:
                asked.append(holder)
        best: Account | None = None
        least_s = 0.0
        for account in asked:
            if account is origin or account.generation != origin.generation:
                continue
            there = present.among(holders, ticket, account.worker, now_s=now_s)
            cost_s = account.link_wait_s(now_s) + account.model.transfer_s(tokens=ticket.tokens - there)
            cost_s += self.mean_output_tokens * account.decode_key
            if best is None or cost_s < least_s:
                best, least_s = account, cost_s
        return best or next(
            (one for one in self.decoders if one is not origin and one.generation == origin.generation), None
        )

    def anyone(self, ticket: Ticket, *, most: int) -> Account | None:
        """Return who serves a request whole, None if no worker is in rotation; of prefill workers, look at so many."""
        decoder = self.decoders.top()
        if decoder is not None:
            return decoder
        openings = self.openings.first(most)
        return next((one for one in openings if one.worker not in ticket.failed), openings[0] if openings else None)

    def fewest(self) -> list[Account]:
        """Return all workers in rotation, fewest requests first: for requests that neither role is made for."""
        serving = [one for one in self._accounts.values() if one.takes_prompts or one.generates]
        return sorted(
            serving, key=lambda one: (one.prefills_in_flight + one.decodes_in_flight + one.others_in_flight, one.worker)
        )

    def hosts(self, chosen: Account, *, most: int, origin: str = "") -> tuple[str, ...]:
        """Return the workers to hand to whoever carries a request, which tries them in order.

        The last place is kept for a worker of another role, since the workers of one role may all go at once; anyone
        can serve a request whole if it must be.

        Args:
            chosen: who should serve it.
            most: how many tries there are; at least 2.
            origin: the worker that holds the prompt's KV cache, which cannot fetch it from itself: named after others.
        """
        same, other = (self.decoders, self.openings) if chosen in self.decoders else (self.openings, self.decoders)
        found = [chosen.worker]
        kept = most - 1 if len(other) else most
        alike = [
            one.worker for one in same.first(2 * most) if one is not chosen and one.generation == chosen.generation
        ]
        found += alike[: kept - 1]
        others = [one.worker for one in other.first(most) if one.worker != origin]
        if origin and any(one.worker == origin for one in other):
            others.append(origin)
        found += others[: most - len(found)]
        return tuple(found)


ROLES = (names.ROLE_PREFILL, names.ROLE_DECODE)
"""Roles in which a worker gets requests."""
