"""A worker that dies or hangs costs no request that can still be served."""

import asyncio
import signal
import time
from collections.abc import Sequence

import aiohttp

from e2e.ports import free_port
from e2e.vllm.asking import Answered, Asked, ask, at_once, drawn
from e2e.vllm.finding import Finding
from e2e.vllm.gate import Gate
from e2e.vllm.stand import Stand, client
from swingpool_control.names import ROLE_DECODE, ROLE_PREFILL

RECOMPUTED_WITHIN_S = 10.0
DETECTED_WITHIN_S = 5.0
_POLL_S = 0.05


async def killed(stand: Stand, *, prefill: str, known: str, fresh: str) -> list[Finding]:
    """Kill a prefill worker after it computed two prompts and before anyone fetched them.

    Args:
        stand: with all three running.
        prefill: who is killed.
        known: a decode worker that has fetched from it before.
        fresh: one that has not, and so must find out in its handshake.
    """
    warm, *requests = drawn(3, seed=31, prompt_tokens=(200, 300))
    async with client() as session, Gate(stand.servers[prefill].address, free_port()) as gate:
        expected = await at_once(session, stand.servers[fresh].url, requests, in_flight=2)
        stand.addresses[prefill] = gate.address
        only(stand, {prefill: ROLE_PREFILL, known: ROLE_DECODE})
        await asyncio.to_thread(stand.await_rotation)
        warmed = await ask(session, stand.url, warm)
        stand.set_roles(**{fresh: ROLE_DECODE})
        await asyncio.to_thread(stand.await_rotation)
        killed_s: list[float] = []

        def kill() -> None:
            stand.servers[prefill].signal(signal.SIGKILL)
            killed_s.append(time.monotonic())

        gate.arm(2, kill)
        answers = await asyncio.gather(*(_timed(session, stand.url, asked) for asked in requests))
    stand.addresses.pop(prefill)
    only(stand, {known: ROLE_DECODE, fresh: ROLE_DECODE})
    whole = not warmed.error and _alike(expected, [one for one, _ in answers])
    after_s = [ended - killed_s[0] if killed_s else float("inf") for _, ended in answers]
    return [
        Finding(
            claim=f"a prefill worker killed before its KV cache was fetched: requests succeed, recomputed, within "
            f"{RECOMPUTED_WITHIN_S:g} s",
            holds=whole and max(after_s) <= RECOMPUTED_WITHIN_S,
            figures={"requests": len(answers), "slowest_after_the_kill_s": max(after_s)},
            notes=tuple(one.error for one, _ in answers if one.error),
        )
    ]


async def _timed(session: aiohttp.ClientSession, url: str, asked: Asked) -> tuple[Answered, float]:
    return await ask(session, url, asked), time.monotonic()


async def stopped(stand: Stand, *, prefill: str, decode: str, hung: str) -> list[Finding]:
    """Stop a decode worker's processes, as a frozen node would, with requests on their way to it."""
    requests = drawn(12, seed=32)
    async with client() as session:
        expected = await at_once(session, stand.servers[prefill].url, requests, in_flight=6)
        only(stand, {prefill: ROLE_PREFILL, decode: ROLE_DECODE, hung: ROLE_DECODE})
        await asyncio.to_thread(stand.await_rotation)
        stand.servers[hung].signal(signal.SIGSTOP)
        stopped_s = time.monotonic()
        try:
            # Half of these are sent to the hung worker before anyone knows that it hangs.
            tasks = [asyncio.create_task(ask(session, stand.url, asked)) for asked in requests]
            detected_s = await _out_of_rotation(stand, hung) - stopped_s
            await asyncio.wait(tasks, timeout=60)
            served = [task.result() for task in tasks if task.done()]
        finally:
            stand.servers[hung].signal(signal.SIGCONT)
        late = len(requests) - len(served)
        await asyncio.gather(*tasks)
    return [
        Finding(
            claim=f"a hung decode worker is out of rotation within {DETECTED_WITHIN_S:g} s, and what waits for it is "
            "served elsewhere",
            holds=detected_s <= DETECTED_WITHIN_S and late == 0 and _alike(expected, served),
            figures={
                "detected_s": detected_s,
                "requests": len(requests),
                "streams": sum(one.stream for one in requests),
                "not_served_while_it_hung": late,
                "slowest_s": max((one.seconds for one in served), default=0.0),
            },
            notes=tuple(one.error for one in served if one.error),
        )
    ]


async def _out_of_rotation(stand: Stand, name: str) -> float:
    end_s = time.monotonic() + 60
    while time.monotonic() < end_s:
        state = await asyncio.to_thread(stand.state)
        if not any(one.in_rotation for one in state.workers if one.pod == name):
            break
        await asyncio.sleep(_POLL_S)
    return time.monotonic()


def only(stand: Stand, roles: dict[str, str]) -> None:
    """Let these workers have these roles, and take all others off the router's list."""
    stand.set_roles(**{name: roles.get(name, "") for name in stand.servers})


def _alike(expected: Sequence[Answered], found: Sequence[Answered]) -> bool:
    return all(not b.error and a.tokens == b.tokens for a, b in zip(expected, found, strict=True))
