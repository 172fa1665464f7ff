"""The batches on decode workers: how many sequences run together, how long their steps take, when first tokens come.

The decode workers are followed together: requests go to the emptiest, so each has an equal part of all sequences.
Between two events every sequence gets a token per step; it ends after as many as its answer has. A request first waits
for the end of the step under way, since KV cache is asked for between steps, and until that is free; then for the
transfer, which passes the links of the prefill worker and of the decode worker after what they have to pass before; and
then for the end of the step under way then.

Contexts grow. Where they no longer fit, who began last loses its KV cache, waits before all others, and is computed
anew, during which nobody on that worker gets a token: so a full worker does less than its batch would let one expect.
"""

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from heapq import heappop, heappush, heapreplace
from math import ceil, inf

from swingpool_control.engine.model import PerformanceModel, prefill_s


@dataclass(slots=True, kw_only=True)
class Request:
    """One request whose prompt is computed."""

    at_s: float
    """When a decode worker learns of it."""
    prompt_tokens: float
    output_tokens: float
    transfer_s: float
    """Of its KV cache, alone on a link."""
    before: float
    """Share of a step that it waits until its transfer may begin, 0-1."""
    sender: int = 0
    """The prefill worker that its KV cache comes from."""


@dataclass(slots=True, kw_only=True)
class Generated:
    """What became of all requests."""

    first_s: list[float]
    """When each has its first token, in the order of the requests."""
    step_s: list[float] = field(default_factory=list)
    """Durations of steps."""
    tokens: list[float] = field(default_factory=list)
    """How many tokens came in steps of that duration."""


def generate(model: PerformanceModel, workers: int, requests: Sequence[Request], *, since: int) -> Generated:
    """Follow requests from their computed prompts to the end.

    Args:
        model: the workers' model.
        workers: how many there are, 1 or more.
        requests: ascending in `at_s`.
        since: number of the first request from whose arrival on steps are counted: before it, batches fill.
    """
    return _Batches(model, workers, requests).run(since)


