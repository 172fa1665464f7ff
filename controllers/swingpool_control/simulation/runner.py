"""Drives one batching engine under the virtual clock, in the same steps as the simulated worker does in real time.

Iterations that cannot differ are computed at once: their ends are known beforehand, so whatever comes in between them
finds the engine as if it had iterated one by one.
"""

from bisect import bisect_left
from collections.abc import Callable
from dataclasses import dataclass

from swingpool_control.engine.batching import BatchingEngine
from swingpool_control.engine.work import Iteration, Request, Transfer
from swingpool_control.simulation.events import Timeline

MOST_AT_ONCE = 4096
"""Iterations foreseen at once; where much comes in, few are, since looking far ahead would be in vain."""


class Job:
    """A request in an engine, and who is told of it."""

    __slots__ = ("id", "last_s", "on_end", "on_first", "source")

    def __init__(
        self,
        id: str,
        *,
        on_first: Callable[[float], None] | None,
        on_end: Callable[[bool, float], None],
        source: "Source | None" = None,
    ) -> None:
        self.id = id
        self.on_first = on_first
        """Told when the first token is there; seconds."""
        self.on_end = on_end
        """Told once, when it ended: whether all tokens are there, and when."""
        self.source = source
        self.last_s = -1.0
        """When its last token came; below zero before the first."""


@dataclass(frozen=True, slots=True)
class Source:
    """Where a request's KV cache waits."""

    runner: "Runner"
    lease: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Hooks:
    """Who is told what happens on workers."""

    gaps: Callable[[float, int], None]
    """Time between two tokens of a request, and of how many requests."""
    transfer: Callable[[], bool]
    """A transfer begins; the answer is whether it fails."""


