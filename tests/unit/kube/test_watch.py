"""The informer: it goes on, whatever the API server does."""

import importlib
from collections.abc import AsyncGenerator
from dataclasses import dataclass, field
from typing import Any, cast

import httpx2
import pytest

from swingpool.kube import (
    Interrupted,
    Kube,
    KubeError,
    Object,
    ObjectList,
    Removed,
    Snapshot,
    Upserted,
    WatchEvent,
    watch,
)
from swingpool.kube.kinds import POD

watching = importlib.import_module("swingpool.kube.watch")


def pod(name: str, version: int) -> Object:
    return {"metadata": {"name": name, "resourceVersion": str(version)}}


GONE = KubeError(status=410, reason="Expired", message="too old")
REFUSED = httpx2.ConnectError("refused")


@dataclass
class Server:
    """Answers lists and watches by a script; the end of the script ends the test's watch."""

    lists: list[Any]
    watches: list[list[Any]]
    resumed: list[str] = field(default_factory=list)

    async def list(self, *_: Any, **__: Any) -> ObjectList:
        answer = self.lists.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return ObjectList(objects=tuple(answer[1]), resource_version=str(answer[0]))

    async def watch_once(self, *_: Any, resource_version: str, **__: Any) -> AsyncGenerator[tuple[str, Object], None]:
        self.resumed.append(resource_version)
        for item in self.watches.pop(0):
            if isinstance(item, Exception):
                raise item
            yield item


async def take(server: Server, count: int) -> list[WatchEvent]:
    found: list[WatchEvent] = []
    async for event in watch(cast(Kube, server), POD, namespace="ns"):
        found.append(event)
        if len(found) == count:
            break
    return found


@pytest.fixture(autouse=True)
def no_waiting(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    waited: list[int] = []

    def at_once(failures: int, *, first_s: float, longest_s: float) -> float:
        assert first_s < longest_s
        waited.append(failures)
        return 0.0

    monkeypatch.setattr(watching, "delay_s", at_once)
    return waited


async def test_it_lists_and_then_follows() -> None:
    server = Server(
        [(5, [pod("a", 3)])], [[("ADDED", pod("b", 6)), ("MODIFIED", pod("b", 7)), ("DELETED", pod("b", 8))]]
    )
    events = await take(server, 4)
    assert [type(event) for event in events] == [Snapshot, Upserted, Upserted, Removed]
    assert isinstance(events[1], Upserted)
    assert events[1].object["kind"] == "Pod"
    assert server.resumed == ["5"]


async def test_a_dropped_connection_resumes_where_it_was_without_a_list() -> None:
    server = Server([(5, [])], [[("ADDED", pod("a", 6)), httpx2.ReadError("cut")], [], [("ADDED", pod("b", 9))]])
    events = await take(server, 4)
    assert [type(event) for event in events] == [Snapshot, Upserted, Interrupted, Upserted]
    assert server.resumed == ["5", "6", "6"]


async def test_an_expired_version_lists_anew_and_is_no_trouble() -> None:
    server = Server([(5, []), (50, [pod("a", 40)])], [[GONE], [("ADDED", pod("b", 51))]])
    events = await take(server, 3)
    assert [type(event) for event in events] == [Snapshot, Snapshot, Upserted]
    assert server.resumed == ["5", "50"]


async def test_an_api_server_that_is_away_is_asked_again_and_again(no_waiting: list[int]) -> None:
    server = Server([(5, []), (9, [])], [[REFUSED], [REFUSED], [REFUSED], [GONE], [("ADDED", pod("a", 10))]])
    events = await take(server, 7)
    assert [type(event) for event in events] == [Snapshot, *[Interrupted] * 4, Snapshot, Upserted]
    assert no_waiting == [1, 2, 3, 4]


async def test_refused_lists_are_tried_again() -> None:
    forbidden = KubeError(status=403, reason="Forbidden", message="not yet")
    server = Server([forbidden, forbidden, (5, [])], [])
    events = await take(server, 3)
    assert [type(event) for event in events] == [Interrupted, Interrupted, Snapshot]


async def test_a_server_that_always_says_expired_is_not_hammered(no_waiting: list[int]) -> None:
    server = Server([(number, []) for number in range(4)], [[GONE] for _ in range(4)])
    await take(server, 4)
    assert no_waiting == []
    refusing = Server([GONE, GONE, GONE], [])
    await take(refusing, 2)
    assert no_waiting == [2]
