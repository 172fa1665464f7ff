"""A run of all points: bounded, in rounds until sure, stopped by the first error, and told point by point."""

import asyncio
from collections.abc import Callable, Sequence
from functools import partial

from swingpool.profiling import estimate, worker_facts
from swingpool.profiling.journal import Journal
from swingpool.profiling.plan import Point
from swingpool.profiling.points import Sampler
from swingpool.profiling.wire import WorkerClient

IDLE_POLL_S = 1.0
PER_VISIT = 2
"""Samples of a point before the next one's turn."""

Say = Callable[[str], None]


class BusyError(RuntimeError):
    """Others use the worker, and did not stop in time."""


async def run(
    points: Sequence[Point],
    sampler: Sampler,
    journal: Journal,
    *,
    worker: WorkerClient,
    say: Say,
    wait_s: float,
    tolerance: float = estimate.TOLERANCE,
    least_repeats: int = estimate.LEAST_REPEATS,
) -> None:
    """Measure every point that the journal lacks.

    Args:
        points: what to measure.
        sampler: takes the samples.
        journal: keeps them.
        worker: the worker that is measured, to see whether others use it.
        say: told of each point.
        wait_s: how long to wait for others' requests to end before a point.
        tolerance: half of a point's 95 % interval, as a fraction, at which it is measured often enough.
        least_repeats: fewest samples of a point.

    Raises:
        WorkerError: the worker failed; what was measured before is kept.
        BusyError: others use the worker.
    """
    judged = partial(estimate.enough, tolerance=tolerance, least=least_repeats)
    missing = [point for point in points if not judged(journal.samples.get(point, ()))]
    if len(missing) < len(points):
        say(f"{len(points) - len(missing)} of {len(points)} points were measured before")
    done: list[Point] = []
    # In rounds, and all of them until the last point is sure: what a machine is for a while, slow or quick, shows in
    # every point's interval, and not as a difference between points.
    while len(done) < len(missing):
        for point in missing:
            await _idle(worker, wait_s=wait_s, say=say)
            samples = await _visit(point, sampler, journal)
            if point in done or not judged(samples):
                continue
            done.append(point)
            found = estimate.estimate(samples)
            say(
                f"{len(done)} of {len(missing)}: {point.name}: {found.seconds * 1e3:.2f} ms, "
                f"within {found.half_interval:.1%} after {found.repeats} repeats"
            )


async def _visit(point: Point, sampler: Sampler, journal: Journal) -> tuple[float, ...]:
    """Take a few more samples of a point; return all there are."""
    before = journal.samples.get(point, ())
    if not before:
        await sampler.sample(point)  # the first of a kind is slower: buffers and compiled code are made
        sampler.gaps_s.pop(point, None)
    samples = (*before, *[await sampler.sample(point) for _ in range(PER_VISIT)])
    journal.add(point, samples, gaps_s=estimate.likely(sampler.gaps_s.pop(point, ())))
    return samples


async def _idle(worker: WorkerClient, *, wait_s: float, say: Say) -> None:
    """Wait until nobody else uses the worker: their requests would be in our times, and ours in theirs."""
    waited_s = 0.0
    while (others := await worker_facts.busy_with(worker)) > 0:
        if waited_s >= wait_s:
            raise BusyError(
                f"the worker runs {others:g} requests of others after {wait_s:g} s of waiting: take it out of "
                "rotation, or raise --wait; what was measured is kept, and the same command goes on"
            )
        if not waited_s:
            say("others use the worker: waiting")
        await asyncio.sleep(IDLE_POLL_S)
        waited_s += IDLE_POLL_S
