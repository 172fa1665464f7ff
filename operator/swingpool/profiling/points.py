"""How one sample of each kind of point is taken.

A prompt alone is timed to its first token, as a client sees it. Decoding sequences first put their prompts into the
prefix cache, so that all of them are under way at once; then only the time in which all generate counts. A prompt
beside them shows as a gap between their tokens.
"""

import asyncio
import itertools
import statistics
from collections.abc import Sequence
from functools import partial
from random import Random

from swingpool.profiling.plan import DECODE_ROOM, Kind, Point
from swingpool.profiling.wire import Timed, WorkerClient, WorkerError

TOKEN_IDS = (5, 260)
"""Ids that any vocabulary has; drawn anew for each prompt, so that none is cached."""

ANSWERED = 2
"""Tokens of an answer whose first one is timed: engines that look a step ahead tell the first token of an answer that
goes on later than the only token of one that ends with it."""

PAUSE_S = 0.25
"""Most idleness before a sample: requests come after idle moments, in which clocks fall and caches are lost."""

LEAST_STEPS = 8
"""Decode steps that a sample must span."""

SETTLED_TOKENS = 4
"""Tokens after which a sequence is one that decodes, and no more one that begins."""


class Sampler:
    """Takes samples.

    Args:
        worker: what is measured.
        other: a second worker that fetches KV cache from it; None if there is none.
        random: draws the prompts and the pauses.
        pause_s: most seconds of idleness before each sample.
    """

    def __init__(
        self, worker: WorkerClient, other: WorkerClient | None, random: Random, *, pause_s: float = PAUSE_S
    ) -> None:
        self._worker = worker
        self._pause_s = pause_s
        self._other = other
        self._random = random
        self._prompts: tuple[Point | None, list[list[int]]] = (None, [])
        """Those of the point that is being measured: once they are in the prefix cache, they stay there."""
        self.gaps_s: dict[Point, list[float]] = {}
        """Times between tokens of decode steps, by point."""

    async def sample(self, point: Point) -> float:
        """Return one sample, in seconds.

        Raises:
            WorkerError: the worker fails, or the sample shows nothing.
        """
        await asyncio.sleep(self._random.uniform(0.0, self._pause_s))
        match point.kind:
            case Kind.PREFILL:
                return (await self._worker.stream(self._prompt(point.prompt_tokens), tokens=ANSWERED)).ttft_s
            case Kind.DECODE:
                streams, _ = await self._decoding(point, beside=None)
                steps = together(streams)
                self.gaps_s.setdefault(point, []).extend(gap for gaps in steps for gap in gaps)
                return step_s(steps)
            case Kind.MIXED:
                streams, prompt = await self._decoding(point, beside=self._prompt(point.prompt_tokens))
                return slowed_s(streams, prompt)
            case Kind.TRANSFER:
                return await self._transfer(point)

    async def _decoding(self, point: Point, *, beside: list[int] | None) -> tuple[list[Timed], Timed | None]:
        """Let sequences decode together; once they all do, compute a prompt beside them."""
        if self._prompts[0] != point:
            self._prompts = (point, [self._prompt(point.context_tokens) for _ in range(point.sequences)])
            for prompt in self._prompts[1]:
                await self._worker.stream(prompt, tokens=1)
        prompts = self._prompts[1]
        settled = asyncio.Event()
        counts = [0] * len(prompts)

        def told(index: int, count: int) -> None:
            counts[index] = count
            if min(counts) >= SETTLED_TOKENS:
                settled.set()

        async with asyncio.TaskGroup() as group:
            tasks = [
                group.create_task(self._worker.stream(prompt, tokens=DECODE_ROOM, on_tokens=partial(told, index)))
                for index, prompt in enumerate(prompts)
            ]
            computed = None
            if beside is not None:
                await settled.wait()
                computed = await self._worker.stream(beside, tokens=1)
        return [task.result() for task in tasks], computed

    async def _transfer(self, point: Point) -> float:
        """Return the time to the first token of a request whose prompt another worker has computed."""
        if self._other is None:
            raise WorkerError("there is no second worker to move KV cache to")
        prompt = self._prompt(point.prompt_tokens)
        params = await self._worker.prefill_leg(prompt)
        return (await self._other.stream(prompt, tokens=ANSWERED, kv_transfer_params=params)).ttft_s

    def _prompt(self, tokens: int) -> list[int]:
        return [self._random.randint(*TOKEN_IDS) for _ in range(tokens)]


def together(streams: Sequence[Timed]) -> list[list[float]]:
    """Return the times between tokens while all sequences generate, by sequence.

    Raises:
        WorkerError: that time spans too few steps.
    """
    begin_s = max(one.token_s[0] for one in streams)
    end_s = min(one.token_s[-1] for one in streams)
    found = []
    for one in streams:
        within = [at_s for at_s in one.token_s if begin_s <= at_s <= end_s]
        if len(within) > LEAST_STEPS:
            found.append([after - before for before, after in itertools.pairwise(within)])
    if not found:
        raise WorkerError(f"the sequences were under way together for fewer than {LEAST_STEPS} steps")
    return found


def step_s(steps: Sequence[Sequence[float]]) -> float:
    """Return the time of a decode step, by the times between tokens of several sequences: their medians' mean.

    The median, as everywhere here: what a busy machine adds to a few steps is not the engine's.
    """
    return statistics.fmean(statistics.median(gaps) for gaps in steps)


def slowed_s(streams: Sequence[Timed], prompt: Timed | None) -> float:
    """Return the longest time between two tokens of the sequences while a prompt was computed beside them.

    Raises:
        WorkerError: they had ended before.
    """
    gaps = []
    for one in streams:
        during = [
            after - before
            for before, after in itertools.pairwise(one.token_s)
            if prompt is not None and after >= prompt.sent_s and before <= prompt.token_s[0]
        ]
        if during:
            gaps.append(max(during))
    if not gaps:
        raise WorkerError("the sequences had ended before the prompt beside them was computed")
    return statistics.median(gaps)
