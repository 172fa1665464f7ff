"""The batches on decode workers: how many sequences run together, how long their steps take, when first tokens come.

The decode workers are followed together: requests go to the emptiest, so each has an equal part of all sequences.
Between two events every sequence gets a token per step; it ends after as many as its answer has. A request first waits
for the end of the step under way, since KV cache is asked for between steps, then for the transfer, which passes the
links of the prefill worker and of the decode worker after what they have to pass before, and then for the end of the
step under way then.
"""

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from heapq import heappop, heappush, heapreplace
from math import ceil

from swingpool_control.engine.model import PerformanceModel


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
        self._steps = _Steps(model)
        self._workers = workers
        self._requests = requests
        self._most = workers * model.max_sequences
        self._room = workers * model.kv_capacity_tokens
        self._now_s = 0.0
        self._clock = 0.0
        """Steps that a sequence that was there from the start has had."""
        self._running = 0
        self._offset = 0.0
        """Context of all that run, less one token per sequence and step of the clock."""
        self._ends: list[tuple[float, float]] = []
        """Of all that run: when by the clock, and its part of the offset."""
        self._step_s = self._steps.seconds(1, 0.0)
        """Between two tokens now, the mean over sequences."""
        self._parts: tuple[tuple[float, int], ...] = ()
        """Duration and number of sequences: of the workers that have one more, and of the others."""
        self._moves: list[tuple[float, int]] = []
        """Sequences that begin: time and request."""
        self._links = [0.0] * workers
        self._outlets: dict[int, float] = {}
        """When the links of decode workers, and of prefill workers, have passed all that they were given."""
        self._full: deque[int] = deque()
        self._result = Generated(first_s=[0.0] * len(requests))
        self._counts = False

    def run(self, since: int) -> Generated:
        """Let all requests end."""
        number, requests = 0, self._requests
        while number < len(requests) or self._moves or self._ends:
            arrival_s = requests[number].at_s if number < len(requests) else float("inf")
            move_s = self._moves[0][0] if self._moves else float("inf")
            end_s = self._now_s + (self._ends[0][0] - self._clock) * self._step_s if self._ends else float("inf")
            if end_s <= arrival_s and end_s <= move_s:
                self._pass(end_s)
                self._end()
            elif arrival_s <= move_s:
                self._pass(arrival_s)
                self._counts = number >= since
                self._load(number)
                number += 1
            else:
                self._pass(move_s)
                self._move()
        return self._result

    def _pass(self, until_s: float) -> None:
        """Let time pass in which nothing happens but steps."""
        lasts_s = until_s - self._now_s
        self._now_s = until_s
        if self._running and lasts_s > 0:
            self._clock += lasts_s / self._step_s
            if self._counts:
                for step_s, sequences in self._parts:
                    self._result.step_s.append(step_s)
                    self._result.tokens.append(sequences * lasts_s / step_s)

    def _busy(self, share: float) -> float:
        """Return how long a step's share is; nothing if an idle worker takes the request."""
        return share * self._step_s if self._running >= self._workers else 0.0

    def _load(self, number: int) -> None:
        """Begin a transfer to the link that is free first, and so begin when the step ends in which it is over."""
        request, step_s = self._requests[number], self._busy(1.0)
        asked_s = self._now_s + step_s * request.before
        received_s = max(asked_s, self._links[0]) + request.transfer_s
        sent_s = max(asked_s, self._outlets.get(request.sender, 0.0)) + request.transfer_s
        heapreplace(self._links, received_s)
        self._outlets[request.sender] = sent_s
        there_s = max(received_s, sent_s)
        if step_s > 0:
            there_s = asked_s + step_s * max(1, ceil((there_s - asked_s) / step_s))
        heappush(self._moves, (there_s, number))

    def _move(self) -> None:
        _, number = heappop(self._moves)
        if self._fits(number) and not self._full:
            self._join(number)
        else:
            self._full.append(number)

    def _fits(self, number: int) -> bool:
        held = self._offset + self._running * self._clock
        return self._running < self._most and held + self._requests[number].prompt_tokens <= self._room

    def _join(self, number: int) -> None:
        request = self._requests[number]
        offset = request.prompt_tokens - self._clock
        self._running += 1
        self._offset += offset
        heappush(self._ends, (self._clock + request.output_tokens, offset))
        self._weigh()
        self._result.first_s[number] = self._now_s + self._step_s

    def _end(self) -> None:
        _, offset = heappop(self._ends)
        self._running -= 1
        self._offset -= offset
        while self._full and self._fits(self._full[0]):
            self._join(self._full.popleft())
        self._weigh()

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
