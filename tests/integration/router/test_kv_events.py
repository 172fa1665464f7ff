"""What workers tell of their KV caches counts where what a picker has sent itself would mislead it.

Envoy, picker and workers are real processes. Prompts reach workers past the router, caches are emptied, processes die:
a router that only remembers what it sent knows nothing of that.
"""

import itertools
import re
import signal
from collections.abc import Iterator

import aiohttp
import pytest

from tests.support.router_client import ask, chat, completion
from tests.support.router_stand import Stand
from tests.support.waiting import until_async

BLOCK_TOKENS = 16
TOKENS = 1600
_ids = itertools.count(1)


@pytest.fixture(scope="module")
def _telling(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stand]:
    with Stand(directory=tmp_path_factory.mktemp("kv-events"), kv_events=True) as stand:
        yield stand


@pytest.fixture
async def telling(_telling: Stand, session: aiohttp.ClientSession) -> Stand:
    """A router whose workers tell what their KV caches hold, all of it known."""
    await _telling.repair(session)
    await until_async("all workers' caches are known", lambda: _all_known(_telling, session))
    return _telling


async def _figures(stand: Stand, session: aiohttp.ClientSession, name: str) -> dict[str, float]:
    """Return a figure of the picker's for each worker."""
    async with session.get(f"http://127.0.0.1:{stand.http_port}/metrics") as response:
        text = await response.text()
    found = re.findall(rf'^swingpool_router_kv_events_{name}{{worker="(\w+)"}} (\S+)$', text, re.MULTILINE)
    return {worker: float(value) for worker, value in found}


async def _all_known(stand: Stand, session: aiohttp.ClientSession) -> bool:
    exact = await _figures(stand, session, "exact")
    return len(exact) == len(stand.workers) and all(exact.values())


async def _placed(stand: Stand, session: aiohttp.ClientSession, body: dict[str, object]) -> str:
    """Send a request through the router; return what its journal says of where its prompt went."""
    request_id = f"told-{next(_ids)}"
    answer = await ask(session, stand.url, body, headers={"x-request-id": request_id})
    assert answer.status == 200, answer.text
    async with session.get(f"http://127.0.0.1:{stand.http_port}/requests/{request_id}") as response:
        steps: list[str] = [step["what"] for entry in await response.json() for step in entry["steps"]]
    return next(step for step in steps if step.startswith("prompt to "))


async def _fill(stand: Stand, session: aiohttp.ClientSession, worker: str, body: dict[str, object]) -> None:
    """Have a worker compute a prompt that the router knows nothing of, and wait until it has told."""
    before = (await _figures(stand, session, "blocks"))[worker]
    answer = await ask(session, f"http://{stand.workers[worker].address}", body)
    assert answer.status == 200, answer.text

    async def told() -> bool:
        return (await _figures(stand, session, "blocks"))[worker] > before

    await until_async(f"{worker} has told of its blocks", told)


def _prompt(first: int) -> list[int]:
    return [first, *range(TOKENS - 1)]


@pytest.mark.parametrize("worker", ["p0", "p1"])
async def test_a_prompt_goes_where_another_sent_it(telling: Stand, session: aiohttp.ClientSession, worker: str) -> None:
    body = completion(_prompt(1000 + int(worker[1])))
    await _fill(telling, session, worker, body)
    assert await _placed(telling, session, body) == (
        f"prompt to {worker}, where {TOKENS - BLOCK_TOKENS} of its {TOKENS} tokens lie (told)"
    )


async def test_tokens_of_texts_and_chats_are_asked_for(telling: Stand, session: aiohttp.ClientSession) -> None:
    long = "".join(f" word{number}" for number in range(800))
    for worker, body in (("p1", completion(long)), ("p0", chat(long)), ("p1", chat("other" + long))):
        await _fill(telling, session, worker, body)
        step = await _placed(telling, session, body)
        found = re.fullmatch(rf"prompt to {worker}, where (\d+) of its (\d+) tokens lie \(told\)", step)
        assert found, step
        assert int(found[2]) - int(found[1]) <= BLOCK_TOKENS


async def test_a_cache_that_was_emptied_is_not_counted_on(telling: Stand, session: aiohttp.ClientSession) -> None:
    body = completion(_prompt(2000))
    step = await _placed(telling, session, body)
    assert "where 0 of" in step
    worker = telling.workers[step.split()[2].rstrip(",")]

    async def sent_again() -> bool:
        return f"where {TOKENS - BLOCK_TOKENS} of" in await _placed(telling, session, body)

    await until_async("it comes back to where it was computed", sent_again)

    async def emptied() -> bool:
        async with session.post(f"http://{worker.address}/reset_prefix_cache") as response:
            return response.status == 200

    await until_async("its cache is emptied, with nothing in it held for other workers", emptied)
    await ask(session, f"http://{worker.address}", completion([7]))  # what changed is told with the next step

    async def told() -> bool:
        return (await _figures(telling, session, "blocks"))[worker.name] == 0

    await until_async("it has told that it is empty", told)
    step = await _placed(telling, session, body)
    assert f"where 0 of its {TOKENS} tokens lie (told)" in step


async def test_a_picker_that_starts_learns_what_lies_where(telling: Stand, session: aiohttp.ClientSession) -> None:
    body = completion(_prompt(3000))
    step = await _placed(telling, session, body)
    before = await _figures(telling, session, "blocks")
    assert telling.picker is not None
    telling.picker.kill()
    telling.picker.wait()
    await telling.repair(session)
    await until_async("all workers' caches are known", lambda: _all_known(telling, session))
    after = await _figures(telling, session, "blocks")
    assert {name: after[name] >= before[name] for name in before} == dict.fromkeys(before, True)
    worker = step.split()[2].rstrip(",")
    step = await _placed(telling, session, body)
    assert step == f"prompt to {worker}, where {TOKENS - BLOCK_TOKENS} of its {TOKENS} tokens lie (told)"


async def test_a_worker_that_restarts_has_nothing(telling: Stand, session: aiohttp.ClientSession) -> None:
    body = completion(_prompt(4000))
    await _fill(telling, session, "p0", body)
    telling.signal_worker("p0", signal.SIGKILL)

    async def noticed() -> bool:
        return not (await _figures(telling, session, "exact"))["p0"]

    await until_async("its silence is noticed", noticed)
    await telling.repair(session)
    await until_async("all workers' caches are known", lambda: _all_known(telling, session))
    assert "where 0 of" in await _placed(telling, session, body)


async def test_without_tokens_the_estimate_counts(telling: Stand, session: aiohttp.ClientSession) -> None:
    """Several prompts in one request, a prompt too short to matter: nobody is asked, and nothing is told of it."""
    step = await _placed(telling, session, completion("short"))
    assert step.endswith("tokens lie (estimated)")