class Runner:
    """One engine and its place on the timeline.

    Args:
        timeline: the clock.
        make: makes the engine, anew after each crash.
        hooks: who is told.
        recompute: whether a prompt is computed here if its KV cache cannot be had.
        coalesce: whether iterations that cannot differ are computed at once.
    """

    def __init__(
        self,
        timeline: Timeline,
        make: Callable[[], BatchingEngine],
        hooks: Hooks,
        *,
        recompute: bool,
        coalesce: bool,
    ) -> None:
        self._timeline = timeline
        self._make = make
        self._hooks = hooks
        self._recompute = recompute
        self._coalesce = coalesce
        self.engine = make()
        self._jobs: dict[str, Job] = {}
        self._turn = 0
        """Of the timeline's event that counts; any other one is out of date."""
        self._iteration: Iteration | None = None
        self._ends: list[float] = []
        """When the iteration under way ends, and those after it that are alike."""
        self._begun = False
        """Whether the first of the alike iterations is behind, so that the rest only repeat it."""
        self._sight = 1
        """How many iterations are foreseen."""
        self._preempted_before = 0

    @property
    def jobs(self) -> int:
        """Requests that it holds."""
        return len(self._jobs)

    @property
    def preemptions(self) -> int:
        """Preemptions so far, over all crashes."""
        return self._preempted_before + self.engine.counters.preemptions

    @property
    def empty(self) -> bool:
        """Whether it holds no request and keeps nothing for others."""
        return self.engine.idle and not self.engine.leases

    def submit(self, request: Request, job: Job) -> None:
        """Take a request.

        Raises:
            ValueError: it could never fit.
        """
        self._interrupt()
        self.engine.add(request)
        self._jobs[job.id] = job
        if job.source is not None:
            self._renew_later(job)
        self._kick()

    def look(self) -> None:
        """Bring the engine's figures up to now."""
        self._catch_up(self._timeline.now_s)

    def release(self, lease: str) -> bool:
        """Free what was kept for another worker; False if it is gone."""
        self._interrupt()
        released = self.engine.release(lease)
        self._kick()
        return released

    def crash(self) -> None:
        """Lose everything: each request ends without its tokens."""
        self.look()
        self._turn += 1
        self._iteration, self._ends = None, []
        self._preempted_before += self.engine.counters.preemptions
        self.engine = self._make()
        lost, self._jobs = self._jobs, {}
        for job in lost.values():
            job.on_end(False, self._timeline.now_s)

    # Iterations

    def _kick(self) -> None:
        if self._iteration is None:
            self._wake(self._timeline.now_s)

    def _wake(self, at_s: float) -> None:
        self._turn += 1
        turn = self._turn
        self._timeline.at(at_s, lambda: self._tick(turn))

    def _interrupt(self) -> None:
        """Something comes in: the iteration under way is the last that could be foreseen."""
        if len(self._ends) < 2:
            return
        self._catch_up(self._timeline.now_s)
        if len(self._ends) > 1:
            self._sight = max(1, self._sight // 4)
            del self._ends[1:]
            self._wake(self._ends[0])

    def _tick(self, turn: int) -> None:
        if turn != self._turn:
            return
        now_s = self._timeline.now_s
        if self._iteration is not None:
            self._settle(len(self._ends))
            self._iteration = None
        following = self.engine.schedule(now_s=now_s)
        for transfer in self.engine.take_transfers():
            self._start(transfer)
        if following is not None:
            self._foresee(following, now_s)
        elif (expiry_s := self.engine.next_expiry_s) is not None:
            self._wake(expiry_s)

    def _foresee(self, iteration: Iteration, now_s: float) -> None:
        self._iteration, self._begun = iteration, False
        end_s = now_s + iteration.duration_s
        self._ends = [end_s]
        if self._coalesce:
            for duration_s in self.engine.foresee(iteration, most=self._sight):
                end_s += duration_s
                self._ends.append(end_s)
            if len(self._ends) > self._sight:
                self._sight = min(MOST_AT_ONCE, 2 * self._sight)
        self._wake(end_s)

    def _catch_up(self, now_s: float) -> None:
        """Account for the foreseen iterations that have ended, but for the last: that one has its own event."""
        self._settle(bisect_left(self._ends, now_s, 0, max(0, len(self._ends) - 1)))

    def _settle(self, count: int) -> None:
        if not count or self._iteration is None:
            return
        ends, self._ends = self._ends[:count], self._ends[count:]
        repeats = count
        last_s = ends[0]
        if not self._begun:
            self._begun = True
            repeats -= 1
            self._complete(self._iteration, ends[0])
        elif repeats:
            last_s = self._jobs[self._iteration.chunks[0][0]].last_s
        if not repeats and not self._ends:
            return
        self.engine.repeat(repeats, under_way=bool(self._ends))
        alike = len(self._iteration.chunks)
        for end_s in ends[count - repeats :]:
            self._hooks.gaps(end_s - last_s, alike)
            last_s = end_s
        for request_id, _ in self._iteration.chunks:
            self._jobs[request_id].last_s = last_s

    def _complete(self, iteration: Iteration, end_s: float) -> None:
        tokens = self.engine.complete(iteration, now_s=end_s)
        last_seen: dict[float, int] = {}
        ended: list[Job] = []
        for request_id, _, last in tokens:
            job = self._jobs[request_id]
            if job.last_s < 0:
                if job.on_first is not None:
                    job.on_first(end_s)
            else:
                last_seen[job.last_s] = last_seen.get(job.last_s, 0) + 1
            job.last_s = end_s
            if last:
                del self._jobs[request_id]
                ended.append(job)
        for last_s, count in last_seen.items():
            self._hooks.gaps(end_s - last_s, count)
        for job in ended:
            job.on_end(True, end_s)

    # KV cache from elsewhere

    def _start(self, transfer: Transfer) -> None:
        engine, job = self.engine, self._jobs[transfer.request]
        source = job.source
        there = source is not None and source.runner.engine.lease(source.lease) is not None
        if self._hooks.transfer() or not there:
            self._timeline.after(0.0, lambda: self._pulled(engine, job, arrived=False))
        else:
            self._timeline.after(transfer.duration_s, lambda: self._pulled(engine, job, arrived=True))

    def _pulled(self, engine: BatchingEngine, job: Job, *, arrived: bool) -> None:
        if engine is not self.engine or job.id not in self._jobs:
            return
        self._interrupt()
        source, job.source = job.source, None
        if arrived and source is not None and source.runner.release(source.lease):
            engine.loaded(job.id)
        elif engine.load_failed(job.id, recompute=self._recompute):
            del self._jobs[job.id]
            job.on_end(False, self._timeline.now_s)
        self._kick()

    def _renew_later(self, job: Job) -> None:
        def renew() -> None:
            source = job.source
            if source is not None and source.runner.engine.renew(source.lease, now_s=self._timeline.now_s):
                self._renew_later(job)

        self._timeline.after(self.engine.limits.lease_s / 3, renew)
