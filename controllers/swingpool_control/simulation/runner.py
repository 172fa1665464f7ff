"""Drives one batching engine under the virtual clock, in the same steps as the simulated worker does in real time.

Iterations that cannot differ are one event: their ends follow from the performance model, so whatever comes in between
them finds the engine as if it had iterated one by one.
"""

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

from swingpool_control.engine.batching import BatchingEngine
from swingpool_control.engine.work import Iteration, Progress, Request, Transfer
from swingpool_control.simulation.events import Event, Timeline
from swingpool_control.simulation.fabric import Fabric, Outlet
from swingpool_control.simulation.gaps import Gaps
from swingpool_control.simulation.spread import Turns


class Job(Event):
    """A request on its way to an engine and in it; whoever sends it overrides what it is told.

    As an event it arrives at the worker, and later is the end of its transfer.

    Args:
        request: what the engine is asked.
        to: the worker.
        source: where its KV cache waits; None if it is computed there.
    """

    __slots__ = ("arrives", "engine", "request", "runner", "source", "to")

    def __init__(self, request: Request, to: "Runner", *, source: "Source | None" = None) -> None:
        self.request = request
        self.to = to
        self.source = source
        self.engine: BatchingEngine | None = None
        """Which one pulls, once it does; another one than the worker's after a crash."""
        self.arrives = False
        """Whether the pull does not fail."""

    def happen(self, order: int) -> None:
        """It arrives, or its transfer ends."""
        if self.engine is None:
            self.reach()
        else:
            self.to.pulled(self)

    def reach(self) -> None:
        """It has arrived: it may be submitted."""
        self.to.submit(self)

    def first(self, at_s: float) -> None:
        """The first token is there."""

    def ended(self, served: bool, at_s: float) -> None:
        """It ended, once; whether all tokens are there."""
        raise NotImplementedError


class Source:
    """Where a request's KV cache waits."""

    __slots__ = ("lease", "runner")

    def __init__(self, runner: "Runner", lease: str) -> None:
        self.runner = runner
        self.lease = lease


@dataclass(frozen=True, slots=True, kw_only=True)
class Hooks:
    """Who is told what happens on workers."""

    gaps: Gaps
    """Counts the times between tokens."""
    transfer: Callable[[], bool]
    """A transfer begins; the answer is whether it fails."""
    fabric: Fabric
    """What transfers pass."""
    spread: Turns
    """How iterations with prompts spread around what the performance model says."""


class _Renewal(Event):
    """Renews the leases on what a runner's requests wait for, each so long after it was submitted or renewed."""

    def __init__(self, timeline: Timeline, period_s: float) -> None:
        self._timeline = timeline
        self._period_s = period_s
        self._due: deque[tuple[float, Job]] = deque()

    def add(self, job: Job) -> None:
        """Renew for a job, after a period."""
        due_s = self._timeline.now_s + self._period_s
        if not self._due:
            self._timeline.put(due_s, self)
        self._due.append((due_s, job))

    def happen(self, order: int) -> None:
        """Renew what is due; pass over what was pulled meanwhile."""
        now_s, due = self._timeline.now_s, self._due
        while due and (due[0][0] <= now_s or due[0][1].source is None):
            _, job = due.popleft()
            source = job.source
            if source is not None and source.runner.engine.renew(source.lease, now_s=now_s):
                due.append((now_s + self._period_s, job))
        if due:
            self._timeline.put(due[0][0], self)


