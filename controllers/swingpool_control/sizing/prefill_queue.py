"""The queue before prefill: when each of many prompts is computed, by the rules by which the router hands them out.

Prompts wait in the router, the soonest done first, less what they have waited; those that are old go first of all. A
worker that becomes free gets as many as one of its iterations takes, but no more than its share of what waits. So the
times of a prompt follow from its size, from what came with it, and from which worker happened to be free.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from heapq import heapify, heappop, heappush

from swingpool_control.engine.model import PerformanceModel, prefill_s

_SPREAD_OVER = 64
"""Workers over which what waits is spread in thought, as the router does it."""
_DIVISIBLE_TOKENS = 2048
"""A longer prompt counts as this when it is spread, since one worker computes all of it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Order:
    """In which order prompts go."""

    aging: float = 0.1
    """Seconds of prompt time that a second of waiting outweighs."""
    age_s: float = 10.0
    """Whoever has waited so long goes before all that have not, in the order of arrival."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Prompt:
    """Prompts of one size."""

    tokens: int
    """To compute."""
    context_tokens2: int
    """Attention work: tokens times what lies before them and half of themselves."""
    work_s: float
    """Seconds that it takes alone."""


def prompt(model: PerformanceModel, *, tokens: float, cached_share: float) -> Prompt:
    """Return what a prompt asks of a worker that has a share of it in its prefix cache."""
    whole = max(1, round(tokens))
    cached = min(whole - 1, round(whole * cached_share))
    left = whole - cached
    return Prompt(
        tokens=left,
        context_tokens2=left * cached + left * left // 2,
        work_s=prefill_s(model, prompt_tokens=whole, cached_tokens=cached),
    )


def computed_s(
    servers: Sequence[PerformanceModel],
    arrivals_s: Sequence[float],
    bins: Sequence[int],
    prompts: Sequence[Prompt],
    order: Order,
) -> list[float]:
    """Return when each prompt is computed.

    Args:
        servers: the model of each worker, one or more.
        arrivals_s: when each prompt arrives, ascending.
        bins: which of `prompts` each is.
        prompts: the sizes.
        order: in which order they go.
    """
    return _Queue(servers, arrivals_s, bins, prompts, order).run()


class _Queue:
    """One run over all prompts."""

    def __init__(
        self,
        servers: Sequence[PerformanceModel],
        arrivals_s: Sequence[float],
        bins: Sequence[int],
        prompts: Sequence[Prompt],
        order: Order,
    ) -> None:
        self._paces = [_Pace(model) for model in servers]
        self._free = [(0.0, number) for number in range(len(servers))]
        heapify(self._free)
        self._arrivals_s = arrivals_s
        self._bins = bins
        self._prompts = prompts
        self._order = order
        self._waiting: list[tuple[float, int]] = []
        self._next = 0
        """The first that has not arrived."""
        self._oldest = 0
        """None before it waits."""
        self._taken = bytearray(len(arrivals_s))
        self._tokens = 0
        """Of what waits, long prompts counted less."""
        self._done_s = [0.0] * len(arrivals_s)

    def run(self) -> list[float]:
        """Let workers take prompts until none is left."""
        left = len(self._arrivals_s)
        free = self._free
        while left:
            free_s, number = heappop(free)
            if not self._waiting and self._next < len(self._arrivals_s):
                free_s = max(free_s, self._arrivals_s[self._next])
            self._arrive(free_s)
            batch, end_s = self._batch(free_s, self._paces[number])
            for one in batch:
                self._done_s[one] = end_s
            left -= len(batch)
            heappush(free, (end_s, number))
        return self._done_s

    def _arrive(self, now_s: float) -> None:
        arrivals_s, bins, prompts, aging = self._arrivals_s, self._bins, self._prompts, self._order.aging
        following, waiting, tokens = self._next, self._waiting, self._tokens
        while following < len(arrivals_s) and arrivals_s[following] <= now_s:
            size = prompts[bins[following]]
            heappush(waiting, (size.work_s + aging * arrivals_s[following], following))
            tokens += size.tokens if size.tokens < _DIVISIBLE_TOKENS else _DIVISIBLE_TOKENS
            following += 1
        self._next, self._tokens = following, tokens

    def _head(self, now_s: float) -> int:
        """Return the prompt that goes next, below zero if none waits."""
        taken = self._taken
        while self._oldest < self._next and taken[self._oldest]:
            self._oldest += 1
        if self._oldest < self._next and now_s - self._arrivals_s[self._oldest] >= self._order.age_s:
            return self._oldest
        waiting = self._waiting
        while waiting and taken[waiting[0][1]]:
            heappop(waiting)
        return waiting[0][1] if waiting else -1

    def _batch(self, now_s: float, pace: "_Pace") -> tuple[list[int], float]:
        """Take the prompts of a worker's next iteration; return them, and when it ends."""
        batch: list[int] = []
        tokens = context = 0
        end_s = now_s
        level_s = -1.0
        while (head := self._head(now_s)) >= 0:
            size = self._prompts[self._bins[head]]
            if batch:
                if tokens + size.tokens > pace.budget:
                    break
                if level_s < 0:
                    level_s = self._level_s(now_s, pace, tokens)
                if end_s + pace.token_s * size.tokens / 2 > level_s:
                    break
            self._taken[head] = 1
            batch.append(head)
            tokens += size.tokens
            context += size.context_tokens2
            self._tokens -= min(size.tokens, _DIVISIBLE_TOKENS)
            end_s = now_s + pace.seconds(tokens, context)
        return batch, end_s

    def _level_s(self, now_s: float, pace: "_Pace", taken_tokens: int) -> float:
        """Return when all workers would be free if what waited before this batch were spread evenly."""
        total_s = now_s + (self._tokens + min(taken_tokens, _DIVISIBLE_TOKENS)) * pace.token_s
        count = 1
        for free_s, _ in sorted(self._free)[: _SPREAD_OVER - 1]:
            start_s = max(now_s, free_s)
            if total_s <= count * start_s:
                break
            total_s += start_s
            count += 1
        return total_s / count


class _Pace:
    """A worker's iterations."""

    def __init__(self, model: PerformanceModel) -> None:
        self._model = model
        self.budget = model.max_batched_tokens
        base_s = self.seconds(1, 0)
        self.token_s = max(1e-12, (self.seconds(self.budget, 0) - base_s) / max(1, self.budget - 1))

    def seconds(self, tokens: int, context_tokens2: int) -> float:
        """Return the seconds of the iterations that compute so many tokens."""
        if tokens <= self.budget:
            return self._step_s(tokens, context_tokens2)
        full, rest = divmod(tokens, self.budget)
        each = context_tokens2 * self.budget // tokens
        return full * self._step_s(self.budget, each) + (
            self._step_s(rest, context_tokens2 - full * each) if rest else 0.0
        )

    def _step_s(self, tokens: int, context_tokens2: int) -> float:
        return self._model.step_s(
            prefill_tokens=tokens,
            prefill_context_tokens=context_tokens2,
            decode_sequences=0,
            decode_context_tokens=0,
        )
