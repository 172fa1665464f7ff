"""What a router knows of one worker's work: what it sent there, and when that will be done.

A prefill worker computes what has come in one batch of iterations after another, so its account keeps the batch that is
computed now and the one that follows. The end of the first prompt or the last of a batch corrects what was predicted.
"""

from typing import Final

from swingpool_control import names
from swingpool_control.engine.model import PerformanceModel
from swingpool_control.placement.work import Pace, context2, prompts_s

LEAST_PACE: Final = 0.05
MOST_PACE: Final = 20.0
"""How far a worker may be faster or slower than its model says."""
_PACE_WEIGHT: Final = 0.1
FULL_SHARE: Final = 0.9
"""Share of the KV cache beyond which a decode worker is full."""
FULL_S: Final = 1.0
"""What it then costs per step, so that whoever has room comes first."""
FOREIGN_SHARE: Final = 0.6
"""By so much slower a decode worker of another picker's part counts."""
FIRST_PENALTY_S: Final = 0.5
MOST_PENALTY_S: Final = 30.0
"""How long a worker that failed a request comes after all others; doubled with each failure in a row."""
IDLE_FIRST_S: Final = 1e9
"""By so much idle workers come before those that are only predicted to be free."""


class Leg:
    """One prompt at a prefill worker."""

    __slots__ = ("batch", "context_tokens2", "epoch", "predicted_s", "tokens", "uncached")

    def __init__(self, tokens: int, uncached: int, batch: int, epoch: int) -> None:
        self.tokens = tokens
        self.uncached = uncached
        self.context_tokens2 = context2(tokens, uncached)
        self.batch = batch
        self.epoch = epoch
        self.predicted_s = 0.0
        """When it should end."""


class Batch:
    """Prompts that a worker computes together."""

    __slots__ = ("context_tokens2", "count", "tokens")

    def __init__(self) -> None:
        self.tokens = 0
        self.context_tokens2 = 0
        self.count = 0

    def add(self, leg: Leg) -> None:
        """Take in a prompt."""
        self.tokens += leg.uncached
        self.context_tokens2 += leg.context_tokens2
        self.count += 1

    def drop(self, leg: Leg) -> None:
        """Let go of a prompt that was not computed."""
        self.tokens -= leg.uncached
        self.context_tokens2 -= leg.context_tokens2
        self.count -= 1


