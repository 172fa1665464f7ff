"""The last requests, step by step: what is remembered, how it is told, and that it stays bounded."""

from aiohttp.test_utils import TestClient, TestServer

from swingpool.picker.fleet import Fleet
from swingpool.picker.http import application
from swingpool.picker.journal import Entry, Journal
from swingpool.picker.metrics import RouterMetrics

ARRIVED = 1_700_000_000.0


def entry(request_id: str, *, first_token_s: float | None = None) -> Entry:
    made = Entry(request_id, "/v1/completions", kind="batch", tenant="t", stream=True, arrived_unix_s=ARRIVED)
    made.first_token_unix_s = None if first_token_s is None else ARRIVED + first_token_s
    return made


def test_the_oldest_are_forgotten_and_the_newest_of_an_id_comes_first() -> None:
    journal = Journal(most=3)
    entries = [entry(name) for name in ("a", "b", "b", "c")]
    for one in entries:
        journal.add(one)
    assert journal.of("a") == []
    assert journal.of("b") == [entries[2], entries[1]]


def test_the_slowest_are_those_that_waited_longest_for_their_first_token() -> None:
    journal = Journal()
    for name, waited_s in (("quick", 0.1), ("slow", 3.0), ("slower", 7.0)):
        journal.add(entry(name, first_token_s=waited_s))
    journal.add(entry("waits"))  # since a time long ago
    assert [one.request_id for one in journal.slowest(3)] == ["waits", "slower", "slow"]


def test_it_is_told_in_seconds_since_the_arrival() -> None:
    one = entry("a", first_token_s=0.25)
    one.prompt_tokens = 12
    one.step("prompt to w-1")
    one.ended(503, "worker_unreachable")
    told = one.told()
    assert told["firstTokenAfterS"] == 0.25
    assert told["predictedFirstTokenAfterS"] is None
    assert told["class"] == "batch"
    assert [step["what"] for step in told["steps"]] == ["prompt to w-1"]
    assert told["steps"][0]["afterS"] > 0
    assert (told["status"], told["trouble"], told["promptTokens"]) == (503, "worker_unreachable", 12)
    assert entry("b").told()["endedAfterS"] is None


async def test_it_is_served_by_id_and_by_slowness() -> None:
    journal = Journal()
    for name, waited_s in (("a/b c", 1.0), ("d", 2.0)):
        journal.add(entry(name, first_token_s=waited_s))
    app = application(fleet=Fleet(), metrics=RouterMetrics(), observe=lambda: None, journal=journal, not_ready=str)
    async with TestClient(TestServer(app)) as client:
        answer = await client.get("/requests/a%2Fb%20c")
        assert [one["requestID"] for one in await answer.json()] == ["a/b c"]
        assert (await client.get("/requests/unknown")).status == 404
        slowest = await client.get("/requests?slowest=1")
        assert [one["requestID"] for one in await slowest.json()] == ["d"]
        for bad in ("0", "-1", "many", "1000000"):
            assert (await client.get(f"/requests?slowest={bad}")).status == 400
