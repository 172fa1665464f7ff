"""The last decisions: bounded, without repetition, served over HTTP, and gone with their cluster."""

import json
from itertools import pairwise

import aiohttp

from swingpool.manager import health
from swingpool.manager.decisions import MOST, Decisions
from swingpool.manager.metrics import Metrics
from swingpool.manager.store import Key
from swingpool_control.replay.decision import read
from tests.support.decisions import decisions

KEY = Key("ns", "chat")


def test_the_newest_of_each_loop_are_kept_and_the_same_once() -> None:
    kept = Decisions()
    made = decisions(seconds=20)
    for decision in made:
        kept.add(KEY, decision)
    recording = kept.of(KEY)
    assert recording is not None
    assert recording.cluster == "ns/chat"
    for loop in ("swing", "sizing"):
        found = [one for one in recording.decisions if one.loop == loop]
        assert 0 < len(found) <= MOST
        assert found[-1] == [one for one in made if one.loop == loop][-1]
        said = [(one.result.summary, bool(one.result.actions)) for one in found]
        assert all(one != two or one[1] for one, two in pairwise(said))
    kept.forget(KEY)
    assert kept.of(KEY) is None


async def test_they_are_served_beside_the_metrics() -> None:
    kept = Decisions()
    for decision in decisions(seconds=6):
        kept.add(KEY, decision)
    runners = await health.serve(
        host="127.0.0.1",
        health_port=0,
        metrics_port=0,
        alive=list,
        ready=list,
        metrics=Metrics(),
        decisions=lambda namespace, name: kept.of(Key(namespace, name)),
    )
    try:
        port = runners[1].addresses[0][1]
        async with aiohttp.ClientSession() as session:
            async with session.get(f"http://127.0.0.1:{port}/decisions/ns/chat") as answer:
                assert read(json.loads(await answer.text())) == kept.of(KEY)
            async with session.get(f"http://127.0.0.1:{port}/decisions/ns/other") as answer:
                assert answer.status == 404
                assert "nothing was decided here about ns/other" in await answer.text()
    finally:
        for runner in runners:
            await runner.cleanup()
