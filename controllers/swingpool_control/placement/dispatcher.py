"""The placement of all requests of one router: what waits, who gets it when, and who generates.

Prompts wait here, not at workers, until a prefill worker is nearly free: so a worker that becomes free, or is new, gets
whatever waits, and nothing stands behind a long prompt by bad luck. Nothing here waits or looks at a clock: `dispatch`
says what may go now, and `next_s` when to ask again if nothing happens before.
"""

import math
from dataclasses import replace
from typing import Final

from swingpool_control.placement import deflection
from swingpool_control.placement.account import Account, Leg
from swingpool_control.placement.roster import Roster
from swingpool_control.placement.settings import PlacementSettings, RequestClass
from swingpool_control.placement.ticket import Ticket
from swingpool_control.placement.waiting import Waiting, has_room

_LOOK_AT: Final = 4
"""Workers, the first by rank, that are compared for one request."""
_SPREAD_OVER: Final = 32
"""Workers over which what waits is spread in thought."""
_PATIENCE_S: Final = 1.0
"""How long prompts wait for prefill workers that have failed before decode workers compute them."""
_STEALS: Final = 2
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
        self._waiting = Waiting(settings)

    # What waits

    @property
    def queued(self) -> int:
        """Requests that wait."""
        return self._waiting.count

    @property
    def queued_tokens(self) -> int:
        """Prompt tokens of those."""
        return self._waiting.tokens

    @property
    def serving(self) -> bool:
        """Whether any worker is in rotation, so that whatever waits will be served."""
        return len(self.roster.openings) + len(self.roster.decoders) > 0

    def oldest_wait_s(self, now_s: float) -> float:
        """Return how long the oldest of them has waited; 0 if none waits."""
        oldest_s = self._waiting.oldest_s()
        return 0.0 if oldest_s is None else now_s - oldest_s

    def wait_s(self, ticket: Ticket, now_s: float) -> float:
        """Return how long such a request would wait for a prefill worker, as predicted; infinite if there is none."""
        openings = self.roster.openings
        first = openings.top()
        if first is None:
            return math.inf
        work_s = ticket.work_s or ticket.alone_s(first, 0)
        free_s = min(max(one.free_s, now_s) for one in openings.first(_LOOK_AT)) - now_s
        return free_s + self._waiting.queue.ahead_s(ticket.kind, work_s) / len(openings)

    def class_of(self, ticket: Ticket) -> RequestClass:
        """Return a request's class."""
        return self._waiting.queue.class_of(ticket.kind)

    def share_of(self, ticket: Ticket) -> float:
        """Return how urgent a request's class is: 0 for the lowest priority of all, 1 for the highest or only one."""
        return self._waiting.queue.share_of(ticket.kind)

    def reclassify(self, classes: tuple[RequestClass, ...]) -> None:
        """Go by other classes from now on, for what waits too; the first is that of requests that name none."""
        self.settings = replace(self.settings, classes=classes)
        self._waiting.queue.reclassify(classes)

    # Requests

    def offer(self, ticket: Ticket, now_s: float) -> None:
        """Take in a request, or take it back after its prefill failed; `dispatch` says where it goes."""
        if ticket.whole_because:
            self._waiting.keep_whole(ticket)
            return
        first = self.roster.openings.top()
        if first is not None:
            ticket.estimate(first, max(self.roster.present.tokens(ticket, now_s=now_s).values(), default=0))
        self._waiting.keep(ticket, first, now_s)

    def withdraw(self, ticket: Ticket) -> None:
        """Forget a request that waits: its client has gone, or its time is over."""
        self._waiting.forget(ticket)

    def changed(self, account: Account, *, role: str, in_rotation: bool) -> None:
        """Take in a worker, or what has become of it."""
        if account.in_rotation and not in_rotation and role == account.role:
            self.roster.present.forget(account.worker)  # it has probably restarted
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

    def succeeded(self, account: Account) -> None:
        """Account for an answer that shows a worker to be well."""
        if account.penalised:
            account.succeeded()
            self.roster.rank(account)

    def generate(self, ticket: Ticket, origin: Account, now_s: float) -> Account | None:
        """Return who generates for a request whose prompt is computed, and account for it; None if nobody can."""
        chosen = self.roster.decoder(ticket, origin, now_s=now_s)
        if chosen is not None:
            self.roster.fetches(ticket, chosen, now_s=now_s)
        return chosen

    def dispatch(self, now_s: float) -> list[Assignment]:
        """Return what goes to workers now; all of it is accounted for as sent."""
        found: list[Assignment] = []
        self.next_s = math.inf
        self.roster.forgive(now_s)
        waiting = self._waiting
        if waiting.whole:
            self._serve_whole(found, now_s)
        if waiting.queue.count or len(waiting.held):
            self._serve_one_sided(found, now_s)
            if self.limits.itl_s > 0:
                self._deflect(found, now_s)
            if len(waiting.held):
                self._serve_held(found, now_s)
            self._fill(found, now_s)
            self._lend(found, now_s)
            self._foresee(now_s)
        return found

    # Requests that one worker serves

    def _serve_whole(self, found: list[Assignment], now_s: float) -> None:
        while self._waiting.whole:
            ticket = self._waiting.whole[0]
            account = self.roster.anyone(ticket, most=_LOOK_AT)
            if account is None:
                return
            self._waiting.take_whole()
            self._send_whole(found, ticket, account, now_s, why=ticket.whole_because)

    def _serve_one_sided(self, found: list[Assignment], now_s: float) -> None:
        """Serve whole, while a role is missing, what would be split."""
        why = self._one_sided(now_s)
        while why and (ticket := self._waiting.queue.head(now_s)) is not None:
            account = self.roster.anyone(ticket, most=_LOOK_AT)
            if account is None:
                return
            self._waiting.take(ticket)
            self._send_whole(found, ticket, account, now_s, why=why)

    def _one_sided(self, now_s: float) -> str:
        """Return why no two workers can share a request, empty if two can."""
        if not len(self.roster.decoders):
            return "no decode worker is in rotation"
        first = self.roster.openings.top()
        if first is None:
            return "no prefill worker is in rotation"
        if first.penalty_until_s > now_s + _PATIENCE_S:
            return "every prefill worker has failed of late"
        if first.generation not in self.roster.generating and not self.roster.pairs():
            return "no prefill and decode worker are of one generation"
        return ""

    def _send_whole(self, found: list[Assignment], ticket: Ticket, account: Account, now_s: float, *, why: str) -> None:
        if account.takes_prompts:
            account.busy_with(ticket.alone_s(account, 0), now_s=now_s)
        self.roster.decode_sent(ticket, account, now_s=now_s)
        found.append(Assignment(ticket, account, None, why))

    # Prompts that are computed where their tokens are generated

    def _deflect(self, found: list[Assignment], now_s: float) -> None:
        while (ticket := self._waiting.queue.head(now_s)) is not None:
            offer = deflection.cheapest(ticket, self.roster, self.limits, self.settings, now_s=now_s)
            if offer is None:
                return
            self._waiting.take(ticket)
            offer.take()
            self.roster.decode_sent(ticket, offer.account, now_s=now_s)
            found.append(Assignment(ticket, offer.account, None, "its prompt is computed there", deflected=True))

    # Prompts that prefill workers compute

    def _fill(self, found: list[Assignment], now_s: float) -> None:
        """Give the workers that are open what is theirs of what waits."""
        waiting = self._waiting
        share_s = -1.0
        while (account := self._open(now_s)) is not None:
            ticket = waiting.queue.head(now_s)
            if ticket is None:
                ticket = self._stolen(account, now_s)
                if ticket is None:
                    return
                self._send(found, ticket, account, now_s)
                continue
            if account.following.count:
                if share_s < 0:
                    share_s = self._share_s(now_s)
                if not has_room(account, ticket, share_s):
                    return
            chosen = self._best(ticket, account, now_s)
            waiting.take(ticket)
            if chosen.worker in ticket.failed:
                why = f"no prefill worker is left after {len(ticket.failed)} failed"
                self._send_whole(found, ticket, self.roster.anyone(ticket, most=_LOOK_AT) or account, now_s, why=why)
            elif chosen.opens_s <= now_s:
                self._send(found, ticket, chosen, now_s)
            else:
                there = self.roster.present.at(ticket, chosen.worker, now_s=now_s)
                waiting.held.hold(ticket, chosen, chosen.slowness * ticket.alone_s(chosen, there))

    def _lend(self, found: list[Assignment], now_s: float) -> None:
        """Give what has waited long to workers of other pickers' parts that seem free, a prompt each."""
        while len(self.roster.spare) and (ticket := self._waiting.queue.head(now_s)) is not None:
            account = self.roster.lent(ticket, now_s=now_s)
            if account is None:
                return
            self._waiting.take(ticket)
            self._send(found, ticket, account, now_s)

    def _send(self, found: list[Assignment], ticket: Ticket, account: Account, now_s: float) -> None:
        decoder = self.roster.decoders.top()
        if decoder is not None and decoder.full and self.limits.prefill_keeps and not account.full:
            self._send_whole(found, ticket, account, now_s, why="the decode workers are full")
            return
        found.append(Assignment(ticket, account, self.roster.prefill_sent(ticket, account, now_s=now_s)))

    def _open(self, now_s: float) -> Account | None:
        """Return the open worker that will be free soonest, None if none is open."""
        best: Account | None = None
        generating = self.roster.generating
        for account in self.roster.openings.accounts:
            if account.opens_s > now_s:
                break
            if account.generation not in generating:
                continue
            if not account.prefills_in_flight:
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
        first = openings.top()
        if first is None:
            return 0.0
        pace, workers = first.pace, len(openings)
        each = self._waiting.arriving.rate(now_s) / workers
        most_s = pace.base_s + pace.token_s * pace.budget
        lasts_s = pace.base_s / (1.0 - each) if each < 1.0 else most_s
        lasts_s = lasts_s if lasts_s < most_s else most_s
        ends_s = now_s + lasts_s
        free = 0
        for looked, account in enumerate(openings.accounts, 1):
            if account.opens_s > ends_s:  # so does whoever comes after it
                break
            if account.free_s <= ends_s:
                free += 1
            if looked >= _SPREAD_OVER:
                free = free * workers // looked
                break
        # The worker itself is not among those: it has prompts already that it will begin with.
        return (self._waiting.spread_s + lasts_s * each * workers) / (free + 1)

    def _best(self, ticket: Ticket, account: Account, now_s: float) -> Account:
        """Return the open worker, or one for which it is better to wait: it has the prompt's beginning."""
        if not ticket.hashes and not ticket.chain and not ticket.failed:
            return account
        present = self.roster.present
        holders = present.tokens(ticket, now_s=now_s)
        asked = [account]
        if ticket.failed:
            asked += [one for one in self.roster.openings if one.worker not in ticket.failed][:_LOOK_AT]
        asked += [one for worker in holders if (one := self.roster.get(worker)) is not None and one.takes_prompts]
        weight = self._saving_weight()
        best, least_s = account, math.inf
        for one in asked:
            if one.worker in ticket.failed or one.generation not in self.roster.generating:
                continue
            alone_s = ticket.alone_s(one, present.among(holders, ticket, one.worker, now_s=now_s))
            score_s = one.done_s(alone_s, now_s=now_s) + weight * alone_s
            if score_s < least_s:
                best, least_s = one, score_s
        return best

    def _saving_weight(self) -> float:
        """Return what a second of one prefill worker is worth: all that waits would go sooner by a part of it."""
        return self.settings.saving_weight + self._waiting.count / (len(self.roster.openings) or 1)

    # Prompts that wait for one worker

    def _serve_held(self, found: list[Assignment], now_s: float) -> None:
        waiting = self._waiting
        share_s = -1.0
        for account in waiting.held.accounts():
            while account.opens_s <= now_s and (ticket := waiting.first_held(account, now_s)) is not None:
                if account.following.count:
                    if share_s < 0:
                        share_s = self._share_s(now_s)
                    if not has_room(account, ticket, share_s):
                        break
                waiting.held.release(ticket)
                self._send(found, ticket, account, now_s)

    def _release_held(self, account: Account) -> None:
        for ticket in self._waiting.held.of(account):
            self._waiting.held.release(ticket)
            self._waiting.put(ticket)

    def _stolen(self, account: Account, now_s: float) -> Ticket | None:
        """Return a prompt that waits for another worker and is done sooner by this one, which has nothing to do."""
        held = self._waiting.held
        if account.prefills_in_flight or not len(held):
            return None
        weight = self._saving_weight()
        for other in held.some(_STEALS):
            ticket, there_s = held.last(other)
            begins_s = (other.free_s if other.free_s > now_s else now_s) + other.held_s - there_s
            if begins_s <= now_s or account.worker in ticket.failed:
                continue
            if account.generation not in self.roster.generating:
                continue
            there = self.roster.present.at(ticket, account.worker, now_s=now_s)
            here_s = account.slowness * ticket.alone_s(account, there)
            if now_s + (1.0 + weight) * here_s < begins_s + (1.0 + weight) * there_s:
                held.release(ticket)
                return ticket
        return None

    def _foresee(self, now_s: float) -> None:
        """Note when the next worker opens, if anything waits for it."""
        if self._waiting.queue.count:
            for account in self.roster.openings.accounts:
                if account.opens_s > now_s:
                    self.next_s = account.opens_s
                    break
        if len(self._waiting.held):
            for account in self._waiting.held.accounts():
                if now_s < account.opens_s < self.next_s:
                    self.next_s = account.opens_s