class Account:
    """One worker; seconds are the clock of whoever calls.

    Args:
        worker: `ip:port` of its HTTP API; unique.
        model: what it can do.
        generation: workers of two generations cannot exchange KV cache.
    """

    __slots__ = (
        "_began_s",
        "_failures",
        "_number",
        "_own_s",
        "alone",
        "batch_end_s",
        "decode_context_tokens",
        "decode_key",
        "decodes_in_flight",
        "deflected_until_s",
        "epoch",
        "following",
        "following_s",
        "foreign",
        "free_s",
        "fullness",
        "generation",
        "held_s",
        "in_rotation",
        "kv_usage",
        "link_free_s",
        "moving_s",
        "now_batch",
        "opens_s",
        "others_in_flight",
        "others_until_s",
        "over_at_s",
        "over_left",
        "pace",
        "penalised",
        "penalty_until_s",
        "pending_prefill_tokens",
        "prefills_in_flight",
        "role",
        "sharers",
        "slowness",
        "spare_s",
        "step_s",
        "worker",
    )

    def __init__(self, worker: str, model: PerformanceModel, *, generation: str = "") -> None:
        self.worker = worker
        self.generation = generation
        self.pace = Pace(model)
        self.role, self.in_rotation = "", False
        self.alone, self.foreign, self.sharers = True, False, 1
        """Whether there is one picker; whether it is in other pickers' parts only; in how many parts it is."""
        self.epoch = 0
        """Counts changes of role."""
        self.slowness = 1.0
        """What its prompts take, against what the model says."""
        self.pending_prefill_tokens = 0
        self.prefills_in_flight, self.decodes_in_flight = 0, 0
        self.decode_context_tokens = 0
        """KV cache that those read at each step: their prompts."""
        self.others_in_flight = 0
        """Requests that it runs beyond those, by its own metrics: other routers', or from before this one started."""
        self.kv_usage = 0.0
        """By its own metrics, 0-1; 0 as long as they are unknown."""
        self.now_batch, self.following = Batch(), Batch()
        self.batch_end_s = 0.0
        """When the present batch should be done."""
        self.following_s = 0.0
        """What the batch after it should take."""
        self.free_s = 0.0
        """When all that was sent should be done."""
        self.opens_s = 0.0
        """When it may get the next prompt."""
        self.step_s = 0.0
        """Predicted time between two tokens with one request more."""
        self.fullness = 0.0
        """Share of its KV cache that is taken, or of its sequences: whichever is more."""
        self.decode_key = 0.0
        """Its rank among decode workers."""
        self.link_free_s, self.moving_s = 0.0, 0.0
        """When all KV cache should be there that it fetches; what that takes of which no first token has come."""
        self.held_s = 0.0
        """Predicted seconds of prompts that wait for this very worker, which has their prefixes."""
        self.others_until_s, self.penalty_until_s = 0.0, 0.0
        self.deflected_until_s = 0.0
        """When the prompt that it computes beside its residents should be done."""
        self.over_left = 0.0
        """Times between tokens that may be longer than the limit, saved up until `over_at_s`."""
        self.spare_s = 0.0
        """Seconds that its residents' tokens came sooner than they must, saved up likewise."""
        self.over_at_s = 0.0
        self._number, self._failures = 0, 0
        self._began_s, self._own_s = 0.0, 0.0
        self.penalised = False
        """Whether it failed its last request, and not long ago."""

    @property
    def model(self) -> PerformanceModel:
        """What it can do."""
        return self.pace.model

    @property
    def takes_prompts(self) -> bool:
        """Whether it is a prefill worker in rotation."""
        return self.in_rotation and self.role == names.ROLE_PREFILL

    @property
    def generates(self) -> bool:
        """Whether it is a decode worker in rotation."""
        return self.in_rotation and self.role == names.ROLE_DECODE

    @property
    def idle(self) -> bool:
        """Whether it computes no prompt that was sent from here."""
        return not self.prefills_in_flight

    # Prefill

    def prefill_sent(self, tokens: int, uncached: int, *, now_s: float, hop_s: float) -> Leg:
        """Account for a prompt that is sent now; return what to hand back when it ends."""
        if not self.prefills_in_flight:
            self._number += 1
            self._began_s = now_s + hop_s
        joins = not self.now_batch.count
        leg = Leg(tokens, uncached, self._number if joins else self._number + 1, self.epoch)
        self.pending_prefill_tokens += tokens
        self.prefills_in_flight += 1
        if joins:
            self.now_batch.add(leg)
            self.batch_end_s = self._began_s + self._batch_s(self.now_batch)
        else:
            self.following.add(leg)
            self.following_s = self._batch_s(self.following)
        self.free_s = self.batch_end_s + self.following_s
        leg.predicted_s = self.free_s
        return leg

    def prefill_ended(self, leg: Leg, *, now_s: float, served: bool) -> None:
        """Account for a prompt's end, whichever way it ended."""
        self.pending_prefill_tokens -= leg.tokens
        self.prefills_in_flight -= 1
        if leg.batch > self._number:
            self.following.drop(leg)
            self.following_s = self._batch_s(self.following)
        elif leg.batch == self._number:
            self._ended_now(leg, now_s=now_s, served=served)
        self.free_s = self.batch_end_s + self.following_s if self.prefills_in_flight else now_s

    def _ended_now(self, leg: Leg, *, now_s: float, served: bool) -> None:
        batch = self.now_batch
        batch.count -= 1
        if not served:  # it will not be computed, or has broken: the rest of the batch is done the sooner
            batch.tokens -= leg.uncached
            batch.context_tokens2 -= leg.context_tokens2
        if batch.count:
            return
        if served and batch.tokens > 0:
            self._learn(now_s)
        self._number += 1
        self.now_batch, self.following = self.following, Batch()
        self._began_s = now_s
        self.batch_end_s, self.following_s = now_s + self.following_s, 0.0

    def _learn(self, now_s: float) -> None:
        predicted_s = self.batch_end_s - self._began_s
        if predicted_s > 0:
            seen = self.slowness * max(0.0, now_s - self._began_s) / predicted_s
            seen = min(max(seen, LEAST_PACE), MOST_PACE)
            self.slowness += _PACE_WEIGHT * (seen - self.slowness)
            self._own_s += _PACE_WEIGHT * (predicted_s - self._own_s)

    def _batch_s(self, batch: Batch) -> float:
        if not batch.count:
            return 0.0
        return self.slowness * prompts_s(
            self.pace.model,
            tokens=batch.tokens if batch.tokens > 1 else 1,
            context_tokens2=batch.context_tokens2 if batch.context_tokens2 > 0 else 0,
            sequences=self.decodes_in_flight,
            resident_tokens=self.decode_context_tokens,
        )

    def foresee_opening(self, lead_s: float, lead_share: float) -> float:
        """Predict when it may get further prompts, shortly before its iteration ends; return its rank by that.

        Among those that may, those that have nothing to do come first, the one that has had nothing for longest before
        the others.
        """
        blocked_s = self.others_until_s if self.others_until_s > self.penalty_until_s else self.penalty_until_s
        if not self.prefills_in_flight:
            self.opens_s = blocked_s if blocked_s > self.free_s else self.free_s
            return self.opens_s if blocked_s > self.free_s else self.free_s - IDLE_FIRST_S
        pace = self.pace
        one_s = self.batch_end_s - self._began_s
        full_s = self.slowness * pace.budget * pace.token_s
        end_s = self.free_s if self.following.tokens >= pace.budget else self.batch_end_s
        opens_s = end_s - lead_s - lead_share * (one_s if one_s < full_s else full_s)
        self.opens_s = opens_s if opens_s > blocked_s else blocked_s
        return self.opens_s

    def done_s(self, alone_s: float, *, now_s: float) -> float:
        """Return when a prompt would be done that is sent now or, if that is too early, as soon as it may be.

        Args:
            alone_s: what the model says that it takes alone.
            now_s: the time.
        """
        start_s = self.free_s if self.free_s > now_s else now_s
        start_s = max(start_s, self.others_until_s)
        start_s = max(start_s, self.penalty_until_s)
        if self.following.count:
            alone_s -= self.pace.base_s  # it joins an iteration that others pay for
        return start_s + self.held_s + self.slowness * alone_s

    # Decode

    def decode_sent(self, tokens: int) -> None:
        """Account for a request that it now generates for."""
        self.decodes_in_flight += 1
        self.decode_context_tokens += tokens

    def decode_ended(self, tokens: int) -> None:
        """Account for the end of a request, or for its move to another worker."""
        self.decodes_in_flight -= 1
        self.decode_context_tokens -= tokens

    def transfer_sent(self, seconds: float, *, now_s: float) -> None:
        """Account for KV cache that it fetches, one prompt's after the other."""
        self.link_free_s = (self.link_free_s if self.link_free_s > now_s else now_s) + seconds
        self.moving_s += seconds

    def transfer_ended(self, seconds: float) -> None:
        """Account for KV cache that has come, or never will."""
        self.moving_s = self.moving_s - seconds if self.moving_s > seconds else 0.0

    def link_wait_s(self, now_s: float) -> float:
        """Return how long the next transfer to it would wait, as predicted, for those that have not surely ended."""
        wait_s = self.link_free_s - now_s
        if wait_s <= 0.0:
            return 0.0
        return wait_s if wait_s < self.moving_s else self.moving_s

    def residents(self) -> tuple[int, int]:
        """Return the sequences that it generates for, and the KV cache that they read; others' are like one's own."""
        own = self.decodes_in_flight
        if not self.others_in_flight:
            return own, self.decode_context_tokens
        mean = self.decode_context_tokens // own if own else 0
        return own + self.others_in_flight, self.decode_context_tokens + self.others_in_flight * mean

    def foresee_steps(self) -> float:
        """Predict the time between two tokens with one request more, and how full it is; return its rank by that."""
        sequences, context = self.residents()
        model = self.pace.model
        self.step_s = model.step_s(
            prefill_tokens=0,
            prefill_context_tokens=0,
            decode_sequences=sequences + 1,
            decode_context_tokens=context + context // (sequences or 1),
        )
        used, seats = context / model.kv_capacity_tokens, sequences / model.max_sequences
        used = used if used > self.kv_usage else self.kv_usage
        self.fullness = used if used > seats else seats
        key = self.step_s
        if self.fullness > FULL_SHARE:
            key += FULL_S * self.fullness
        if self.penalised:
            key += MOST_PENALTY_S
        if self.foreign:
            key += FOREIGN_SHARE * self.step_s
        self.decode_key = key
        return key

    @property
    def full(self) -> bool:
        """Whether it should get no further request as long as another worker has room."""
        return self.fullness > FULL_SHARE

    # What it reports

    def reported(self, *, in_flight: float | None, kv_usage: float | None, now_s: float) -> None:
        """Take over what the worker says of itself; None is unknown.

        Args:
            in_flight: requests that it runs or has waiting, whoever sent them.
            kv_usage: share of its KV cache that is taken, 0-1.
            now_s: the time.
        """
        self.kv_usage = 0.0 if kv_usage is None else kv_usage
        own = self.prefills_in_flight + self.decodes_in_flight
        self.others_in_flight = 0 if in_flight is None else max(0, round(in_flight) - own)
        # Other pickers' prompts are done by the time that anything is made of them, and others have come.
        if self.role == names.ROLE_PREFILL and self.others_in_flight and self.alone:
            self.others_until_s = now_s + self.others_in_flight * (self._own_s or self.pace.base_s)

    def failed(self, *, now_s: float) -> None:
        """Let a worker that failed a request come after all others for a while."""
        penalty_s = min(MOST_PENALTY_S, FIRST_PENALTY_S * 2.0 ** min(self._failures, 10))
        self._failures += 1
        self.penalised = True
        self.penalty_until_s = now_s + penalty_s

    def succeeded(self) -> None:
        """Forget its failures."""
        self._failures = 0
        self.forgiven()

    def forgiven(self) -> None:
        """Let it get requests as before; its next failure in a row counts double still."""
        self.penalised = False
        self.penalty_until_s = 0.0

    def busy_with(self, seconds: float, *, now_s: float) -> None:
        """Account for a prompt that it computes for itself."""
        self.others_until_s = max(now_s, self.others_until_s, self.free_s) + self.slowness * seconds
