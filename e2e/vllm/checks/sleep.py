"""A worker that sleeps computes nothing, and serves again sooner than a new one would."""

import asyncio
import time

import aiohttp

from e2e.vllm.asking import Answered, ask, drawn
from e2e.vllm.finding import Finding
from e2e.vllm.stand import Stand, client
from swingpool_control.vllm import sleep

REPEATS = 5
SILENT_S = 1.0


async def check(stand: Stand, *, worker: str, start_s: float) -> list[Finding]:
    """Put a server to sleep and wake it, as the manager does, with a request that comes in its sleep.

    Args:
        stand: the stand.
        worker: the server; nobody else may use it.
        start_s: what servers took to start here, side by side.
    """
    url = stand.servers[worker].url
    asked = drawn(REPEATS + 1, seed=60)
    answered: list[tuple[Answered, Answered]] = []
    woken_s: list[float] = []
    silent = True
    async with client() as session:
        await ask(session, url, asked[-1])
        for one in asked[:REPEATS]:
            before = await ask(session, url, one)
            await _call(session, url, sleep.request("sleep"))
            waiting = asyncio.create_task(ask(session, url, one))
            done, _ = await asyncio.wait([waiting], timeout=SILENT_S)
            silent = silent and not done
            begin_s = time.monotonic()
            await _call(session, url, sleep.request("wake"))
            woken_s.append(time.monotonic() - begin_s)
            answered.append((before, await waiting))
    failed = [one for pair in answered for one in pair if one.error]
    different = sum(before.tokens != after.tokens for before, after in answered)
    return [
        Finding(
            claim="a worker computes nothing in its sleep, answers then what came meanwhile, and wakes sooner than one "
            "starts",
            holds=silent and not failed and not different and max(woken_s) < start_s,
            figures={
                "slept": REPEATS,
                "failed": len(failed),
                "different": different,
                "slowest_wake_s": max(woken_s),
                "start_s": start_s,
            },
            notes=tuple(f"request {one.number}: {one.error}" for one in failed),
        )
    ]


async def _call(session: aiohttp.ClientSession, url: str, call: sleep.Call) -> None:
    async with session.post(url + call.path, params=dict(call.query)) as response:
        response.raise_for_status()
