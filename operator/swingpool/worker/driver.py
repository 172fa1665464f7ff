"""Drives the batching engine in real time: one timer per iteration, however many sequences it holds.

Iterations follow one another on a schedule of their own: the next one starts when the last one should have ended, not
when the timer happened to fire, so that a busy machine's jitter does not add up. A long stall is not made up for.
"""

import asyncio
import logging
from collections.abc import Callable

from swingpool.worker.faults import Faults
from swingpool.worker.jobs import Job, Sink
from swingpool.worker.metrics import Metrics
from swingpool.worker.transfer import Remote, SideChannel, TransferError
from swingpool_control.engine.batching import BatchingEngine
from swingpool_control.engine.work import Finish, Iteration, Lease, Request, Token, Transfer

LONGEST_LAG_S = 0.1
"""A lag above this is a stall, and forgotten."""

log = logging.getLogger(__name__)


class Driver:
    """Feeds requests to the engine, lets time pass, and hands out tokens.

    Args:
        engine: the engine; nobody else may drive it.
        metrics: where iterations, tokens and ends are counted.
        faults: what goes wrong.
        recompute_on_failure: whether a prompt is computed here if its KV cache cannot be pulled.
    """

    def __init__(self, engine: BatchingEngine, metrics: Metrics, faults: Faults, *, recompute_on_failure: bool) -> None:
        self._engine = engine
        self._metrics = metrics
        self._faults = faults
        self._recompute = recompute_on_failure
        self._loop = asyncio.get_running_loop()
        self._jobs: dict[str, Job] = {}
        self._iteration: Iteration | None = None
        self._due_s = 0.0
        self._timer: asyncio.Handle | None = None
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self.side_channel: SideChannel | None = None
        self.tell: Callable[[], None] = _nothing
        """Called after each iteration, to tell what the KV cache holds since."""
        self.asleep = False
        """Whether it computes nothing, whatever it is asked for."""

    @property
    def now_s(self) -> float:
        """The driver's clock."""
        return self._loop.time()

    @property
    def idle(self) -> bool:
        """Whether it works on nothing and keeps nothing for other workers."""
        return self._engine.idle and not self._engine.leases and not self._tasks

    @property
    def jobs(self) -> int:
        """Requests that have not ended."""
        return len(self._jobs)

    # Requests

    def submit(self, request: Request, sink: Sink, *, finish: str, remote: Remote | None) -> Job:
        """Take a request.

        Raises:
            ValueError: it could never fit.
        """
        self._engine.add(request)
        job = Job(request=request, sink=sink, finish=finish, remote=remote, arrived_s=self.now_s)
        self._jobs[request.id] = job
        if remote is not None:
            self._keep_alive(job)
        self._kick()
        return job

    def abort(self, job: Job, reason: Finish = Finish.ABORT) -> None:
        """End a request whose answer nobody waits for; nothing happens if it has ended."""
        request = job.request
        if self._jobs.pop(request.id, None) is None:
            return
        self._engine.abort(request.id)
        self._cancel(request.id)
        self._metrics.finished(job, reason, self.now_s)
        if job.remote is not None:
            self.give_up(job.remote)
        self._kick()

    def fail_all(self) -> None:
        """End every request with an error."""
        for job in list(self._jobs.values()):
            self.abort(job)
            job.sink.failed()

    def forget_cache(self) -> bool:
        """Let no prompt be found in the cache any more; False, and nothing is done, while blocks are held."""
        if self._engine.pool.used:
            return False
        self._engine.pool.forget_all()
        return True

    def sleep(self, *, forget: bool) -> None:
        """Compute nothing from now on; what is under way ends unfinished.

        Args:
            forget: whether the KV cache goes with its memory.
        """
        self.asleep = True
        self.fail_all()
        if forget:
            self._engine.pool.forget_all()

    def wake(self) -> None:
        """Compute again: first what came meanwhile."""
        self.asleep = False
        self._kick()

    # What other workers pull

    def lease(self, request_id: str) -> Lease | None:
        """Return the lease on a request's blocks, or None if there is none (any more)."""
        self._engine.expire(now_s=self.now_s)
        return self._engine.lease(request_id)

    def renew(self, request_id: str) -> bool:
        """Extend a lease; False if there is none any more."""
        return self._engine.renew(request_id, now_s=self.now_s)

    def release(self, request_id: str) -> bool:
        """End a lease; False if there is none any more."""
        self._engine.expire(now_s=self.now_s)
        released = self._engine.release(request_id)
        self._kick()
        return released

    def give_up(self, remote: Remote) -> None:
        """Tell another worker that nobody will pull what it keeps."""
        if self.side_channel is not None:
            self._spawn(f"give-up {remote.request_id}", self.side_channel.give_up(remote))

    # Time

    def _kick(self) -> None:
        """Look for work soon, unless an iteration is under way: then that is looked for when it ends."""
        if self._iteration is None:
            if self._timer is not None:
                self._timer.cancel()
            self._timer = self._loop.call_soon(self._tick)

    def _tick(self) -> None:
        now_s = self.now_s
        start_s = now_s
        if self._iteration is not None:
            if now_s - self._due_s < LONGEST_LAG_S:
                start_s = self._due_s
            ended, self._iteration = self._iteration, None
            self._deliver(ended, self._engine.complete(now_s=start_s), now_s)
            self.tell()
        if self.asleep:
            self._timer = None
            return
        following = self._engine.schedule(now_s=start_s)
        for transfer in self._engine.take_transfers():
            self._start_transfer(transfer)
        self._arm(following, start_s)

    def _arm(self, iteration: Iteration | None, start_s: float) -> None:
        self._iteration = iteration
        if iteration is not None:
            for request_id in iteration.admitted:
                job = self._jobs[request_id]
                if job.scheduled_s is None:
                    job.scheduled_s = start_s
            self._due_s = start_s + iteration.duration_s * self._faults.slowness(now_s=start_s)
            self._timer = self._loop.call_at(self._due_s, self._tick)
            return
        expiry_s = self._engine.next_expiry_s
        self._timer = None if expiry_s is None else self._loop.call_at(expiry_s, self._tick)

    def _deliver(self, iteration: Iteration, tokens: list[Token], now_s: float) -> None:
        self._metrics.iteration(iteration.prefill_tokens + iteration.decode_sequences, len(tokens))
        for token in tokens:
            job = self._jobs[token.request]
            if job.first_token_s is None:
                job.first_token_s = now_s
                self._metrics.first_token(now_s - job.arrived_s)
            else:
                self._metrics.between_tokens(now_s - job.last_token_s)
            job.last_token_s = now_s
            job.tokens += 1
            if token.last:
                del self._jobs[token.request]
                self._metrics.finished(job, job.finish, now_s)
            job.sink.token(token.number, last=token.last)

    # Transfers

    def _start_transfer(self, transfer: Transfer) -> None:
        self._cancel(transfer.request)
        self._spawn(transfer.request, self._pull(self._jobs[transfer.request], transfer))

    async def _pull(self, job: Job, transfer: Transfer) -> None:
        request_id = transfer.request
        started_s = self.now_s
        try:
            if job.remote is None or self.side_channel is None:
                raise TransferError("it says not where from, or this worker takes part in no transfers")
            if self._faults.fails_transfer(now_s=started_s):
                raise TransferError("a fault was asked for")
            await self.side_channel.pull(job.remote, transfer.duration_s * self._faults.slowness(now_s=started_s))
        except TransferError as error:
            self._metrics.transfer_failed()
            log.warning("request %s: KV cache cannot be pulled: %s", request_id, error)
            job.remote = None
            if self._engine.load_failed(request_id, recompute=self._recompute):
                del self._jobs[request_id]
                self._metrics.finished(job, Finish.ERROR, self.now_s)
                job.sink.failed()
        else:
            job.remote = None
            self._metrics.transfer(self.now_s - started_s)
            self._engine.loaded(request_id)
        self._kick()

    def _keep_alive(self, job: Job) -> None:
        """Renew the lease on a request's KV cache until it is pulled: it may wait here for longer than that lasts."""
        self._spawn(job.request.id, self._renew(job))

    async def _renew(self, job: Job) -> None:
        while job.remote is not None and self.side_channel is not None:
            await asyncio.sleep(self._engine.limits.lease_s / 3)
            try:
                await self.side_channel.renew(job.remote)
            except TransferError as error:
                log.warning("request %s: lease not renewed: %s", job.request.id, error)
                return

    def _spawn(self, name: str, work: "asyncio._CoroutineLike[None]") -> None:
        task = self._loop.create_task(work)
        self._tasks[name] = task
        task.add_done_callback(lambda done: self._forget(name, done))

    def _forget(self, name: str, task: "asyncio.Task[None]") -> None:
        if self._tasks.get(name) is task:
            del self._tasks[name]

    def _cancel(self, name: str) -> None:
        task = self._tasks.pop(name, None)
        if task is not None:
            task.cancel()


def _nothing() -> None:
    pass
