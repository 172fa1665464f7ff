"""Every answer is the one that a single worker gives, token by token, while roles flip under load.

Weights and arithmetic are float32, so that no rounding of a batch's composition decides between two tokens: an answer
that differs came from a wrong KV cache.
"""

import asyncio
import time
from collections.abc import Sequence
from dataclasses import dataclass

from e2e.vllm.asking import (
    Answered,
    Asked,
    at_once,
    at_rate,
    drawn,
    prompt_tokens_by_source,
    reset_prefix_cache,
)
from e2e.vllm.finding import Finding
from e2e.vllm.stand import Stand, client
from swingpool_control.names import ROLE_DECODE, ROLE_PREFILL

TRANSFERRED_LEAST = 0.95
"""Share of all prompt tokens that came to their decode worker by transfer: a flip may leave one worker a request."""
COMPUTED_MOST = 1.1
"""Prompt tokens computed for each asked: each prompt once, on its prefill worker, and the last token of each again."""

_CYCLE = (("prefill", "decode", "decode"), ("prefill", "prefill", "decode"), ("decode", "prefill", "decode"))
_TURNS = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Size:
    """How much is asked."""

    requests: int
    per_s: float
    flips: int


FULL = Size(requests=500, per_s=5.0, flips=20)
QUICK = Size(requests=80, per_s=4.0, flips=6)


def roles(step: int, workers: Sequence[str]) -> dict[str, str]:
    """Return the roles of three workers at a step; from one to the next exactly one of them flips.

    Both roles are always there, and every worker has both in turn.
    """
    # Two steps flip one worker each; then the same with the workers' parts changed.
    order = [ROLE_PREFILL, ROLE_DECODE, ROLE_DECODE]
    for number in range(step):
        index = (number // 2 + (1 if number % 2 == 0 else 0)) % len(workers)
        order[index] = ROLE_DECODE if order[index] == ROLE_PREFILL else ROLE_PREFILL
    return dict(zip(workers, order, strict=True))


async def check(stand: Stand, size: Size, workers: Sequence[str]) -> list[Finding]:
    """Ask one worker alone, then the router; compare."""
    requests = drawn(size.requests, seed=7)
    async with client() as session:
        stand.say(f"asking one worker alone: {size.requests} requests")
        single = await at_once(session, stand.servers[workers[0]].url, requests, in_flight=12)
        for name in workers:
            await reset_prefix_cache(session, stand.servers[name].url)
        stand.set_roles(**roles(0, workers))
        stand.await_rotation(workers)
        before = [await prompt_tokens_by_source(session, stand.servers[name].url) for name in workers]
        decided = stand.decisions()
        stand.flips = 0
        stand.say(f"asking the router, {size.per_s:g} requests/s, while roles flip")
        begin_s = time.monotonic()
        flipping = asyncio.create_task(_flip(stand, size, workers))
        routed = await at_rate(session, stand.url, requests, per_s=size.per_s, seed=7)
        seconds = time.monotonic() - begin_s
        flipping.cancel()
        after = [await prompt_tokens_by_source(session, stand.servers[name].url) for name in workers]
    grown = {
        source: sum(b.get(source, 0.0) - a.get(source, 0.0) for a, b in zip(before, after, strict=True))
        for source in {key for one in after for key in one}
    }
    kinds = {kind: count - decided.get(kind, 0.0) for kind, count in stand.decisions().items()}
    return [
        _exactness(requests, single, routed, flips=stand.flips, least=size.flips, seconds=seconds),
        _sources(requests, grown, kinds),
    ]


async def _flip(stand: Stand, size: Size, workers: Sequence[str]) -> None:
    every_s = size.requests / size.per_s / (size.flips * 1.2 + 1)
    step = 0
    while True:
        await asyncio.sleep(every_s)
        step += 1
        stand.set_roles(**roles(step, workers))


def _exactness(
    requests: Sequence[Asked],
    single: Sequence[Answered],
    routed: Sequence[Answered],
    *,
    flips: int,
    least: int,
    seconds: float,
) -> Finding:
    failed = [one for one in (*single, *routed) if one.error]
    different = [
        (a, b) for a, b in zip(single, routed, strict=True) if not a.error and not b.error and a.tokens != b.tokens
    ]
    notes = [f"request {one.number} failed: {one.error}" for one in failed[:10]]
    for alone, through in different[:10]:
        at = next(i for i, (x, y) in enumerate(zip(alone.tokens, through.tokens, strict=True)) if x != y)
        asked = requests[alone.number]
        notes.append(
            f"request {alone.number} ({len(asked.prompt)} words, chat {asked.chat}) differs from token {at} on: "
            f"{alone.tokens[at : at + 4]} alone, {through.tokens[at : at + 4]} routed"
        )
    return Finding(
        claim=f"answers are token-exact with a single worker's while roles flip at least {least} times; none fails",
        holds=not failed and not different and flips >= least,
        figures={
            "requests": len(routed),
            "failed": len(failed),
            "different": len(different),
            "flips": flips,
            "seconds": seconds,
            "tokens": sum(len(one.tokens) for one in routed),
            "slowest_s": max(one.seconds for one in routed),
        },
        notes=tuple(notes),
    )


def _sources(requests: Sequence[Asked], grown: dict[str, float], kinds: dict[str, float]) -> Finding:
    asked = sum(len(one.prompt) for one in requests)
    share = grown.get("external_kv_transfer", 0.0) / asked
    computed = grown.get("local_compute", 0.0) / asked
    return Finding(
        claim="the prompts' tokens came to their decode workers by transfer, not by computing them again",
        holds=share >= TRANSFERRED_LEAST and computed <= COMPUTED_MOST,
        figures={
            "prompt_tokens": asked,
            "transferred_share": share,
            "computed_per_token_asked": computed,
            **{f"{source}_tokens": value for source, value in grown.items()},
            **{f"{kind}_requests": count for kind, count in kinds.items()},
        },
    )
