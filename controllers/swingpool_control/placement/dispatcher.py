"""The placement of all requests of one router: what waits, who gets it when, and who generates.

Prompts wait here, not at workers, until a prefill worker is nearly free: so a worker that becomes free, or is new, gets
whatever waits, and nothing stands behind a long prompt by bad luck. Nothing here waits or looks at a clock: `dispatch`
says what may go now, and `next_s` when to ask again if nothing happens before.
"""

import math
from collections import deque

from swingpool_control.placement import deflection
from swingpool_control.placement.account import Account, Leg
from swingpool_control.placement.deflection import Offer
from swingpool_control.placement.held import Held
from swingpool_control.placement.queue import PromptQueue
from swingpool_control.placement.rate import Rate
from swingpool_control.placement.roster import Roster
from swingpool_control.placement.settings import PlacementSettings
from swingpool_control.placement.ticket import Ticket
from swingpool_control.placement.work import prompt_s

_LOOK_AT = 4
"""Workers, the first by rank, that are compared for one request."""
_SPREAD_OVER = 64
"""Workers over which what waits is spread in thought."""
_SPREAD_SHARE = 0.25
"""Share of an iteration as which a longer prompt counts when it is spread, since one worker computes all of it."""
_RATE_OVER_S = 2.0
"""Time over which arrivals are averaged."""
_PATIENCE_S = 1.0
"""How long prompts wait for prefill workers that have failed before decode workers compute them."""
_STEALS = 4
"""Prompts that wait for another worker and are looked at by one that has nothing to do."""


class Assignment:
    """What shall happen to one request now."""

    __slots__ = ("account", "deflected", "leg", "ticket", "why")

    def __init__(
        self, ticket: Ticket, account: Account, leg: Leg | None, why: str = "", *, deflected: bool = False
    ) -> None:
        self.ticket = ticket
        self.account = account
        self.leg = leg
        """The prompt that the worker computes for another one; None if it serves the request whole."""
        self.why = why
        self.deflected = deflected