class _Steps:
    """Duration of a decode step, from few calls of the model."""

    def __init__(self, model: PerformanceModel) -> None:
        self._model = model
        self._typical = max(1, model.kv_capacity_tokens // 8)
        self._known: list[tuple[float, float]] = []
        """Duration without context and per token of it, by sequences."""

    def seconds(self, sequences: int, context_tokens: float) -> float:
        """Return the duration of a step."""
        while len(self._known) <= sequences:
            count = len(self._known)
            bare_s = self._ask(count, 0)
            self._known.append((bare_s, (self._ask(count, self._typical) - bare_s) / self._typical))
        bare_s, token_s = self._known[sequences]
        return bare_s + token_s * context_tokens

    def _ask(self, sequences: int, context_tokens: int) -> float:
        return self._model.step_s(
            prefill_tokens=0,
            prefill_context_tokens=0,
            decode_sequences=max(1, sequences),
            decode_context_tokens=context_tokens,
        )


class _Batches:
    """One run over all requests."""

    def __init__(self, model: PerformanceModel, workers: int, requests: Sequence[Request]) -> None:
        self._model = model
        self._steps = _Steps(model)
        self._workers = workers
        self._requests = requests
        self._most = workers * model.max_sequences
        self._room = workers * model.kv_capacity_tokens
        self._now_s = 0.0
        self._clock = 0.0
        """Steps that a sequence that was there from the start has had."""
        self._stalled_s = 0.0
        """For how long from now on no step ends, since prompts are computed anew."""
        self._running = 0
        self._offset = 0.0
        """Context of all that run, less one token per sequence and step of the clock."""
        self._ends: list[tuple[float, int]] = []
        """Of all that run, and of some that do no longer: when by the clock, and the request."""
        self._ends_at: dict[int, float] = {}
        """When by the clock those that run end, in the order in which they began."""
        self._offsets: dict[int, float] = {}
        """The part of each in the offset."""
        self._contexts = [request.prompt_tokens for request in requests]
        """Tokens of each request's context when it begins to run."""
        self._left = [request.output_tokens for request in requests]
        """Tokens that each has to generate then."""
        self._step_s = self._steps.seconds(1, 0.0)
        """Between two tokens now, the mean over sequences."""
        self._parts: tuple[tuple[float, int], ...] = ()
        """Duration and number of sequences: of the workers that have one more, and of the others."""
        self._moves: list[tuple[float, int]] = []
        """Sequences that begin: time and request."""
        self._moving = 0.0
        """KV cache that is kept for them, in tokens."""
        self._links = [0.0] * workers
        self._outlets: dict[int, float] = {}
        """When the links of decode workers, and of prefill workers, have passed all that they were given."""
        self._full: deque[int] = deque()
        """Requests that wait for KV cache; first those that lost theirs."""
        self._lost_at_s: dict[int, float] = {}
        """When those lost it."""
        self._late_s, self._late_tokens = 0.0, 0.0
        """By how much the next tokens are later than a step, and how many."""
        self._result = Generated(first_s=[0.0] * len(requests))
        self._counts = False

    def run(self, since: int) -> Generated:
        """Let all requests end."""
        number, requests = 0, self._requests
        while number < len(requests) or self._moves or self._running:
            arrival_s = requests[number].at_s if number < len(requests) else inf
            move_s = self._moves[0][0] if self._moves else inf
            end_s = self._next_end_s()
            over_s = self._over_s()
            if over_s < end_s and over_s <= arrival_s and over_s <= move_s:
                self._pass(over_s)
                self._preempt()
            elif end_s <= arrival_s and end_s <= move_s:
                self._pass(end_s)
                self._end()
            elif arrival_s <= move_s:
                self._pass(arrival_s)
                self._counts = number >= since
                self._arrive(number)
                number += 1
            else:
                self._pass(move_s)
                self._move()
        return self._result

    def _next_end_s(self) -> float:
        """Return when the next sequence ends."""
        while self._ends and self._ends_at.get(self._ends[0][1]) != self._ends[0][0]:
            heappop(self._ends)
        if not self._ends:
            return inf
        return self._now_s + self._stalled_s + (self._ends[0][0] - self._clock) * self._step_s

    def _over_s(self) -> float:
        """Return when contexts will have grown beyond the KV cache, if none ends before."""
        if self._running < 2:  # a lone one always fits
            return inf
        spare = max(0.0, self._room - self._moving - self._offset - self._running * self._clock)
        return self._now_s + self._stalled_s + spare / self._running * self._step_s

    def _pass(self, until_s: float) -> None:
        """Let time pass in which nothing happens but steps."""
        lasts_s = until_s - self._now_s
        self._now_s = until_s
        if self._stalled_s > 0:
            stalled_s = min(self._stalled_s, lasts_s)
            self._stalled_s -= stalled_s
            lasts_s -= stalled_s
        if self._running and lasts_s > 0:
            self._clock += lasts_s / self._step_s
            if self._counts:
                for step_s, sequences in self._parts:
                    self._count(step_s, sequences * lasts_s / step_s)

    def _count(self, step_s: float, tokens: float) -> None:
        """Note how long steps were; first the tokens that a prompt beside them delayed."""
        late = min(self._late_tokens, tokens)
        if late > 0:
            self._late_tokens -= late
            self._result.step_s.append(step_s + self._late_s)
            self._result.tokens.append(late)
        self._result.step_s.append(step_s)
        self._result.tokens.append(tokens - late)

    def _busy(self, share: float) -> float:
        """Return how long a step's share is; nothing if an idle worker takes the request."""
        return share * self._step_s if self._running >= self._workers else 0.0

    def _arrive(self, number: int) -> None:
        if self._fits(number) and not self._full:
            self._load(number, self._now_s + self._busy(self._requests[number].before))
        else:
            self._full.append(number)

    def _load(self, number: int, asked_s: float) -> None:
        """Begin a transfer to the link that is free first, and so begin when the step ends in which it is over."""
        request, step_s = self._requests[number], self._busy(1.0)
        received_s = max(asked_s, self._links[0]) + request.transfer_s
        sent_s = max(asked_s, self._outlets.get(request.sender, 0.0)) + request.transfer_s
        heapreplace(self._links, received_s)
        self._outlets[request.sender] = sent_s
        there_s = max(received_s, sent_s)
        if step_s > 0:
            there_s = asked_s + step_s * max(1, ceil((there_s - asked_s) / step_s))
        self._moving += request.prompt_tokens
        heappush(self._moves, (there_s, number))

    def _move(self) -> None:
        _, number = heappop(self._moves)
        self._moving -= self._requests[number].prompt_tokens
        self._join(number)
        self._result.first_s[number] = self._now_s + self._stalled_s + self._step_s

    def _fits(self, number: int) -> bool:
        """Tell whether there is room for a request, and for the next token of all others."""
        if not self._running and not self._moves:
            return True
        held = self._moving + self._offset + self._running * (self._clock + 1.0)
        return self._running + len(self._moves) < self._most and held + self._contexts[number] <= self._room

    def _join(self, number: int) -> None:
        self._offsets[number] = self._contexts[number] - self._clock
        self._running += 1
        self._offset += self._offsets[number]
        self._ends_at[number] = self._clock + self._left[number]
        heappush(self._ends, (self._ends_at[number], number))
        self._weigh()

    def _leave(self, number: int) -> None:
        del self._ends_at[number]
        self._running -= 1
        self._offset -= self._offsets.pop(number)

    def _end(self) -> None:
        self._leave(heappop(self._ends)[1])
        while self._full and self._fits(self._full[0]):
            number = self._full.popleft()
            if number in self._lost_at_s:
                self._resume(number)
            else:
                self._load(number, self._now_s)
        self._weigh()

    def _preempt(self) -> None:
        """Take its KV cache from the sequence that began last."""
        number = next(reversed(self._ends_at))
        self._left[number] = self._ends_at[number] - self._clock
        self._contexts[number] = self._offsets[number] + self._clock
        self._leave(number)
        self._lost_at_s[number] = self._now_s
        self._full.appendleft(number)
        self._weigh()

    def _resume(self, number: int) -> None:
        """Let a sequence go on that lost its KV cache: one worker computes all its tokens, while others wait."""
        again_s = prefill_s(self._model, prompt_tokens=max(1, round(self._contexts[number])))
        beside_s = max(0.0, again_s - self._steps.seconds(1, 0.0))
        self._stalled_s += beside_s / self._workers
        self._late_s = beside_s
        self._late_tokens += self._running / self._workers
        self._join(number)
        lost_s = self._now_s - self._lost_at_s.pop(number)
        if self._counts:
            self._result.step_s.append(lost_s + beside_s + self._step_s)
            self._result.tokens.append(1.0)

    def _weigh(self) -> None:
        """Take in that a sequence began or ended: how long steps are now."""
        running, steps = self._running, self._steps
        if not running:
            self._parts, self._step_s = (), steps.seconds(1, 0.0)
            return
        each, more = divmod(running, self._workers)
        context = (self._offset + running * self._clock) / running
        longer = more * (each + 1)
        parts = []
        if longer:
            parts.append((steps.seconds(each + 1, (each + 1) * context), longer))
        if running > longer:
            parts.append((steps.seconds(each, each * context), running - longer))
        self._parts = tuple(parts)
        self._step_s = sum(step_s * count for step_s, count in parts) / running
