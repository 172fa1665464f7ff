"""Polling pickers: real HTTP on loopback."""

from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import Any

import pytest
from aiohttp import web

from swingpool.kube import Object
from swingpool.manager.router_poll import FRESH_S, TELL_AGAIN_S, RouterPoll
from swingpool.manager.store import Key
from swingpool.telemetry.router_state import encode
from swingpool_control import names
from swingpool_control.figures import Unknown
from swingpool_control.observation import Percentiles, RouterObservation
from swingpool_control.placement.limits import DeflectionLimits

KEY = Key("ns", "chat")
NONE = Unknown("no requests")
LATENCY = Percentiles(p50=NONE, p90=NONE, p95=NONE, p99=NONE, count=0)
STATE = RouterObservation(
    picker="p",
    at_unix_s=5.0,
    window_s=30.0,
    requests_per_s=2.0,
    prompt_tokens_per_s=2.0,
    mean_isl_tokens=1.0,
    mean_osl_tokens=1.0,
    ttft_s=LATENCY,
    itl_s=LATENCY,
    queued_requests=0,
    workers=(),
)


def router(address: str, *, ready: bool = True, deleting: bool = False, **metadata: Any) -> Object:
    labels = {names.LABEL_COMPONENT: names.COMPONENT_ROUTER}
    return {
        "metadata": {
            "name": f"r-{address}",
            "labels": labels,
            **({"deletionTimestamp": "now"} if deleting else {}),
            **metadata,
        },
        "status": {
            "phase": "Running",
            "podIP": address,
            "conditions": [{"type": "Ready", "status": "True" if ready else "False"}],
        },
    }


@dataclass
class Picker:
    answer: web.Response | None = None
    asked: int = 0
    told: list[dict[str, Any]] = field(default_factory=list)
    port: int = 0
    now: float = 0.0
    poll: RouterPoll = field(init=False)

    async def state(self, request: web.Request) -> web.Response:
        self.asked += 1
        return self.answer or web.Response(body=encode(STATE))

    async def limits(self, request: web.Request) -> web.Response:
        self.told.append(await request.json())
        return self.answer or web.Response(status=204)


@pytest.fixture
async def picker() -> AsyncIterator[Picker]:
    one = Picker()
    application = web.Application()
    application.add_routes([web.get("/state", one.state), web.put("/limits", one.limits)])
    runner = web.AppRunner(application)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    one.port = runner.addresses[0][1]
    one.poll = RouterPoll(monotonic=lambda: one.now, port=one.port)
    yield one
    await one.poll.close()
    await runner.cleanup()


async def test_the_state_of_a_ready_picker_is_read_and_not_asked_for_again_at_once(picker: Picker) -> None:
    assert await picker.poll.observe(KEY, [router("127.0.0.1")]) == STATE
    assert await picker.poll.observe(KEY, [router("127.0.0.1")]) == STATE
    assert picker.asked == 1
    picker.now += FRESH_S
    await picker.poll.observe(KEY, [router("127.0.0.1")])
    assert picker.asked == 2


async def test_no_ready_picker_is_unknown(picker: Picker) -> None:
    assert await picker.poll.observe(KEY, [router("127.0.0.1", ready=False)]) == Unknown("no router pod is ready")
    assert picker.asked == 0


async def test_silence_of_a_ready_picker_makes_everything_unknown(picker: Picker) -> None:
    seen = await picker.poll.observe(KEY, [router("127.0.0.1"), router("127.0.0.2")])
    assert isinstance(seen, Unknown)
    assert "r-127.0.0.2 does not answer" in seen.why


async def test_silence_of_one_that_goes_down_says_nothing(picker: Picker) -> None:
    seen = await picker.poll.observe(KEY, [router("127.0.0.1"), router("127.0.0.2", deleting=True)])
    assert seen == STATE


async def test_one_that_goes_down_still_counts_while_it_answers(picker: Picker) -> None:
    seen = await picker.poll.observe(KEY, [router("127.0.0.1"), router("127.0.0.1", deleting=True)])
    assert isinstance(seen, RouterObservation)
    assert seen.requests_per_s == 4.0


@pytest.mark.parametrize(
    "answer",
    [web.Response(status=503), web.Response(text="not json"), web.Response(text="[]"), web.Response(text="{}")],
    ids=["503", "text", "list", "empty"],
)
async def test_a_bad_answer_is_unknown(picker: Picker, answer: web.Response) -> None:
    picker.answer = answer
    assert isinstance(await picker.poll.observe(KEY, [router("127.0.0.1")]), Unknown)


async def test_limits_are_told_when_they_change_and_again_after_a_while(picker: Picker) -> None:
    pods = [router("127.0.0.1", uid="a")]
    limits = DeflectionLimits(itl_s=0.05, over_share=0.04, prefill_keeps=False)
    for _ in range(3):
        await picker.poll.limit(KEY, pods, limits)
    expected = {"itl_s": 0.05, "over_share": 0.04, "most_tokens": 1_000_000_000, "prefill_keeps": False}
    assert picker.told == [expected]
    picker.now += TELL_AGAIN_S
    await picker.poll.limit(KEY, pods, limits)
    assert picker.told == [expected] * 2
    await picker.poll.limit(KEY, pods, DeflectionLimits(itl_s=0.05))
    assert picker.told[-1]["over_share"] == 0.0


async def test_who_did_not_take_limits_is_told_again(picker: Picker) -> None:
    pods = [router("127.0.0.1", uid="a"), router("127.0.0.2", uid="b")]
    picker.answer = web.Response(status=500)
    await picker.poll.limit(KEY, pods, DeflectionLimits(itl_s=0.05))
    picker.answer = None
    await picker.poll.limit(KEY, pods, DeflectionLimits(itl_s=0.05))
    await picker.poll.limit(KEY, pods, DeflectionLimits(itl_s=0.05))
    assert len(picker.told) == 2
