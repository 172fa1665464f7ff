"""KV cache that nobody fetches is freed when its lease ends, and a worker without free blocks serves all the same."""

import asyncio
import time
from typing import Any

import aiohttp

from e2e.vllm.asking import PREFILL_LEG, Asked, at_once, drawn
from e2e.vllm.finding import Finding
from e2e.vllm.stand import Stand, client

LEASE_S = 6
BLOCKS = 48
"""Room for 1,536 tokens: five prompts of 300."""
LONGEST = 1024
"""Context of the small worker: vLLM starts only if a whole one fits in its blocks."""
_PROMPT = (280, 300)
_SLACK_S = 20.0
_POLL_S = 0.1


async def check(stand: Stand, *, small: str, other: str) -> list[Finding]:
    """Provoke the end of a lease and a lack of blocks on a small worker.

    Args:
        stand: with both running.
        small: has BLOCKS blocks and a lease of LEASE_S.
        other: has plenty.
    """
    async with client() as session:
        return [
            await _lease(session, stand.servers[small].url, stand.servers[other].url),
            await _no_blocks_for_generation(session, stand.servers[small].url, stand.servers[other].url),
            await _no_blocks_for_prefill(session, stand.servers[small].url),
        ]


async def _lease(session: aiohttp.ClientSession, small: str, other: str) -> Finding:
    (asked,) = drawn(1, seed=41, prompt_tokens=_PROMPT)
    expected = await post(session, other, asked)
    first = await post(session, small, asked, max_tokens=1, kv_transfer_params=PREFILL_LEG)
    begin_s = time.monotonic()
    usage = await metric(session, small, "vllm:kv_cache_usage_perc")
    for _ in range(int((LEASE_S + _SLACK_S) / _POLL_S)):
        if await metric(session, small, "vllm:kv_cache_usage_perc") == 0:
            break
        await asyncio.sleep(_POLL_S)
    freed_s = time.monotonic() - begin_s
    expired = await metric(session, small, "vllm:nixl_num_kv_expired_reqs_total")
    await session.post(f"{other}/reset_prefix_cache")
    late = await post(session, other, asked, kv_transfer_params=first["kv_transfer_params"])
    same = late["choices"][0]["token_ids"] == expected["choices"][0]["token_ids"]
    return Finding(
        claim="KV cache that nobody fetches is freed when its lease ends; who comes late computes the prompt itself",
        holds=usage > 0 and LEASE_S - 1 <= freed_s <= LEASE_S + _SLACK_S and expired >= 1 and same,
        figures={"lease_s": LEASE_S, "freed_s": freed_s, "expired": expired, "same_answer": float(same)},
    )


async def _no_blocks_for_generation(session: aiohttp.ClientSession, small: str, other: str) -> Finding:
    requests = drawn(12, seed=42, prompt_tokens=(90, 110), output_tokens=(140, 160))
    expected = await at_once(session, other, requests, in_flight=12)
    found = await at_once(session, small, requests, in_flight=12)
    preemptions = await metric(session, small, "vllm:num_preemptions_total")
    errors = [one.error for one in (*expected, *found) if one.error]
    same = sum(a.tokens == b.tokens for a, b in zip(expected, found, strict=True))
    return Finding(
        claim="a worker whose blocks run out amid generation preempts, and serves all of it token-exact",
        holds=not errors and same == len(requests) and preemptions > 0,
        figures={"requests": len(requests), "same": same, "preemptions": preemptions},
        notes=tuple(errors),
    )


async def _no_blocks_for_prefill(session: aiohttp.ClientSession, small: str) -> Finding:
    """Fill a prefill worker with prompts that are never fetched: further ones are computed once leases end."""
    requests = drawn(12, seed=43, prompt_tokens=_PROMPT)
    begin_s = time.monotonic()
    answers = [await post(session, small, asked, max_tokens=1, kv_transfer_params=PREFILL_LEG) for asked in requests]
    kept = sum(bool(answer.get("kv_transfer_params")) for answer in answers)
    return Finding(
        claim="a prefill worker whose blocks all wait to be fetched computes on as soon as leases end",
        holds=kept == len(requests) and all("choices" in answer for answer in answers),
        figures={"requests": len(requests), "kept": kept, "seconds": time.monotonic() - begin_s},
    )


async def post(session: aiohttp.ClientSession, url: str, asked: Asked, **more: object) -> dict[str, Any]:
    """Return a request's answer, not streamed, with further fields in its body."""
    body = asked.body() | {"stream": False} | more
    async with session.post(url + asked.path, json=body) as response:
        response.raise_for_status()
        answer: dict[str, Any] = await response.json()
        return answer


async def metric(session: aiohttp.ClientSession, url: str, name: str) -> float:
    """Return a server's metric, summed over its series."""
    async with session.get(f"{url}/metrics") as response:
        lines = (await response.text()).splitlines()
    return sum(float(line.rpartition(" ")[2]) for line in lines if line.startswith(name + "{"))
