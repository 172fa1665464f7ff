"""One worker as the picker tracks it: membership, health, what was sent to it, what it reported."""

import math
from dataclasses import dataclass, field

from swingpool.picker.members import Member
from swingpool.picker.wire import Errand
from swingpool.telemetry.vllm_page import NO_FIGURES, Histogram, WorkerFigures
from swingpool_control import names
from swingpool_control.engine.model import decode_step_s
from swingpool_control.figures import Figure, Unknown
from swingpool_control.observation import WorkerObservation
from swingpool_control.placement.account import Account, Leg
from swingpool_control.placement.roster import ROLES

_NOT_PROBED = "it has not answered a probe yet"
_NO_FIRST_TOKEN = Unknown("no first token between two scrapes")
_NOT_SERVED = Unknown("it has served nothing in this role yet")


@dataclass(slots=True, kw_only=True, eq=False)
class Worker:
    """One worker; everything here changes as requests and probes come and go."""

    member: Member
    account: Account
    """What was sent to it, and when that will be done."""
    role_since_unix_s: float
    fault: str = _NOT_PROBED
    """Why its probes say that it cannot serve; empty if they say it can."""
    prefills_served: int = 0
    decodes_served: int = 0
    first_served_unix_s: Figure = _NOT_SERVED
    figures: WorkerFigures = NO_FIGURES
    mean_ttft_s: Figure = _NO_FIRST_TOKEN
    """What its own requests lately waited for their first token, by its own metrics."""
    sent_in_epoch: int = 0
    legs: set[Errand] = field(default_factory=set)
    """Prefill legs under way; they end at once when the worker stops answering."""

    @property
    def why_not(self) -> str:
        """Why it is out of rotation; empty if it is in."""
        if self.member.deleting:
            return "its pod is being deleted"
        if not self.member.ready:
            return "its pod is not ready"
        if self.fault:
            return self.fault
        if self.member.role not in ROLES:
            return f"its role is {self.member.role!r}" if self.member.role else "it has no role"
        return ""

    @property
    def unprobed(self) -> bool:
        """Whether no probe has said anything about it yet."""
        return self.fault == _NOT_PROBED

    @property
    def epoch(self) -> int:
        """Counts changes of role: what was sent in an earlier role says nothing about this one."""
        return self.account.epoch

    def became(self, member: Member, *, now_unix_s: float) -> None:
        """Take over a newer state of the pod."""
        if member.role != self.member.role:
            self.sent_in_epoch = 0
            self.role_since_unix_s = now_unix_s
            self.first_served_unix_s = _NOT_SERVED
        self.member = member

    def prefill_served(self, leg: Leg, *, now_unix_s: float) -> None:
        """Note a prompt that it has computed."""
        self.prefills_served += 1
        self._served(names.ROLE_PREFILL, epoch=leg.epoch, at_unix_s=now_unix_s)

    def first_token(self, *, epoch: int, at_unix_s: float) -> None:
        """Account for the first token of a request that was sent in role epoch `epoch`."""
        self._served(names.ROLE_DECODE, epoch=epoch, at_unix_s=at_unix_s)

    def scraped(self, figures: WorkerFigures, *, now_unix_s: float) -> None:
        """Take over a scrape: how long first tokens take, and signs of a first decode."""
        before, self.figures = self.figures, figures
        if figures.ttft_s is not None:
            growth = figures.ttft_s.since(before.ttft_s or Histogram())
            if growth.count > 0:
                self.mean_ttft_s = growth.sum / growth.count
        # Answers that do not stream show nothing before they end, but their KV cache was fetched: only decodes do that.
        if self.sent_in_epoch and _grew(before.transferred_tokens, figures.transferred_tokens):
            self._served(names.ROLE_DECODE, epoch=self.epoch, at_unix_s=now_unix_s)

    def _served(self, role: str, *, epoch: int, at_unix_s: float) -> None:
        if epoch == self.epoch and role == self.member.role and isinstance(self.first_served_unix_s, Unknown):
            self.first_served_unix_s = at_unix_s

    def abandon_legs(self, why: str, *, begun_before_s: float = math.inf) -> None:
        """End the legs that it holds: it will not answer them."""
        for leg in self.legs:
            if leg.began_s < begun_before_s:
                leg.cut(why)

    def in_flight(self) -> float | None:
        """Return what it says that it runs or has waiting, None if that is unknown."""
        running, waiting = self.figures.running, self.figures.waiting
        return None if isinstance(running, Unknown) or isinstance(waiting, Unknown) else running + waiting

    def predicted_gap_s(self) -> float | None:
        """Return what its model says of the time between two tokens now; None if it generates nothing."""
        sequences, context = self.account.residents()
        if not sequences:
            return None
        return decode_step_s(self.account.model, sequences=sequences, context_tokens=context)

    def observation(self) -> WorkerObservation:
        """Return the worker as the manager sees it."""
        why_not = self.why_not
        return WorkerObservation(
            pod=self.member.pod,
            address=self.member.address,
            role=self.member.role,
            role_since_unix_s=self.role_since_unix_s,
            in_rotation=not why_not,
            why_not=why_not,
            pending_prefill_tokens=self.account.pending_prefill_tokens,
            prefills_in_flight=self.account.prefills_in_flight,
            decodes_in_flight=self.account.decodes_in_flight,
            prefills_served=self.prefills_served,
            decodes_served=self.decodes_served,
            first_served_in_role_unix_s=self.first_served_unix_s,
            running=self.figures.running,
            waiting=self.figures.waiting,
            kv_usage=self.figures.kv_usage,
            scraped_unix_s=self.figures.scraped_unix_s,
            slowness=self.account.slowness if self.prefills_served else _NOT_SERVED,
        )


def _grew(before: Figure, now: Figure) -> bool:
    return not isinstance(before, Unknown) and not isinstance(now, Unknown) and now > before
