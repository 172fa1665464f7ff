"""Roles that change while requests run: the router follows, tells when the new role serves, and loses nothing."""

import asyncio

import aiohttp

from swingpool_control.figures import Unknown
from tests.support.router_client import Answer, ask, completion
from tests.support.router_stand import Stand
from tests.support.waiting import until_async


async def test_a_flip_is_followed_and_shown_by_traffic(stand: Stand, session: aiohttp.ClientSession) -> None:
    stop = asyncio.Event()
    answers: list[Answer] = []

    async def client(number: int) -> None:
        while not stop.is_set():
            answers.append(await ask(session, stand.url, completion(f"{number} two three", stream=True)))

    clients = [asyncio.create_task(client(number)) for number in range(4)]
    for role, names in (("prefill", ("d0",)), ("decode", ("d0", "p0")), ("prefill", ("p0",))):
        flipped_s = (await stand.state(session)).at_unix_s
        stand.set_role(role, *names)

        async def served(role: str = role, name: str = names[-1], since_s: float = flipped_s) -> bool:
            worker = await stand.worker(session, name)
            first = worker.first_served_in_role_unix_s
            return worker.role == role and isinstance(first, float) and first >= worker.role_since_unix_s >= since_s

        await until_async(f"{names[-1]} has served as {role}", served)
    stop.set()
    await asyncio.gather(*clients)
    assert answers
    assert {answer.status for answer in answers} == {200}


async def test_roles_that_change_all_the_time_lose_nothing(stand: Stand, session: aiohttp.ClientSession) -> None:
    stop = asyncio.Event()
    answers: list[Answer] = []

    async def client(number: int) -> None:
        while not stop.is_set():
            body = completion(f"{number} two three", stream=number % 2 == 0)
            answers.append(await ask(session, stand.url, body))

    clients = [asyncio.create_task(client(number)) for number in range(6)]
    for turn in range(16):
        name = ("d0", "p0")[turn % 2]
        role = "prefill" if (turn // 2) % 2 == 0 else "decode"
        stand.set_role(role, name)

        async def followed(role: str = role, name: str = name) -> bool:
            return (await stand.worker(session, name)).role == role

        await until_async(f"{name} is {role}", followed)
    stop.set()
    await asyncio.gather(*clients)
    assert len(answers) > 16
    assert {answer.status for answer in answers} == {200}


async def test_an_answer_that_does_not_stream_shows_a_decode_too(stand: Stand, session: aiohttp.ClientSession) -> None:
    await stand.fault(session, "d0", kind="slow", factor=50)
    stand.set_role("draining", "d1", "p1")
    stand.set_role("prefill", "d0")
    stand.set_role("decode", "p0", "d0")
    stand.set_role("prefill", "p1")

    async def settled() -> bool:
        roles = {one.pod: one.role for one in (await stand.state(session)).workers if one.in_rotation}
        return roles == {"p0": "decode", "d0": "decode", "p1": "prefill"}

    await until_async("the picker follows", settled)
    asking = [asyncio.create_task(ask(session, stand.url, completion(f"{i}", max_tokens=60))) for i in range(4)]

    async def shown() -> bool:
        worker = await stand.worker(session, "d0")
        return not isinstance(worker.first_served_in_role_unix_s, Unknown) and worker.decodes_in_flight > 0

    try:
        await until_async("d0's first decode is told before its answer ends", shown)
    finally:
        await stand.fault(session, "d0")
    assert {answer.status for answer in await asyncio.gather(*asking)} == {200}


async def test_draining_and_deleted_workers_get_nothing_new(stand: Stand, session: aiohttp.ClientSession) -> None:
    url = f"{stand.url}/v1/completions"
    async with session.post(url, json=completion(stream=True, max_tokens=300, ignore_eos=True)) as response:
        await response.content.readline()
        serving = next(one.pod for one in (await stand.state(session)).workers if one.decodes_in_flight)
        stand.set_role("draining", serving)

        async def drained() -> bool:
            return not (await stand.worker(session, serving)).in_rotation

        await until_async("the worker is out of rotation", drained)
        before = (await stand.worker(session, serving)).decodes_in_flight
        answers = await asyncio.gather(*(ask(session, stand.url, completion(f"{i}")) for i in range(6)))
        assert {answer.status for answer in answers} == {200}
        assert (await stand.worker(session, serving)).decodes_in_flight <= before
        stand.workers[serving].deleting = True
        stand.list_workers()

        async def away() -> bool:
            return stand.workers[serving].address.rpartition(":")[2] not in stand.eds_file.read_text()

        await until_async("Envoy's list is without it", away)
        assert (await response.content.read()).endswith(b"data: [DONE]\n\n"), "its stream goes on to the end"


async def test_figures_tell_the_load(stand: Stand, session: aiohttp.ClientSession) -> None:
    answers = await asyncio.gather(
        *(ask(session, stand.url, completion(list(range(1, 41)), stream=True, max_tokens=12)) for _ in range(10))
    )
    assert {answer.status for answer in answers} == {200}

    async def told() -> bool:
        state = await stand.state(session)
        known = [state.mean_isl_tokens, state.mean_osl_tokens, state.ttft_s.p95, state.itl_s.p95, state.requests_per_s]
        known += [figure for one in state.workers for figure in (one.running, one.kv_usage)]
        return not any(isinstance(figure, Unknown) for figure in known) and state.ttft_s.count >= 10

    await until_async("every figure is known", told)


async def test_nothing_is_written_when_nothing_changes(stand: Stand, session: aiohttp.ClientSession) -> None:
    before = stand.eds_file.stat().st_mtime_ns
    stand.set_role("draining", "p0")

    async def seen() -> bool:
        return (await stand.worker(session, "p0")).role == "draining"

    await until_async("the change of role is seen", seen)
    assert stand.eds_file.stat().st_mtime_ns == before
