"""Workers, and the picker itself, that die, hang or refuse: clients notice nothing as long as someone can serve."""

import asyncio
import json
import signal
import time

import aiohttp
import pytest

from swingpool_control.placement.limits import NO_DEFLECTION
from swingpool_control.placement.settings import PlacementSettings
from tests.support.router_client import Answer, ask, chat, completion
from tests.support.router_stand import QUEUE_TIMEOUT_S, Stand
from tests.support.waiting import until_async

SPLIT = 'swingpool_router_decisions_total{kind="split"}'
WHOLE = 'swingpool_router_decisions_total{kind="whole"}'
OUT_WITHIN_S = 3.0
SLACK_S = 3.0
"""For a machine that is busy with other things; the bound itself is 3 s."""


async def many(stand: Stand, session: aiohttp.ClientSession, count: int = 8, *, stream: bool = False) -> list[Answer]:
    bodies = (completion(f"{i} two three", stream=stream) for i in range(count))
    return await asyncio.gather(*(ask(session, stand.url, body) for body in bodies))


async def out(stand: Stand, session: aiohttp.ClientSession, name: str) -> float:
    async def holds() -> bool:
        return not (await stand.worker(session, name)).in_rotation

    return await until_async(f"{name} is out of rotation", holds)


async def test_prefill_worker_killed(stand: Stand, session: aiohttp.ClientSession) -> None:
    await stand.fault(session, "p0", kind="slow", factor=50)
    serving = asyncio.create_task(many(stand, session))

    async def busy() -> bool:
        return (await stand.worker(session, "p0")).prefills_in_flight > 0

    await until_async("p0 computes a prompt", busy)
    stand.signal_worker("p0", signal.SIGKILL)
    assert [answer.status for answer in await serving] == [200] * 8
    assert [answer.status for answer in await many(stand, session)] == [200] * 8
    assert await out(stand, session, "p0") < OUT_WITHIN_S + SLACK_S


async def test_prefill_worker_answers_with_errors(stand: Stand, session: aiohttp.ClientSession) -> None:
    # Not p0: who has just failed is asked last for a while.
    before = await stand.metric(session, "swingpool_router_prefill_retries_total")
    await stand.fault(session, "p1", kind="error", status=500)
    await stand.limit(session, NO_DEFLECTION)  # else decode workers compute prompts as short as these
    try:
        answers = await many(stand, session)
        assert [answer.status for answer in answers] == [200] * 8
        assert await stand.metric(session, "swingpool_router_prefill_retries_total") > before
    finally:
        await stand.limit(session, PlacementSettings().limits)
        await stand.fault(session, "p1")


async def test_decode_worker_killed_before_the_first_token(stand: Stand, session: aiohttp.ClientSession) -> None:
    for name in ("d0", "d1"):
        await stand.fault(session, name, kind="slow", factor=100)
    serving = asyncio.create_task(many(stand, session, 6))

    async def busy() -> bool:
        return (await stand.worker(session, "d0")).decodes_in_flight > 0

    await until_async("d0 was handed a request", busy)
    stand.signal_worker("d0", signal.SIGKILL)
    await stand.fault(session, "d1")
    assert [answer.status for answer in await serving] == [200] * 6

    async def told() -> bool:
        return await stand.metric(session, "swingpool_router_decode_retries_total") > 0

    await until_async("the retry is counted", told)


