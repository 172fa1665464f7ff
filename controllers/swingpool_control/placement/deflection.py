"""Computing a prompt where its tokens are generated: no KV cache moves, but whoever generates there waits meanwhile."""

from swingpool_control.placement.account import FULL_SHARE, Account
from swingpool_control.placement.limits import DeflectionLimits
from swingpool_control.placement.ticket import Ticket
from swingpool_control.placement.work import context2, prompts_s

MOST_SAVED = 4.0
"""Times between tokens that may be saved up for later."""


class Offer:
    """What a decode worker can do for a prompt."""

    __slots__ = ("account", "begins_s", "done_s", "over")

    def __init__(self, account: Account, begins_s: float, done_s: float, over: int) -> None:
        self.account = account
        self.begins_s = begins_s
        self.done_s = done_s
        """When its first token should be there."""
        self.over = over
        """Times between its residents' tokens that it would make longer than the limit."""

    @property
    def residents_wait_s(self) -> float:
        """What all residents together would wait for it."""
        return (self.done_s - self.begins_s) * self.account.residents()[0]


def offer(
    account: Account, ticket: Ticket, *, blocks: int, limits: DeflectionLimits, now_s: float, hop_s: float
) -> Offer | None:
    """Return what a decode worker can do for a prompt within the limits, None if that is nothing.

    One prompt at a time: two in one iteration would make it as long as both together.

    Args:
        account: the decode worker.
        ticket: the prompt.
        blocks: leading blocks of it that the worker has.
        limits: what its residents may wait.
        now_s: the time.
        hop_s: from here to the worker.
    """
    uncached = ticket.tokens - ticket.cached(blocks)
    if limits.itl_s <= 0 or uncached > limits.most_tokens or account.deflected_until_s > now_s:
        return None
    if account.fullness() + ticket.tokens / account.model.kv_capacity_tokens > FULL_SHARE:
        return None
    sequences, context = account.residents()
    model = account.model
    some = min(uncached, model.max_batched_tokens)
    step_s = model.step_s(
        prefill_tokens=some,
        prefill_context_tokens=context2(ticket.tokens - uncached + some, some),
        decode_sequences=sequences,
        decode_context_tokens=context,
    )
    over = 0
    if sequences and step_s > limits.itl_s:
        over = -(-uncached // model.max_batched_tokens)
        save(account, limits, now_s=now_s)
        if over > account.over_left:
            return None
    begins_s = now_s + hop_s + (account.step_s() / 2 if sequences else 0.0)
    done_s = begins_s + prompts_s(
        model,
        tokens=uncached,
        context_tokens2=context2(ticket.tokens, uncached),
        sequences=sequences,
        resident_tokens=context,
    )
    return Offer(account, begins_s, done_s, over)


def take(chosen: Offer) -> None:
    """Account for an offer that was taken."""
    chosen.account.deflected_until_s = chosen.done_s
    chosen.account.over_left -= chosen.over


def save(account: Account, limits: DeflectionLimits, *, now_s: float) -> None:
    """Credit a worker with the share of times between tokens since the last look that may be longer than the limit."""
    passed_s = now_s - account.over_at_s
    account.over_at_s = now_s
    account.over_left = min(MOST_SAVED, account.over_left + limits.over_share * passed_s / account.step_s())
