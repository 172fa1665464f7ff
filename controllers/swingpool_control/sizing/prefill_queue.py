"""The queue before prefill: when each of many prompts is computed, by the rules by which the router hands them out.

Prompts wait in the router, the soonest done first, less what they have waited; those that are old go first of all. A
worker that becomes free gets as many as one of its iterations takes, but no more than its share of what waits and of
what will come while that lasts, as the router expects it by what came of late. So the times of a prompt follow from its
size, from what came with it, and from which worker happened to be free.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from heapq import heapify, heappop, heappush
from math import exp

from swingpool_control.engine.model import PerformanceModel, prefill_s
from swingpool_control.placement.settings import PlacementSettings

_SPREAD_SHARE = 0.25
"""Share of an iteration as which a longer prompt counts when what waits is spread over workers, as the router does."""

_RATE_OVER_S = 2.0
"""Time over which the router averages what arrives."""

_SETTINGS = PlacementSettings()


@dataclass(frozen=True, slots=True, kw_only=True)
class Order:
    """In which order prompts go."""

    aging: float = _SETTINGS.aging
    """Seconds of prompt time that a second of waiting outweighs."""
    age_s: float = _SETTINGS.classes[0].age_s
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
    beside_s: float
    """Of those, what it takes beside an iteration's base."""
    base_share_s: float
    """Its part of a full iteration's base."""
    spread_s: float
    """As much of it as can be spread over workers."""


def prompt(model: PerformanceModel, *, tokens: float, cached_share: float) -> Prompt:
    """Return what a prompt asks of a worker that has a share of it in its prefix cache."""
    whole = max(1, round(tokens))
    cached = min(whole - 1, round(whole * cached_share))
    left = whole - cached
    pace = _Pace(model)
    work_s = prefill_s(model, prompt_tokens=whole, cached_tokens=cached)
    beside_s = max(0.0, work_s - pace.base_s)
    return Prompt(
        tokens=left,
        context_tokens2=left * cached + left * left // 2,
        work_s=work_s,
        beside_s=beside_s,
        base_share_s=pace.base_s * left / pace.budget,
        spread_s=min(beside_s, pace.token_s * pace.budget * _SPREAD_SHARE),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Computed:
    """What became of all prompts."""

    at_s: list[float]
    """When each is computed."""
    worker: list[int]
    """Which of the servers computed it."""


def computed(
    servers: Sequence[PerformanceModel],
    arrivals_s: Sequence[float],
    bins: Sequence[int],
    prompts: Sequence[Prompt],
    order: Order,
) -> Computed:
    """Return when each prompt is computed, and where.

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
        self._spread_s = 0.0
        """Of what waits."""
        self._come_s = 0.0
        self._came_at_s = 0.0
        """Seconds of prompts that came in of late, weighed by how late, and when the last of them did."""
        self._result = Computed(at_s=[0.0] * len(arrivals_s), worker=[0] * len(arrivals_s))

    def run(self) -> Computed:
        """Let workers take prompts until none is left."""
        left = len(self._arrivals_s)
        free, at_s, worker = self._free, self._result.at_s, self._result.worker
        while left:
            free_s, number = heappop(free)
            if not self._waiting and self._next < len(self._arrivals_s):
                free_s = max(free_s, self._arrivals_s[self._next])
            self._arrive(free_s)
            batch, end_s = self._batch(free_s, self._paces[number])
            for one in batch:
                at_s[one], worker[one] = end_s, number
            left -= len(batch)
            heappush(free, (end_s, number))
        return self._result

    def _arrive(self, now_s: float) -> None:
        arrivals_s, bins, prompts, aging = self._arrivals_s, self._bins, self._prompts, self._order.aging
        following, waiting = self._next, self._waiting
        come_s, came_at_s = self._come_s, self._came_at_s
        while following < len(arrivals_s) and arrivals_s[following] <= now_s:
            size = prompts[bins[following]]
            heappush(waiting, (size.work_s + aging * arrivals_s[following], following))
            self._spread_s += size.spread_s
            come_s = come_s * exp((came_at_s - arrivals_s[following]) / _RATE_OVER_S) + size.beside_s
            came_at_s = arrivals_s[following]
            following += 1
        self._next, self._come_s, self._came_at_s = following, come_s, came_at_s

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
        share_s = -1.0
        while (head := self._head(now_s)) >= 0:
            size = self._prompts[self._bins[head]]
            if batch:
                if tokens + size.tokens > pace.budget:
                    break
                if share_s < 0:
                    share_s = self._share_s(now_s, pace)
                if end_s - now_s - pace.base_s + size.spread_s / 2 > share_s:
                    break
            self._taken[head] = 1
            self._spread_s -= size.spread_s
            batch.append(head)
            tokens += size.tokens
            context += size.context_tokens2
            end_s = now_s + pace.seconds(tokens, context)
        return batch, end_s

    def _share_s(self, now_s: float, pace: "_Pace") -> float:
        """Return how much of what waits a worker gets at least: seconds of prompts beside an iteration's base."""
        workers = len(self._paces)
        each = self._come_s * exp((self._came_at_s - now_s) / _RATE_OVER_S) / _RATE_OVER_S / workers
        most_s = pace.base_s + pace.token_s * pace.budget
        lasts_s = min(most_s, pace.base_s / (1.0 - each)) if each < 1.0 else most_s
        free = 1 + sum(free_s <= now_s + lasts_s for free_s, _ in self._free)
        return (self._spread_s + lasts_s * each * workers) / free


class _Pace:
    """A worker's iterations."""

    def __init__(self, model: PerformanceModel) -> None:
        self._model = model
        self.budget = model.max_batched_tokens
        self.base_s = self.seconds(1, 0)
        self.token_s = max(1e-12, (self.seconds(self.budget, 0) - self.base_s) / max(1, self.budget - 1))

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
