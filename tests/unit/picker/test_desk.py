"""Whoever waits for a placement gets one, or leaves nothing behind, however its leaving and its placement meet."""

import asyncio
import math

import pytest

from swingpool.picker import desk as module
from swingpool.picker.desk import Desk
from swingpool.picker.fleet import Fleet
from swingpool.picker.members import Member
from swingpool_control.placement.dispatcher import Assignment
from swingpool_control.placement.ticket import Ticket


def stand(*, queue_timeout_s: float = 60.0) -> tuple[Fleet, Desk]:
    """Return a prefill and a decode worker that nobody has probed yet, and the desk before them."""
    fleet = Fleet()
    members = [Member(pod=role, uid=role, address=f"{role}:1", role=role) for role in ("prefill", "decode")]
    fleet.publish(members)
    return fleet, Desk(fleet, queue_timeout_s=queue_timeout_s)


def wake(fleet: Fleet) -> None:
    for worker in fleet.workers():
        fleet.probed(worker, fault="")


def held(fleet: Fleet) -> int:
    accounts = [worker.account for worker in fleet.workers()]
    return sum(one.prefills_in_flight + one.decodes_in_flight for one in accounts) + fleet.dispatcher.queued


async def waiting(desk: Desk, count: int) -> list[asyncio.Task[Assignment | None]]:
    tasks = [asyncio.create_task(desk.place(Ticket(number, 100, arrived_s=0.0))) for number in range(count)]
    await asyncio.sleep(0)
    assert not any(task.done() for task in tasks)
    return tasks


async def test_who_leaves_while_it_waits_is_forgotten() -> None:
    fleet, desk = stand()
    first, second = await waiting(desk, 2)
    first.cancel()
    await asyncio.gather(first, return_exceptions=True)
    assert fleet.dispatcher.queued == 1
    wake(fleet)
    assignment = await second
    assert assignment is not None
    assert held(fleet) == 1


@pytest.mark.parametrize("cancelled_first", [True, False])
async def test_leaving_and_placement_in_one_turn_of_the_loop(cancelled_first: bool) -> None:
    fleet, desk = stand()
    first, second = await waiting(desk, 2)
    if cancelled_first:
        first.cancel()
    wake(fleet)
    if not cancelled_first:
        first.cancel()
    await asyncio.gather(first, return_exceptions=True)
    assert first.cancelled()
    assert await second is not None
    assert held(fleet) == 1


async def test_without_any_worker_the_wait_is_over_after_its_time() -> None:
    fleet, desk = stand(queue_timeout_s=0.05)
    tasks = await waiting(desk, 3)
    assert await asyncio.wait_for(asyncio.gather(*tasks), 10) == [None] * 3
    assert held(fleet) == 0


async def test_as_long_as_somebody_serves_the_wait_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    fleet, desk = stand(queue_timeout_s=0.02)
    wake(fleet)
    blocked = fleet.get("prefill:1")
    assert blocked is not None
    blocked.account.others_until_s = math.inf
    fleet.dispatcher.roster.rank(blocked.account)
    (task,) = await waiting(desk, 1)
    await asyncio.sleep(0.2)
    assert not task.done()
    monkeypatch.setattr(module, "LONGEST_WAIT_S", 0.05)
    (late,) = await waiting(desk, 1)
    assert await asyncio.wait_for(late, 10) is None
    assert not task.done()
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    assert held(fleet) == 0