class Dispatcher:
    """Places requests.

    Args:
        settings: what it goes by.
    """

    def __init__(self, settings: PlacementSettings) -> None:
        self.settings = settings
        self.limits = settings.limits
        self.roster = Roster(settings)
        self.next_s = math.inf
        """When to dispatch again if nothing happens before."""
        self._queue = PromptQueue(settings)
        self._held = Held()
        self._divisible_s = 0.0
        """Seconds of the prompts in the queue beside iterations' bases: what can be spread over workers."""
        self._arriving = Rate(over_s=_RATE_OVER_S)
        """Such seconds, of all prompts that come in."""
        self._whole: deque[Ticket] = deque()
        """Requests that must not be split; they wait only while no worker is in rotation."""
        self._whole_tokens = 0

    # What waits

    @property
    def queued(self) -> int:
        """Requests that wait."""
        return self._queue.count + len(self._held) + len(self._whole)

    @property
    def queued_tokens(self) -> int:
        """Prompt tokens of those."""
        return self._queue.tokens + self._held.tokens + self._whole_tokens

    def oldest_wait_s(self, now_s: float) -> float:
        """Return how long the oldest of them has waited; 0 if none waits."""
        whole_s = self._whole[0].arrived_s if self._whole else None
        arrivals = [one for one in (self._queue.oldest_s(), self._held.oldest_s(), whole_s) if one is not None]
        return now_s - min(arrivals) if arrivals else 0.0

    def wait_s(self, ticket: Ticket, now_s: float) -> float:
        """Return how long such a request would wait for a prefill worker, as predicted; infinite if there is none."""
        openings = self.roster.openings
        if not len(openings):
            return math.inf
        work_s = ticket.work_s or prompt_s(openings.first(1)[0].model, ticket.tokens, ticket.uncached)
        first_s = min(max(one.free_s, now_s) for one in openings.first(_LOOK_AT)) - now_s
        return first_s + self._queue.ahead_s(ticket.kind, work_s) / len(openings)

    # Requests

    def offer(self, ticket: Ticket, now_s: float) -> None:
        """Take in a request, or take it back after its prefill failed; `dispatch` says where it goes."""
        if ticket.whole_because:
            self._whole.append(ticket)
            self._whole_tokens += ticket.tokens
            return
        openings = self.roster.openings
        if len(openings):
            ticket.uncached = ticket.tokens
            if ticket.hashes:
                blocks = self.roster.prefixes.holders(ticket.hashes, now_s=now_s)
                ticket.uncached -= ticket.cached(max(blocks.values(), default=0))
            pace = openings.first(1)[0].pace
            ticket.work_s = prompt_s(pace.model, ticket.tokens, ticket.uncached)
            beside_s = ticket.work_s - pace.base_s
            ticket.spread_s = min(beside_s, pace.token_s * pace.budget * _SPREAD_SHARE)
            self._arriving.add(beside_s, now_s)
        self._enqueue(ticket)

    def withdraw(self, ticket: Ticket) -> None:
        """Forget a request that waits: its client has gone, or its time is over."""
        if self._held.release(ticket):
            return
        if ticket in self._whole:
            self._whole.remove(ticket)
            self._whole_tokens -= ticket.tokens
        else:
            self._unqueue(ticket, served=False)

    def changed(self, account: Account, *, role: str, in_rotation: bool) -> None:
        """Take in a worker, or what has become of it."""
        if account.in_rotation and not in_rotation and role == account.role:
            self.roster.prefixes.forget(account.worker)  # it has probably restarted
        self.roster.update(account, role=role, in_rotation=in_rotation)
        if not account.takes_prompts:
            self._release_held(account)

    def removed(self, account: Account) -> None:
        """Forget a worker that is gone."""
        self.roster.remove(account)
        self._release_held(account)

    def prefill_ended(self, account: Account, leg: Leg, *, now_s: float, served: bool, at_fault: bool = False) -> None:
        """Account for a prompt's end.

        Args:
            account: the worker that it was sent to.
            leg: as it was sent.
            now_s: the time.
            served: whether it was computed.
            at_fault: whether the worker was to blame if not; a client that goes away says nothing about it.
        """
        self.roster.prefill_ended(account, leg, now_s=now_s, served=served)
        if at_fault:
            self.roster.failed(account, now_s=now_s)

    def decode_ended(self, account: Account, tokens: int) -> None:
        """Account for a request's end, or its move to another worker."""
        self.roster.decode_ended(account, tokens)

    def generate(self, ticket: Ticket, origin: Account, now_s: float) -> Account | None:
        """Return who generates for a request whose prompt is computed, and account for it; None if nobody can."""
        chosen = self.roster.decoder(ticket, now_s=now_s, without=origin.worker)
        if chosen is not None:
            self.roster.decode_sent(ticket, chosen, now_s=now_s)
        return chosen

    def dispatch(self, now_s: float) -> list[Assignment]:
        """Return what goes to workers now; all of it is accounted for as sent."""
        found: list[Assignment] = []
        self.roster.forgive(now_s)
        if self._whole:
            self._serve_whole(found, now_s)
        if self._queue.count or len(self._held):
            self._serve_one_sided(found, now_s)
            self._deflect(found, now_s)
            self._fill(found, now_s)
        self._foresee(now_s)
        return found

    # Requests that one worker serves

    def _serve_whole(self, found: list[Assignment], now_s: float) -> None:
        while self._whole:
            ticket = self._whole[0]
            account = self._anyone(ticket)
            if account is None:
                return
            self._whole.popleft()
            self._whole_tokens -= ticket.tokens
            self._send_whole(found, ticket, account, now_s, why=ticket.whole_because)

    def _serve_one_sided(self, found: list[Assignment], now_s: float) -> None:
        """Serve whole, while a role is missing, what would be split."""
        why = self._one_sided(now_s)
        while why and (ticket := self._queue.head(now_s)) is not None:
            account = self._anyone(ticket)
            if account is None:
                return
            self._unqueue(ticket, served=True)
            self._send_whole(found, ticket, account, now_s, why=why)

    def _one_sided(self, now_s: float) -> str:
        """Return which role is missing, empty if none is."""
        openings = self.roster.openings
        if not len(self.roster.decoders):
            return "no decode worker is in rotation"
        if not len(openings):
            return "no prefill worker is in rotation"
        if openings.first(1)[0].penalty_until_s > now_s + _PATIENCE_S:
            return "every prefill worker has failed of late"
        return ""

    def _anyone(self, ticket: Ticket) -> Account | None:
        """Return who serves a request whole, None if no worker is in rotation."""
        decoders = self.roster.decoders.first(1)
        if decoders:
            return decoders[0]
        openings = self.roster.openings.first(_LOOK_AT)
        return next((one for one in openings if one.worker not in ticket.failed), openings[0] if openings else None)

    def _send_whole(self, found: list[Assignment], ticket: Ticket, account: Account, now_s: float, *, why: str) -> None:
        if account.takes_prompts:
            account.busy_with(prompt_s(account.model, ticket.tokens, ticket.uncached), now_s=now_s)
        self.roster.decode_sent(ticket, account, now_s=now_s)
        found.append(Assignment(ticket, account, None, why))

    # Prompts that are computed where their tokens are generated

    def _deflect(self, found: list[Assignment], now_s: float) -> None:
        while self.limits.itl_s > 0 and (ticket := self._queue.head(now_s)) is not None:
            chosen = self._deflection(ticket, now_s)
            if chosen is None:
                return
            self._unqueue(ticket, served=True)
            deflection.take(chosen)
            self.roster.decode_sent(ticket, chosen.account, now_s=now_s)
            found.append(Assignment(ticket, chosen.account, None, "its prompt is computed there", deflected=True))

    def _deflection(self, ticket: Ticket, now_s: float) -> Offer | None:
        """Return the decode worker that has a prompt's first token sooner than two workers would, if there is one."""
        holders = self.roster.prefixes.holders(ticket.hashes, now_s=now_s) if ticket.hashes else {}
        asked = self.roster.decoders.first(1)
        asked += [
            one
            for worker in holders
            if (one := self.roster.get(worker)) is not None and one.generates and one not in asked
        ]
        best: Offer | None = None
        for account in asked:
            offer = deflection.offer(
                account,
                ticket,
                blocks=holders.get(account.worker, 0),
                limits=self.limits,
                now_s=now_s,
                hop_s=self.settings.hop_s,
            )
            if offer is not None and (best is None or offer.done_s < best.done_s):
                best = offer
        if best is None:
            return None
        saved_s = self._split_done_s(ticket, holders, now_s) - best.done_s
        return best if saved_s > self.settings.resident_weight * best.residents_wait_s else None

    def _split_done_s(self, ticket: Ticket, holders: dict[str, int], now_s: float) -> float:
        """Return when a prompt's first token should be there if two workers serve it."""
        asked = self.roster.openings.first(_LOOK_AT)
        asked += [one for worker in holders if (one := self.roster.get(worker)) is not None and one.takes_prompts]
        done_s = min(
            one.done_s(ticket.tokens, ticket.tokens - ticket.cached(holders.get(one.worker, 0)), now_s=now_s)
            for one in asked
        )
        decoder = self.roster.decoders.first(1)[0]
        there = ticket.cached(holders.get(decoder.worker, 0))
        moved_s = decoder.model.transfer_s(tokens=ticket.tokens - there) + 1.5 * decoder.step_s()
        return done_s + moved_s + 2 * self.settings.hop_s

    # Prompts that prefill workers compute

    def _fill(self, found: list[Assignment], now_s: float) -> None:
        """Give the workers that are open what is theirs of what waits."""
        self._release_aged(now_s)
        share_s = self._share_s(now_s)
        for account in self._held.accounts():
            while self._opens_s(account) <= now_s and (ticket := self._held.first(account)) is not None:
                if not self._has_room(account, ticket, share_s):
                    break
                self._held.release(ticket)
                self._send(found, ticket, account, now_s)
        while (opened := self._open(now_s)) is not None:
            ticket = self._queue.head(now_s)
            if ticket is None:
                ticket = self._stolen(opened, now_s)
                if ticket is None:
                    return
                self._send(found, ticket, opened, now_s)
                continue
            if not self._has_room(opened, ticket, share_s):
                return
            chosen = self._best(ticket, opened, now_s)
            self._unqueue(ticket, served=True)
            if chosen.worker in ticket.failed:
                why = f"no prefill worker is left after {len(ticket.failed)} failed"
                self._send_whole(found, ticket, self._anyone(ticket) or opened, now_s, why=why)
            elif self._opens_s(chosen) <= now_s:
                self._send(found, ticket, chosen, now_s)
            else:
                self._held.hold(ticket, chosen, self._work_s(ticket, chosen, now_s))

    def _send(self, found: list[Assignment], ticket: Ticket, account: Account, now_s: float) -> None:
        decoder = self.roster.decoders.first(1)[0]
        if self.limits.prefill_keeps and decoder.full and not account.full:
            self._send_whole(found, ticket, account, now_s, why="the decode workers are full")
            return
        found.append(Assignment(ticket, account, self.roster.prefill_sent(ticket, account, now_s=now_s)))

    def _opens_s(self, account: Account) -> float:
        return account.opens_s(self.settings.lead_s, self.settings.lead_share)

    def _open(self, now_s: float) -> Account | None:
        """Return the open worker that will be free soonest, None if none is open."""
        best: Account | None = None
        for account in self.roster.openings.first(_LOOK_AT):
            if self._opens_s(account) > now_s:
                break
            if account.idle:
                return account
            if best is None or account.free_s < best.free_s:
                best = account
        return best

    def _share_s(self, now_s: float) -> float:
        """Return how much of what waits an open worker gets at least: seconds of prompts beside an iteration's base.

        It is its part of what waits, and of what will come while its next iteration lasts, among the workers that will
        be free by then. Less would waste iterations on few prompts, more would let it work while others are idle.
        """
        openings = self.roster.openings
        if self._queue.count < 2 or not len(openings):
            return 0.0
        pace = openings.first(1)[0].pace
        each = self._arriving.rate(now_s) / len(openings)
        most_s = pace.token_s * pace.budget
        lasts_s = min(pace.base_s / (1.0 - each) if each < 1.0 else most_s, pace.base_s + most_s)
        ends_s = now_s + lasts_s
        free = sum(one.free_s <= ends_s for one in openings.first(_SPREAD_OVER))
        if free == _SPREAD_OVER:
            free = len(openings)
        return (self._divisible_s + lasts_s * each * len(openings)) / max(1, free)

    def _has_room(self, account: Account, ticket: Ticket, share_s: float) -> bool:
        """Tell whether a prompt still belongs to a worker's next iteration: the first always does."""
        batch = account.following
        if not batch.count:
            return True
        if batch.tokens + ticket.uncached > account.pace.budget:
            return False
        return account.free_s - account.batch_end_s - account.pace.base_s + ticket.spread_s / 2 <= share_s

    def _best(self, ticket: Ticket, account: Account, now_s: float) -> Account:
        """Return the open worker, or one for which it is better to wait: it has the prompt's beginning."""
        if not ticket.hashes and not ticket.failed:
            return account
        aged = now_s - ticket.arrived_s >= self._queue.class_of(ticket.kind).age_s
        holders = self.roster.prefixes.holders(ticket.hashes, now_s=now_s) if ticket.hashes else {}
        asked = [account]
        if ticket.failed:
            asked += [one for one in self.roster.openings if one.worker not in ticket.failed][:_LOOK_AT]
        if not aged:
            asked += [one for worker in holders if (one := self.roster.get(worker)) is not None and one.takes_prompts]
        best, least_s = account, math.inf
        for one in asked:
            if one.worker in ticket.failed:
                continue
            uncached = ticket.tokens - ticket.cached(holders.get(one.worker, 0))
            work_s = prompt_s(one.model, ticket.tokens, uncached)
            score_s = one.done_s(ticket.tokens, uncached, now_s=now_s) + self.settings.saving_weight * work_s
            if score_s < least_s:
                best, least_s = one, score_s
        return best

    def _work_s(self, ticket: Ticket, account: Account, now_s: float) -> float:
        blocks = self.roster.prefixes.depth(account.worker, ticket.hashes, now_s=now_s)
        return account.slowness * prompt_s(account.model, ticket.tokens, ticket.tokens - ticket.cached(blocks))

    # Prompts that wait for one worker

    def _release_aged(self, now_s: float) -> None:
        """Let prompts that have waited for the age of their class go wherever they can."""
        for account in self._held.accounts():
            for ticket in self._held.of(account):
                if now_s - ticket.arrived_s >= self._queue.class_of(ticket.kind).age_s:
                    self._back(ticket)

    def _release_held(self, account: Account) -> None:
        for ticket in self._held.of(account):
            self._back(ticket)

    def _back(self, ticket: Ticket) -> None:
        self._held.release(ticket)
        self._enqueue(ticket)

    def _stolen(self, account: Account, now_s: float) -> Ticket | None:
        """Return a prompt that waits for another worker and is done sooner by this one, which has nothing to do."""
        if not account.idle:
            return None
        for other in list(self._held.accounts())[:_STEALS]:
            ticket = self._held.of(other)[-1]
            blocks = self.roster.prefixes.depth(account.worker, ticket.hashes, now_s=now_s)
            done_s = account.done_s(ticket.tokens, ticket.tokens - ticket.cached(blocks), now_s=now_s)
            if account.worker not in ticket.failed and done_s < max(now_s, other.free_s) + other.held_s:
                self._held.release(ticket)
                return ticket
        return None

    # The queue

    def _enqueue(self, ticket: Ticket) -> None:
        self._queue.push(ticket)
        self._divisible_s += ticket.spread_s

    def _unqueue(self, ticket: Ticket, *, served: bool) -> None:
        if ticket.waits:
            self._queue.remove(ticket, served=served)
            self._divisible_s = self._divisible_s - ticket.spread_s if self._queue.count else 0.0

    def _foresee(self, now_s: float) -> None:
        """Note when the next worker opens, if anything waits for it."""
        self.next_s = math.inf
        if self._queue.count:
            for account in self.roster.openings.first(2 * _LOOK_AT):
                opens_s = self._opens_s(account)
                if opens_s > now_s:
                    self.next_s = opens_s
                    break
        for account in self._held.accounts():
            opens_s = self._opens_s(account)
            if now_s < opens_s < self.next_s:
                self.next_s = opens_s