async def test_decode_worker_killed_after_streams_began_and_before_their_first_token(
    stand: Stand, session: aiohttp.ClientSession
) -> None:
    """A worker sends a stream's headers long before its first token, which a client must not see until then."""
    await stand.fault(session, "d0", kind="slow", factor=5000)
    stand.workers["d1"].ready = False  # so that d0 is who generates
    stand.list_workers()
    await out(stand, session, "d1")
    serving = asyncio.create_task(many(stand, session, 8, stream=True))

    async def begun() -> bool:
        async with session.get(f"http://{stand.workers['d0'].address}/metrics") as page:
            lines = (await page.text()).splitlines()
        return any(float(one.split()[-1]) > 0 for one in lines if one.startswith("vllm:num_requests_"))

    await until_async("d0 has a stream, and so has sent its headers", begun)
    stand.workers["d1"].ready = True
    stand.list_workers()

    async def back() -> bool:
        return (await stand.worker(session, "d1")).in_rotation

    await until_async("d1 is in rotation again", back)
    stand.signal_worker("d0", signal.SIGKILL)
    answers = await serving
    assert [answer.status for answer in answers] == [200] * 8
    assert all(answer.text for answer in answers)


@pytest.mark.parametrize("stream", [True, False], ids=["streams", "whole answers"])
async def test_requests_whose_worker_hangs_are_served_elsewhere(
    stand: Stand, session: aiohttp.ClientSession, stream: bool
) -> None:
    stand.signal_worker("d0", signal.SIGSTOP)
    # Half of them are sent to it before anyone knows.
    answers = await asyncio.gather(*(ask(session, stand.url, chat(f"prompt {n}", stream=stream)) for n in range(8)))
    assert [answer.status for answer in answers] == [200] * 8
    assert all(answer.text for answer in answers)


async def test_decode_worker_killed_amid_a_stream(stand: Stand, session: aiohttp.ClientSession) -> None:
    """What a client has seen cannot be unsaid: its stream breaks off at once instead of hanging."""

    async def idle() -> bool:
        return not any(one.decodes_in_flight for one in (await stand.state(session)).workers)

    await until_async("requests of earlier tests are told of as ended", idle)
    url = f"{stand.url}/v1/chat/completions"
    async with session.post(url, json=chat(stream=True, max_tokens=4000, ignore_eos=True)) as response:
        await response.content.readline()
        serving = next(one.pod for one in (await stand.state(session)).workers if one.decodes_in_flight)
        stand.signal_worker(serving, signal.SIGKILL)
        killed_s = time.monotonic()
        with pytest.raises(aiohttp.ClientError):
            await response.content.read()
        assert time.monotonic() - killed_s < 5.0


async def test_all_prefill_workers_gone(stand: Stand, session: aiohttp.ClientSession) -> None:
    before = await stand.metric(session, WHOLE)
    for name in ("p0", "p1"):
        stand.signal_worker(name, signal.SIGKILL)
    assert [answer.status for answer in await many(stand, session)] == [200] * 8
    assert await stand.metric(session, WHOLE) == before + 8


async def test_all_decode_workers_gone(stand: Stand, session: aiohttp.ClientSession) -> None:
    for name in ("d0", "d1"):
        stand.signal_worker(name, signal.SIGKILL)
    answers = await many(stand, session)
    assert [answer.status for answer in answers] == [200] * 8, answers[0]


async def test_the_last_decode_worker_goes_and_only_the_holder_of_the_cache_is_left(
    stand: Stand, session: aiohttp.ClientSession
) -> None:
    for name in ("p1", "d1"):
        stand.workers[name].ready = False
    stand.list_workers()
    await asyncio.gather(*(out(stand, session, name) for name in ("p1", "d1")))
    stand.signal_worker("d0", signal.SIGKILL)
    answer = await ask(session, stand.url, completion())
    assert answer.status == 200, answer


async def test_nobody_is_there(stand: Stand, session: aiohttp.ClientSession) -> None:
    for worker in stand.workers.values():
        worker.ready = False
    stand.list_workers()
    await asyncio.gather(*(out(stand, session, name) for name in stand.workers))
    waiting = asyncio.create_task(ask(session, stand.url, completion()))

    async def queued() -> bool:
        return (await stand.state(session)).queued_requests == 1

    await until_async("the request waits", queued, limit_s=QUEUE_TIMEOUT_S)
    refused = await waiting
    assert refused.status == 503
    assert int(refused.headers["retry-after"]) > 0
    assert json.loads(refused.text)["error"]["type"] == "server_error"
    later = asyncio.create_task(ask(session, stand.url, completion()))
    await until_async("the next request waits", queued, limit_s=QUEUE_TIMEOUT_S)
    stand.workers["d1"].ready = True
    stand.list_workers()
    assert (await later).status == 200


