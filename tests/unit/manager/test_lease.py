"""Who leads: never two, taken over when it should be, given up at once."""

import asyncio
import copy
from dataclasses import dataclass, field
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from swingpool.kube import Kube, KubeError, Object
from swingpool.manager.lease import Leadership, LeaseSettings, NotLeadingError


@dataclass
class LeaseApi:
    """The API server's part: one Lease with optimistic locking; it may be away."""

    lease: Object | None = None
    version: int = 0
    away: bool = False
    writes: int = 0

    async def get(self, *_: Any, **__: Any) -> Object:
        self._answer()
        if self.lease is None:
            raise KubeError(status=404, reason="NotFound", message="no lease")
        return copy.deepcopy(self.lease)

    async def create(self, obj: Object) -> Object:
        self._answer()
        if self.lease is not None:
            raise KubeError(status=409, reason="AlreadyExists", message="exists")
        return self._store(obj)

    async def replace(self, obj: Object) -> Object:
        self._answer()
        assert self.lease is not None
        if obj["metadata"]["resourceVersion"] != self.lease["metadata"]["resourceVersion"]:
            raise KubeError(status=409, reason="Conflict", message="modified")
        return self._store(obj)

    def _store(self, obj: Object) -> Object:
        self.version += 1
        self.writes += 1
        self.lease = copy.deepcopy(obj)
        self.lease["metadata"]["resourceVersion"] = str(self.version)
        return copy.deepcopy(self.lease)

    def _answer(self) -> None:
        if self.away:
            raise KubeError(status=None, reason="ConnectError", message="refused")


@dataclass
class Clock:
    now: float = 1000.0

    def __call__(self) -> float:
        return self.now


@dataclass
class World:
    api: LeaseApi = field(default_factory=LeaseApi)
    clock: Clock = field(default_factory=Clock)

    def manager(self, identity: str) -> Leadership:
        chosen = LeaseSettings(namespace="ns", name="l", identity=identity, duration_s=30, deadline_s=20, retry_s=4)
        return Leadership(cast(Kube, self.api), chosen, monotonic=self.clock)


async def attempt(manager: Leadership) -> bool:
    return await manager._attempt()


async def test_the_first_leads_and_the_second_waits_until_the_lease_is_old() -> None:
    world = World()
    one, two = world.manager("one"), world.manager("two")
    assert await attempt(one)
    assert not await attempt(two)
    assert two.holder == "one"
    world.clock.now += 29
    assert not await attempt(two)
    world.clock.now += 2
    assert await attempt(two)
    assert not one.held


async def test_a_renewal_starts_the_wait_anew() -> None:
    world = World()
    one, two = world.manager("one"), world.manager("two")
    assert await attempt(one)
    for _ in range(10):
        world.clock.now += 15
        assert await attempt(one)
        assert not await attempt(two)
    assert one.held


async def test_a_restarted_container_takes_its_own_lease_back_at_once() -> None:
    world = World()
    assert await attempt(world.manager("pod-0"))
    assert await attempt(world.manager("pod-0"))


async def test_a_released_lease_is_taken_at_once() -> None:
    world = World()
    one, two = world.manager("one"), world.manager("two")
    assert await attempt(one)
    await one.release()
    assert not one.held
    assert await attempt(two)
    with pytest.raises(NotLeadingError, match="one does not hold ns/l"):
        one.check()
    two.check()


async def test_releasing_twice_or_without_holding_writes_nothing() -> None:
    world = World()
    one, two = world.manager("one"), world.manager("two")
    await attempt(one)
    await two.release()
    await one.release()
    writes = world.api.writes
    await one.release()
    assert world.api.writes == writes
    assert await attempt(two)


async def test_without_answers_leading_ends_before_another_may_begin() -> None:
    world = World()
    one = world.manager("one")
    assert await attempt(one)
    world.api.away = True
    world.clock.now += 19
    assert not await attempt(one)
    one.check()
    world.clock.now += 2
    with pytest.raises(NotLeadingError):
        one.check()


async def test_a_lost_lease_ends_keeping() -> None:
    world = World()
    one, two = world.manager("one"), world.manager("two")
    one.settings = LeaseSettings(namespace="ns", name="l", identity="one", duration_s=30, deadline_s=20, retry_s=0.01)
    assert await attempt(one)
    assert not await attempt(two)
    keeping = asyncio.create_task(one.keep())
    world.api.away = True
    world.clock.now += 21
    await asyncio.wait_for(keeping, 10)
    assert not one.held


async def test_a_deleted_lease_is_made_anew_by_its_holder() -> None:
    world = World()
    one = world.manager("one")
    assert await attempt(one)
    world.api.lease = None
    assert await attempt(one)
    assert one.held


@given(st.lists(st.tuples(st.integers(0, 2), st.floats(0, 40), st.booleans()), max_size=40))
def test_two_never_lead_at_once(steps: list[tuple[int, float, bool]]) -> None:
    world = World()
    managers = [world.manager(f"m{number}") for number in range(3)]

    async def play() -> None:
        for who, wait_s, away in steps:
            world.clock.now += wait_s
            world.api.away = away
            await managers[who]._attempt()
            assert sum(manager.held for manager in managers) <= 1

    asyncio.run(play())