class Runner(Event):
    """One engine and its place on the timeline. As an event it is the end of an iteration.

    Args:
        timeline: the clock.
        make: makes the engine, anew after each crash.
        hooks: who is told.
        recompute: whether a prompt is computed here if its KV cache cannot be had.
        coalesce: whether iterations that cannot differ are one event.
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
        self._gaps = hooks.gaps
        self._transfer_fails = hooks.transfer
        self._fabric = hooks.fabric
        self._spread = hooks.spread
        self.outlet = Outlet()
        """Its link, when others pull from it."""
        self._recompute = recompute
        self._coalesce = coalesce
        self.engine = make()
        self._renewal = _Renewal(timeline, self.engine.limits.lease_s / 3)
        self._jobs: dict[str, Job] = {}
        self._awaited = 0
        """The timeline's event that counts; any other one is out of date."""
        self._busy = False
        self._began_s = 0.0
        self._duration_s = 0.0
        """Of the iteration under way."""
        self._ahead = 0
        """How many iterations follow that repeat it."""
        self._preempted_before = 0
        self._pace = 1.0
        """What durations are multiplied by."""
        self._prefills = False
        """Whether the iteration under way computes any prompt."""
        self._prefilled_s = 0.0
        self._decoded_s = 0.0
        self._stands_until_s = 0.0
        """It does nothing before."""

    @property
    def jobs(self) -> int:
        """Requests that it holds."""
        return len(self._jobs)

    @property
    def preemptions(self) -> int:
        """Preemptions so far, over all crashes."""
        return self._preempted_before + self.engine.counters.preemptions

    def busy_s(self) -> tuple[float, float]:
        """Return for how long it has computed prompts and decoded, by iterations that are over.

        An iteration with any prompt in it counts as the former.
        """
        return self._prefilled_s, self._decoded_s

    @property
    def empty(self) -> bool:
        """Whether it holds no request and keeps nothing for others."""
        return self.engine.idle and not self.engine.leases

    def submit(self, job: Job) -> None:
        """Take a request.

        Raises:
            ValueError: it could never fit.
        """
        self._interrupt()
        self.engine.add(job.request)
        self._jobs[job.request.id] = job
        if job.source is not None:
            self._renewal.add(job)
        self._kick()

    def look(self) -> None:
        """Bring the engine's figures up to now."""
        if self._ahead:
            self._catch_up()

    def release(self, lease: str) -> bool:
        """Free what was kept for another worker; False if it is gone."""
        self._interrupt()
        released = self.engine.release(lease)
        self._kick()
        return released

    def slow(self, times: float) -> None:
        """Let each iteration and transfer that begins from now on take so many times as long as it should."""
        self._interrupt()
        self._pace = times

    def hang(self, lasts_s: float) -> None:
        """Do nothing for so long; what is under way ends the later."""
        self._interrupt()
        now_s = self._timeline.now_s
        until_s = max(self._stands_until_s, now_s + lasts_s)
        more_s = until_s - max(self._stands_until_s, now_s)
        self._stands_until_s = until_s
        if self._busy:
            self._duration_s += more_s
            self._awaited = self._timeline.put(self._began_s + self._duration_s, self)

    def crash(self) -> None:
        """Lose everything: each request ends without its tokens."""
        self.look()
        self._awaited = 0
        self._busy, self._ahead = False, 0
        self._pace, self._stands_until_s = 1.0, 0.0
        self._preempted_before += self.engine.counters.preemptions
        self.engine = self._make()
        lost, self._jobs = self._jobs, {}
        for job in lost.values():
            job.ended(False, self._timeline.now_s)

    # Iterations

    def happen(self, order: int) -> None:
        """The last of the iterations that were foreseen ends, or a lease does; the next iteration begins."""
        if order != self._awaited:
            return
        now_s = self._timeline.now_s
        if self._busy:
            if self._ahead:
                self._pass(self._ahead)
            self._settle(self.engine.advance(now_s=now_s), now_s)
        elif now_s < self._stands_until_s:
            self._awaited = self._timeline.put(self._stands_until_s, self)
            return
        engine = self.engine
        iteration = engine.schedule(now_s=now_s)
        self.begin_transfers()
        self._busy = iteration is not None
        if iteration is not None:
            self._begin(iteration, now_s)
        elif (expiry_s := engine.next_expiry_s) is not None:
            self._awaited = self._timeline.put(expiry_s, self)

    def _begin(self, iteration: Iteration, now_s: float) -> None:
        self._began_s, self._duration_s = now_s, iteration.duration_s * self._pace
        self._prefills = iteration.prefill_tokens > 0
        if self._prefills:  # nothing that has prompts is foreseen
            self._duration_s *= self._spread.next()
        end_s = now_s + self._duration_s
        if self._coalesce:
            self._ahead = self.engine.foresee()
            if self._ahead:
                end_s = now_s + self.engine.following_s(1 + self._ahead) * self._pace
        self._awaited = self._timeline.put(end_s, self)

    def _kick(self) -> None:
        if not self._busy:
            self._awaited = self._timeline.put(max(self._timeline.now_s, self._stands_until_s), self)

    def _interrupt(self) -> None:
        """Something comes in: the iteration under way is the last that could be foreseen."""
        if not self._ahead:
            return
        self._catch_up()
        if self._ahead:
            self._ahead = 0
            self._awaited = self._timeline.put(self._began_s + self._duration_s, self)

    def _catch_up(self) -> None:
        """Account for the foreseen iterations that have ended, but for the last: that one has its own event."""
        passed_s = self._timeline.now_s - self._began_s
        least, most = 0, self._ahead
        if passed_s <= self._duration_s:
            return
        while least < most:
            middle = (least + most + 1) // 2
            if self.engine.following_s(middle) * self._pace < passed_s:
                least = middle
            else:
                most = middle - 1
        if least:
            self._pass(least)

    def _pass(self, count: int) -> None:
        """Account for so many iterations, the one under way being the first; the next one is under way then."""
        engine = self.engine
        passed_s = engine.following_s(count) * self._pace
        self._began_s += passed_s
        self._decoded_s += passed_s
        self._gaps.add_run(
            engine.model,
            steps=count,
            sequences=engine.running,
            context_tokens=engine.decode_context_tokens,
            pace=self._pace,
        )
        engine.repeat(count)
        self._ahead -= count
        self._duration_s = engine.following_s(1) * self._pace

    def _settle(self, progress: Progress, end_s: float) -> None:
        """Tell what an iteration brought."""
        if self._prefills:
            self._prefilled_s += self._duration_s
        else:
            self._decoded_s += self._duration_s
        if progress.repeated:
            self._gaps.add(self._duration_s, progress.repeated)
        for last_s in progress.resumed_s:
            self._gaps.add(end_s - last_s, 1)
        jobs = self._jobs
        for request_id in progress.firsts:
            jobs[request_id].first(end_s)
        for request_id in progress.ended:
            job = jobs[request_id]
            del jobs[request_id]
            job.ended(True, end_s)

    # KV cache from elsewhere

    def begin_transfers(self) -> bool:
        """Begin the transfers that the engine has asked for since the last call; False if there are none."""
        asked = self.engine.take_transfers()
        for transfer in asked:
            self._start(transfer)
        return bool(asked)

    def _start(self, transfer: Transfer) -> None:
        job = self._jobs[transfer.request]
        source, now_s = job.source, self._timeline.now_s
        job.engine = self.engine
        job.arrives = not self._transfer_fails()
        lasts_s = 0.0
        if source is None or source.runner.engine.lease(source.lease) is None:
            job.arrives = False
        elif job.arrives:
            alone_s = self.engine.model.transfer_s(tokens=transfer.tokens)
            passed_s = self._fabric.passed_s(source.runner.outlet, alone_s, now_s=now_s)
            lasts_s = max(transfer.duration_s, passed_s) * self._pace
        self._timeline.put(now_s + lasts_s, job)

    def pulled(self, job: Job) -> None:
        """Go on with a job whose transfer ended."""
        request_id = job.request.id
        if job.engine is not self.engine or request_id not in self._jobs:
            return
        if self._timeline.now_s < self._stands_until_s:
            self._timeline.put(self._stands_until_s, job)
            return
        self._interrupt()
        source, job.source = job.source, None
        if job.arrives and source is not None and source.runner.release(source.lease):
            self.engine.loaded(request_id)
        elif self.engine.load_failed(request_id, recompute=self._recompute):
            del self._jobs[request_id]
            job.ended(False, self._timeline.now_s)
        self._kick()