async def test_hung_prefill_worker_loses_its_legs(stand: Stand, session: aiohttp.ClientSession) -> None:
    stand.signal_worker("p0", signal.SIGSTOP)
    serving = asyncio.create_task(many(stand, session))
    assert await out(stand, session, "p0") < OUT_WITHIN_S + SLACK_S
    assert [answer.status for answer in await serving] == [200] * 8


async def test_hung_decode_worker_gets_nothing_new(stand: Stand, session: aiohttp.ClientSession) -> None:
    """What is overdue is served by another; answers of which nobody knows how long they take are when it is killed."""
    stand.signal_worker("d0", signal.SIGSTOP)
    streams = asyncio.create_task(many(stand, session, stream=True))
    bodies = (completion(f"{number} two three", n=2) for number in range(8))
    held = asyncio.ensure_future(asyncio.gather(*(ask(session, stand.url, body) for body in bodies)))
    assert await out(stand, session, "d0") < OUT_WITHIN_S + SLACK_S
    assert [answer.status for answer in await many(stand, session)] == [200] * 8
    assert [answer.status for answer in await streams] == [200] * 8
    stand.signal_worker("d0", signal.SIGKILL)
    assert [answer.status for answer in await held] == [200] * 8


async def test_requests_are_served_without_the_picker(stand: Stand, session: aiohttp.ClientSession) -> None:
    for name in ("p0", "p1"):
        await stand.fault(session, name, kind="slow", factor=500)
    held = asyncio.create_task(many(stand, session, 4))

    async def legs() -> bool:
        return sum(worker.prefills_in_flight for worker in (await stand.state(session)).workers) == 4

    await until_async("the picker holds four requests", legs)
    assert stand.picker is not None
    stand.picker.kill()
    stand.picker.wait()
    for name in ("p0", "p1"):
        await stand.fault(session, name)
    assert [answer.status for answer in await held] == [200] * 4
    assert [answer.status for answer in await many(stand, session)] == [200] * 8
    stand.start_picker()
    await stand.all_in_rotation(session)
    before = await stand.metric(session, SPLIT)
    assert [answer.status for answer in await many(stand, session)] == [200] * 8
    assert await stand.metric(session, SPLIT) == before + 8


async def test_a_picker_that_hangs_is_away(stand: Stand, session: aiohttp.ClientSession) -> None:
    assert stand.picker is not None
    stand.picker.send_signal(signal.SIGSTOP)
    try:
        assert [answer.status for answer in await many(stand, session)] == [200] * 8
    finally:
        stand.picker.send_signal(signal.SIGCONT)
    before = await stand.metric(session, SPLIT)
    assert [answer.status for answer in await many(stand, session)] == [200] * 8
    assert await stand.metric(session, SPLIT) == before + 8


async def test_the_picker_ends_after_envoys_last_request(stand: Stand, session: aiohttp.ClientSession) -> None:
    url = f"{stand.url}/v1/chat/completions"
    async with session.post(url, json=chat(stream=True, max_tokens=400, ignore_eos=True)) as response:
        await response.content.readline()
        assert stand.picker is not None
        stand.picker.send_signal(signal.SIGTERM)

        async def failing() -> bool:
            async with session.get(f"{stand.url}/healthz") as health:
                return health.status == 503

        await until_async("Envoy fails its health check", failing)
        assert stand.picker.poll() is None
        assert (await response.content.read()).endswith(b"data: [DONE]\n\n")

    async def ended() -> bool:
        return stand.picker is not None and stand.picker.poll() == 0

    await until_async("the picker has ended by itself", ended)
    stand.restart_envoy()
