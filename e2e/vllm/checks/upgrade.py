"""A rollout from one connector configuration to another, under load, loses no request and pairs nobody across.

The two configurations are ones between which vLLM's handshake refuses to transfer; that is shown too, or the claim
would be worth nothing.
"""

import asyncio
import random
import time
from collections.abc import Sequence

import aiohttp

from e2e.vllm.asking import PREFILL_LEG, Answered, Asked, ask, at_once, drawn
from e2e.vllm.checks.deaths import only
from e2e.vllm.checks.limits import metric, post
from e2e.vllm.finding import Finding
from e2e.vllm.server import NIXL, ServerOptions, VLLMServer
from e2e.vllm.stand import Stand, client
from swingpool_control.names import ROLE_DECODE, ROLE_PREFILL

PER_S = 3.0
AFTERWARDS_S = 10.0
_MOST = 3000
_MISMATCH = "compatibility hash mismatch"
_FAILED = "vllm:nixl_num_failed_transfers_total"

NEW = ({**NIXL, "kv_connector_extra_config": {"kv_lease_duration": 45}}, ("--disable-hybrid-kv-cache-manager",))
"""Another lease, and one kind of KV block for all layers; the handshake compares the latter."""


async def check(stand: Stand, *, old: tuple[str, str], new: tuple[str, str]) -> list[Finding]:
    """Replace a pair of workers by one of a new generation while requests come.

    Args:
        stand: with the old pair running.
        old: names of the prefill and the decode worker that go.
        new: names of those that come.
    """
    stand.generations = {**dict.fromkeys(old, "one"), **dict.fromkeys(new, "two")}
    only(stand, {old[0]: ROLE_PREFILL, old[1]: ROLE_DECODE})
    await asyncio.to_thread(stand.await_rotation)
    async with client() as session:
        before = [await metric(session, stand.servers[name].url, _FAILED) for name in old]  # of earlier checks
        rolled = asyncio.Event()
        asking = asyncio.create_task(_ask(session, stand, rolled))
        await asyncio.to_thread(_roll, stand, old, new)
        rolled.set()
        asked, found = await asking
        servers = [stand.servers[name] for name in (*old, *new)]
        crossed = sum(_refusals(server) for server in servers)
        failed = sum([await metric(session, server.url, _FAILED) for server in servers]) - sum(before)
        single = stand.servers[new[1]].url
        await session.post(f"{single}/reset_prefix_cache")
        expected = await at_once(session, single, asked, in_flight=12)
        control = await _control(session, stand.servers[old[0]], stand.servers[new[0]])
    await asyncio.to_thread(stand.stop, *old)
    errors = [one.error for one in (*found, *expected) if one.error]
    same = sum(a.tokens == b.tokens for a, b in zip(expected, found, strict=True))
    claim = "a rollout to another connector configuration under load loses no request and pairs nobody across it"
    return [
        Finding(
            claim=claim,
            holds=not errors and same == len(found) and crossed == 0 and failed == 0,
            figures={
                "requests": len(found),
                "failed": len(errors),
                "same": same,
                "handshakes_refused": crossed,
                "transfers_failed": failed,
            },
            notes=tuple(errors[:10]),
        ),
        control,
    ]


async def _ask(
    session: aiohttp.ClientSession, stand: Stand, rolled: asyncio.Event
) -> tuple[list[Asked], list[Answered]]:
    """Send requests until a while after the rollout."""
    rng = random.Random(51)
    asked: list[Asked] = []
    tasks = []
    end_s = float("inf")
    for one in drawn(_MOST, seed=51):
        if rolled.is_set() and end_s == float("inf"):
            end_s = time.monotonic() + AFTERWARDS_S
        if time.monotonic() > end_s:
            break
        asked.append(one)
        tasks.append(asyncio.create_task(ask(session, stand.url, one)))
        await asyncio.sleep(rng.expovariate(PER_S))
    return asked, list(await asyncio.gather(*tasks))


def _roll(stand: Stand, old: Sequence[str], new: Sequence[str]) -> None:
    connector, arguments = NEW
    stand.start(*(ServerOptions(name=name, connector=connector, arguments=arguments) for name in new))
    # Each generation is without one of its halves for a while, as in a rollout of two Deployments.
    stand.set_roles(**{new[1]: ROLE_DECODE})
    stand.await_rotation(new[1:])
    time.sleep(AFTERWARDS_S / 2)
    stand.set_roles(**{new[0]: ROLE_PREFILL})
    stand.await_rotation(new)
    stand.let_go(old[1])
    time.sleep(AFTERWARDS_S / 2)
    stand.let_go(old[0])
    stand.say("the old workers have let go of all requests")


async def _control(session: aiohttp.ClientSession, old: VLLMServer, new: VLLMServer) -> Finding:
    """Pair across by hand: the handshake must refuse, and the answer must be computed anew."""
    (asked,) = drawn(1, seed=52)
    expected = await post(session, old.url, asked)
    await session.post(f"{old.url}/reset_prefix_cache")
    leg = await post(session, old.url, asked, max_tokens=1, kv_transfer_params=PREFILL_LEG)
    answer = await post(session, new.url, asked, kv_transfer_params=leg["kv_transfer_params"])
    same = answer["choices"][0]["token_ids"] == expected["choices"][0]["token_ids"]
    refused = _refusals(new)
    return Finding(
        claim="paired across by hand, vLLM's handshake refuses the transfer and the prompt is computed again",
        holds=same and refused > 0,
        figures={"handshakes_refused": refused, "same_answer": float(same)},
    )


def _refusals(server: VLLMServer) -> int:
    return server.log.read_text(errors="replace").count(_MISMATCH)
