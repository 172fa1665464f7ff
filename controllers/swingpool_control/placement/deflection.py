"""Computing a prompt where its tokens are generated: no KV cache moves, but whoever generates there waits meanwhile.

Two things bound how long residents may wait beyond the limit: the share of times between tokens that may be longer, and
the time by which theirs have been shorter. Few long waits spare the first, but the mean of a resident's times is only
within the limit if it had time to spare: a worker that is nearly full of sequences has none.
"""

from typing import Final

from swingpool_control.placement.account import FULL_SHARE, Account
from swingpool_control.placement.limits import DeflectionLimits
from swingpool_control.placement.roster import Roster
from swingpool_control.placement.settings import PlacementSettings
from swingpool_control.placement.ticket import Ticket
from swingpool_control.placement.work import context2, prompts_s

LOOKED_AT: Final = 4
"""Decode workers that are looked at, from the best, for one that computes no prompt already."""
MOST_SAVED: Final = 4.0
"""Times between tokens that may be saved up for later."""
SPARED_OVER_S: Final = 20.0
"""Over which time to spare may be saved up at most: about what an answer takes."""


class Offer:
    """What a decode worker can do for a prompt."""

    __slots__ = ("account", "done_s", "late_s", "over", "wait_s")

    def __init__(self, account: Account, done_s: float, over: int, late_s: float, wait_s: float) -> None:
        self.account = account
        self.done_s = done_s
        """When its first token should be there."""
        self.over = over
        """Times between its residents' tokens that it would make longer than the limit."""
        self.late_s = late_s
        """By how much longer it would make those together."""
        self.wait_s = wait_s
        """What all residents together would wait for it."""

    def take(self) -> None:
        """Account for the prompt, which goes there."""
        self.account.deflected_until_s = self.done_s
        self.account.over_left -= self.over
        self.account.spare_s -= self.late_s


def cheapest(
    ticket: Ticket, roster: Roster, limits: DeflectionLimits, settings: PlacementSettings, *, now_s: float
) -> Offer | None:
    """Return the decode worker that has a prompt's first token sooner than two workers would, if there is one.

    What its residents wait counts against it.
    """
    holders = roster.present.tokens(ticket, now_s=now_s)
    split_s = _split_s(ticket, roster, holders, settings, now_s=now_s)
    best: Offer | None = None
    least_s = split_s
    for account in _asked(roster, holders, now_s=now_s):
        there = roster.present.among(holders, ticket, account.worker, now_s=now_s)
        offer = _offer(account, ticket, there, limits, settings, now_s=now_s, before_s=least_s)
        if offer is not None:
            best, least_s = offer, offer.done_s + settings.resident_weight * offer.wait_s
    return best


def _asked(roster: Roster, holders: dict[str, int], *, now_s: float) -> list[Account]:
    """Return the best decode worker that could take a prompt now, and those that have its prefix."""
    asked: list[Account] = []
    for account in roster.decoders.first(LOOKED_AT):
        if _is_free(account, now_s=now_s):
            asked.append(account)
            break
    for worker in holders:
        holder = roster.get(worker)
        if holder is not None and holder.generates and holder not in asked and _is_free(holder, now_s=now_s):
            asked.append(holder)
    return asked


def _is_free(account: Account, *, now_s: float) -> bool:
    return account.deflected_until_s <= now_s and account.fullness <= FULL_SHARE and not account.foreign


def _split_s(
    ticket: Ticket, roster: Roster, holders: dict[str, int], settings: PlacementSettings, *, now_s: float
) -> float:
    """Return when a prompt's first token should be there if two workers serve it."""
    first = roster.openings.top()
    decoder = roster.decoders.top()
    if first is None or decoder is None:
        return 0.0
    here = roster.present.among(holders, ticket, first.worker, now_s=now_s)
    done_s = first.done_s(ticket.alone_s(first, here), now_s=now_s)
    for worker, there in holders.items():
        holder = roster.get(worker)
        if holder is not None and holder.takes_prompts and holder is not first:
            done_s = min(done_s, holder.done_s(ticket.alone_s(holder, there), now_s=now_s))
    there = roster.present.among(holders, ticket, decoder.worker, now_s=now_s)
    moved_s = decoder.model.transfer_s(tokens=ticket.tokens - there)
    moved_s += decoder.link_wait_s(done_s)
    return done_s + moved_s + 1.5 * decoder.step_s + 2 * settings.hop_s


def _offer(
    account: Account,
    ticket: Ticket,
    there: int,
    limits: DeflectionLimits,
    settings: PlacementSettings,
    *,
    now_s: float,
    before_s: float,
) -> Offer | None:
    """Return what a decode worker can do for a prompt within the limits, if that is soon enough.

    One prompt at a time: two in one iteration would make it as long as both together.
    """
    uncached = ticket.tokens - there
    if uncached > limits.most_tokens:
        return None
    sequences, context = account.residents()
    begins_s = now_s + settings.hop_s + (account.step_s / 2 if sequences else 0.0)
    alone_s = ticket.alone_s(account, there)
    if begins_s + alone_s * (1.0 + settings.resident_weight * sequences) >= before_s:
        return None  # at the very best; what follows costs more to find out
    model = account.model
    if account.fullness + ticket.tokens / model.kv_capacity_tokens > FULL_SHARE:
        return None
    takes_s = prompts_s(
        model,
        tokens=uncached,
        context_tokens2=context2(ticket.tokens, uncached),
        sequences=sequences,
        resident_tokens=context,
    )
    over, late_s = -(-uncached // model.max_batched_tokens), 0.0
    if not sequences or takes_s <= limits.itl_s * over:
        over = 0
    else:
        late_s = takes_s - limits.itl_s * over
        save(account, limits, now_s=now_s)
        if over > account.over_left or late_s > account.spare_s:
            return None
    wait_s = takes_s * sequences
    if begins_s + takes_s + settings.resident_weight * wait_s >= before_s:
        return None
    return Offer(account, begins_s + takes_s, over, late_s, wait_s)


def save(account: Account, limits: DeflectionLimits, *, now_s: float) -> None:
    """Credit a worker for the time since the last look.

    With the share of its times between tokens that may be longer than the limit, and with what they were shorter.
    """
    passed_s = (now_s - account.over_at_s) / account.sharers  # each picker that may send there has its part
    account.over_at_s = now_s
    account.over_left = min(MOST_SAVED, account.over_left + limits.over_share * passed_s / account.step_s)
    slack = 1.0 - account.step_s / limits.itl_s if account.step_s < limits.itl_s else 0.0
    account.spare_s = min(SPARED_OVER_S * slack, account.spare_s + slack * passed_s)
