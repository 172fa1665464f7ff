"""Two workers for the tests of the protocol: simulated ones of our own, or whatever the environment points at.

`SWINGPOOL_WORKER_URL` and `SWINGPOOL_WORKER_URL_2` may name two real vLLM servers of one model with NixlConnector; the
contract must hold for them too.
"""

import os
from collections.abc import AsyncIterator, Iterator
from contextlib import ExitStack

import aiohttp
import pytest

from tests.support.completions import Client
from tests.support.workers import WorkerProcess


@pytest.fixture(scope="session")
def worker_urls() -> Iterator[tuple[str, str]]:
    """Base URLs of two workers that can exchange KV cache."""
    given = os.environ.get("SWINGPOOL_WORKER_URL")
    if given:
        yield given, os.environ.get("SWINGPOOL_WORKER_URL_2", given)
        return
    with ExitStack() as stack:
        processes = [
            WorkerProcess("--max-model-len", "8192", policy="recompute", lease_s=6, wait=False) for _ in range(2)
        ]
        for process in processes:
            stack.enter_context(process)
        for process in processes:
            process.await_health(200)
        yield processes[0].url, processes[1].url


@pytest.fixture
async def session() -> AsyncIterator[aiohttp.ClientSession]:
    """An HTTP client."""
    # A real engine without a GPU on a busy machine takes its time.
    total_s = 300 if os.environ.get("SWINGPOOL_WORKER_URL") else 60
    async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=total_s)) as session:
        yield session


async def _client(session: aiohttp.ClientSession, url: str) -> Client:
    async with session.get(f"{url}/v1/models") as response:
        body = await response.json()
    return Client(session, url, body["data"][0]["id"])


@pytest.fixture
async def worker(session: aiohttp.ClientSession, worker_urls: tuple[str, str]) -> Client:
    """The first worker."""
    return await _client(session, worker_urls[0])


@pytest.fixture
async def other(session: aiohttp.ClientSession, worker_urls: tuple[str, str]) -> Client:
    """The second worker."""
    return await _client(session, worker_urls[1])
