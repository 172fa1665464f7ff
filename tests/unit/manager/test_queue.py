"""The work queue: coalescing, one round at a time for each key, times, backoff."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

from swingpool.manager.queue import WorkQueue


@asynccontextmanager
async def running(
    process: Callable[[str], Awaitable[float | None]], *, workers: int = 2
) -> AsyncIterator[WorkQueue[str]]:
    queue = WorkQueue(process, workers=workers, min_interval_s=0.01)
    task = asyncio.create_task(queue.run())
    try:
        yield queue
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(10):
        while not condition():  # noqa: ASYNC110
            await asyncio.sleep(0.002)


async def test_many_adds_while_waiting_are_one_round() -> None:
    rounds: list[str] = []

    async def process(key: str) -> None:
        rounds.append(key)

    async with running(process) as queue:
        for _ in range(50):
            queue.add("a")
        queue.add("b", delay_s=0.05)
        await until(lambda: "b" in rounds)
    assert rounds == ["a", "b"]


async def test_adds_during_a_round_lead_to_one_more_and_never_to_two_at_once() -> None:
    inside, most, rounds = 0, 0, 0
    gate = asyncio.Event()

    async def process(key: str) -> None:
        nonlocal inside, most, rounds
        inside, rounds = inside + 1, rounds + 1
        most = max(most, inside)
        await gate.wait()
        inside -= 1

    async with running(process, workers=4) as queue:
        queue.add("a")
        await until(lambda: inside == 1)
        for _ in range(10):
            queue.add("a")
        gate.set()
        await until(lambda: rounds == 2)
        await until(lambda: queue.size == 0)
    assert (most, rounds) == (1, 2)


async def test_keys_run_side_by_side() -> None:
    started: set[str] = set()
    both = asyncio.Event()

    async def process(key: str) -> None:
        started.add(key)
        if len(started) == 2:
            both.set()
        await both.wait()

    async with running(process) as queue:
        queue.add("a")
        queue.add("b")
        await until(both.is_set)


async def test_a_round_comes_again_when_it_said_and_earlier_if_asked() -> None:
    rounds = 0

    async def process(key: str) -> float:
        nonlocal rounds
        rounds += 1
        return 0.01 if rounds < 3 else 3600.0

    async with running(process) as queue:
        queue.add("a")
        await until(lambda: rounds == 3)
        queue.add("a")
        await until(lambda: rounds == 4)
        assert queue.size == 1


async def test_a_failure_is_tried_again_later_and_harms_no_other_key() -> None:
    seen: list[str] = []

    async def process(key: str) -> None:
        seen.append(key)
        if key == "bad" and seen.count("bad") < 2:
            raise RuntimeError("no")

    async with running(process, workers=1) as queue:
        queue.add("bad")
        queue.add("good")
        await until(lambda: seen.count("bad") == 2)
        await until(lambda: queue.size == 0)
    assert seen == ["bad", "good", "bad"]


async def test_a_key_that_is_gone_is_forgotten_and_may_come_back() -> None:
    rounds = 0

    async def process(key: str) -> None:
        nonlocal rounds
        rounds += 1

    async with running(process) as queue:
        queue.add("a")
        await until(lambda: rounds == 1 and queue.size == 0)
        queue.add("a")
        await until(lambda: rounds == 2 and queue.size == 0)
        assert vars(queue)["_started"] == {}


async def test_a_round_that_hangs_shows() -> None:
    async def process(key: str) -> None:
        await asyncio.Event().wait()

    async with running(process) as queue:
        assert queue.lateness_s == 0
        queue.add("a")
        await until(lambda: queue.lateness_s > 0.02)
