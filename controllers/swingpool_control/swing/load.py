"""How loaded each role is over the next seconds, for any assignment of workers to roles. 1 is as much as they can do.

Prompts that wait in the router, and those that arrive, go to whichever worker is free first. So what one worker holds
beyond its share is that worker's trouble, and no other worker's: a hot worker does not make its role look short, and a
worker that joins does not take over what waits on others.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from swingpool_control import names
from swingpool_control.sizing.capacity import Capacity

HORIZON_S = 5.0
"""How far ahead loads are predicted: about what it takes until a flip has worked."""

HOT = 1.5
"""Times what half of the workers of its role hold, in shares of their capacities, that one worker's sequences count at
most, unless it is within its capacity: more on one worker is skew, not load."""

STARVED = 1e6
"""Load of a role that is asked for something and has no worker."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Seat:
    """One worker that serves, or will in a moment."""

    uid: str
    role: str
    """The role it has, or is changing to."""
    movable: bool
    """Whether it may be given the other role now."""
    held: int
    """Requests that it holds."""
    capacity: Capacity
    """What it does within the objectives."""
    waiting_tokens: float
    """Prompt tokens that were sent to it and are not computed yet."""
    sequences: float
    """Sequences that it generates tokens for."""
    tokens_per_s: float
    """Tokens that it generates for them, by the performance model."""
    kv_tokens: float
    """KV cache that it holds, in tokens; 0 where it does not tell."""
    blocked: bool = False
    """Whether it computes nothing until others have fetched what it computed; then nothing counts as waiting for it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """What is asked of both roles by one observation, beside what workers hold."""

    prompt_tokens_per_s: float
    """Prompt tokens that arrive and must be computed; also those that decode workers compute while prefill is short."""
    queued_tokens: float
    """Prompt tokens that wait in the router for whichever worker is free first."""
    output_tokens_per_s: float
    """Tokens per second that are generated, or that arriving requests ask for if that is more."""
    sequences: float
    """Requests that generate or are about to, but for what a hot worker holds beyond others (`counted_sequences`)."""
    kv_tokens: float
    """KV cache that they hold."""
    growth_per_s: float
    """Sequences per second by which decode grows (`growth`); 0 or more."""
    ttft_s: float
    """How long a prompt may wait."""
    cached_share: float = 0.0
    """Share of prompt tokens found in prefix caches, 0-1."""
    turned: bool = False
    """Whether what arrives has just changed by more than chance explains."""


def load(role: str, seats: Sequence[Seat], asked: Asked) -> float:
    """Return the load of a role that is served by these seats; more seats never raise it, more asked never lowers it.

    Args:
        role: prefill or decode.
        seats: the workers of the role.
        asked: what is asked.
    """
    return prefill_load(seats, asked) if role == names.ROLE_PREFILL else decode_load(seats, asked)


def prefill_load(seats: Sequence[Seat], asked: Asked) -> float:
    """Return prompt tokens over those that are computed, counting among them a backlog that would make prompts late.

    Of what waits only that counts which the next prompt would wait for too long for, and it shall be worked off within
    the horizon: a clump of prompts that passes by itself is no shortage.
    """
    rate = sum(seat.capacity.prefill_tokens_per_s for seat in seats)
    if rate <= 0:
        return STARVED if asked.prompt_tokens_per_s + asked.queued_tokens > 0 else 0.0
    holding = [(seat.waiting_tokens, seat.capacity.prefill_tokens_per_s) for seat in seats]
    wait_s = _level(holding, asked.queued_tokens)
    return asked.prompt_tokens_per_s / rate + max(0.0, wait_s - asked.ttft_s) / HORIZON_S


def decode_load(seats: Sequence[Seat], asked: Asked) -> float:
    """Return the greatest of tokens, sequences and KV cache asked over what the workers do within the objectives.

    What a worker holds that leaves the role stays work of the role: it is generated to its end, wherever.
    """
    coming = asked.sequences + HORIZON_S * asked.growth_per_s
    able = sum(seat.capacity.decode_sequences for seat in seats)
    if able <= 0:
        return STARVED if coming + asked.output_tokens_per_s + asked.kv_tokens > 0 else 0.0
    rate = sum(seat.capacity.decode_tokens_per_s for seat in seats)
    room = sum(seat.capacity.kv_tokens for seat in seats)
    return max(asked.output_tokens_per_s / max(rate, 1e-9), coming / able, asked.kv_tokens / max(room, 1e-9))


def counted_sequences(seats: Sequence[Seat]) -> float:
    """Return the sequences that decode workers hold, less what a hot worker holds beyond what others do."""
    fills = sorted(seat.sequences / seat.capacity.decode_sequences for seat in seats)
    if not fills:
        return 0.0
    most = max(1.0, HOT * fills[(len(fills) - 1) // 2])
    return sum(min(seat.sequences, most * seat.capacity.decode_sequences) for seat in seats)


def own_load(role: str, seat: Seat, asked: Asked) -> float:
    """Return how loaded one worker is by what it holds alone: skew shows here and not in `load`."""
    able = seat.capacity
    if role == names.ROLE_PREFILL:
        return seat.waiting_tokens / max(able.prefill_tokens_per_s * asked.ttft_s, 1e-9)
    return max(seat.sequences / able.decode_sequences, seat.kv_tokens / max(able.kv_tokens, 1e-9))


def late(x: float) -> float:
    """Return the share of requests that are expected to be late at a load, per role; beyond 1 it goes on to rise.

    Below a load of 1 it falls off as the tail of a queue's waiting time does, exponentially in the room that is left.
    Beyond, it rises in a straight line: convex all along, so that the best split is one that no single move betters,
    and so that more demand for a role never argues for fewer workers in it.
    """
    return math.exp(_STEEP * (x - 1.0)) if x <= 1.0 else 1.0 + _STEEP * (x - 1.0)


_STEEP = 8.0
"""At a load of 0.8 a fifth are late, at 0.6 a twenty-fifth."""


def _level(workers: Sequence[tuple[float, float]], tokens: float) -> float:
    """Return the seconds after which the next prompt begins, once so many tokens have gone to whoever is free first.

    Args:
        workers: tokens that each holds, and tokens per second that it computes.
        tokens: what is poured over them.
    """
    ordered = sorted((held / rate, rate) for held, rate in workers if rate > 0)
    level, together = ordered[0][0], 0.0
    for busy_s, rate in ordered:
        needed = (busy_s - level) * together
        if tokens <= needed:
            break
        tokens -= needed
        level, together = busy_s, together + rate
    return level + (tokens / together if together > 0 else 0.0)
