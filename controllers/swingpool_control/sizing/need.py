"""What both roles need over the next minutes, and whether a number of workers covers it."""

from collections.abc import Mapping
from dataclasses import dataclass

from swingpool_control import names
from swingpool_control.api.v1alpha1 import PoolRole
from swingpool_control.sizing.capacity import Capacity
from swingpool_control.sizing.demand import STARVED, UTILIZATION, Demand
from swingpool_control.sizing.pools import PoolFacts

BACKLOG_S = 30.0
"""Time in which waiting prompts shall be worked off beside what arrives."""

DECODE_UTILIZATION = 0.9
"""Share of its token rate that decode is loaded to; its batches breathe less than prefill's queue."""

ROLES = (names.ROLE_PREFILL, names.ROLE_DECODE)


@dataclass(frozen=True, slots=True, kw_only=True)
class Need:
    """What each role must be able to do; each entry of a tuple is one figure that workers add up to."""

    prefill: tuple[float, ...]
    """Prompt tokens per second."""
    decode: tuple[float, ...]
    """Generated tokens per second, sequences at once, KV tokens."""

    @classmethod
    def nothing(cls) -> "Need":
        """Return the need of a cluster without requests: one worker in each role."""
        return cls(prefill=(0.0,), decode=(0.0, 0.0, 0.0))

    def of(self, role: str) -> tuple[float, ...]:
        """Return what one role must be able to do."""
        return self.prefill if role == names.ROLE_PREFILL else self.decode

    def scaled(self, factor: float) -> "Need":
        """Return the same need, larger by a factor."""
        return Need(
            prefill=tuple(value * factor for value in self.prefill),
            decode=tuple(value * factor for value in self.decode),
        )


def of(demand: Demand, *, itl_s: float) -> Need:
    """Return the need behind a demand.

    Args:
        demand: what is asked now.
        itl_s: mean ITL to reach.
    """
    tokens_per_s = max(demand.generated_tokens_per_s, demand.requests_per_s * demand.shape.osl_tokens)
    return Need(
        prefill=((demand.prompt_tokens_per_s + demand.pending_tokens / BACKLOG_S) / UTILIZATION,),
        decode=(
            tokens_per_s / DECODE_UTILIZATION,
            max(demand.sequences, tokens_per_s * itl_s),
            demand.kv_tokens,
        ),
    )


def offer(capacity: Capacity, role: str) -> tuple[float, ...]:
    """Return what one worker adds to a role, figure by figure as in `Need`."""
    if role == names.ROLE_PREFILL:
        return (capacity.prefill_tokens_per_s,)
    return (capacity.decode_tokens_per_s, capacity.decode_sequences, capacity.kv_tokens)


class Cover:
    """Workers put into roles one by one, and how far they cover a need."""

    def __init__(self, need: Need) -> None:
        self._need = need
        self._have: dict[str, tuple[float, ...]] = {role: (0.0,) * len(need.of(role)) for role in ROLES}
        self.workers: dict[str, int] = dict.fromkeys(ROLES, 0)

    def add(self, role: str, capacity: Capacity, count: int = 1) -> None:
        """Put workers into a role."""
        self.workers[role] += count
        added = offer(capacity, role)
        self._have[role] = tuple(have + count * more for have, more in zip(self._have[role], added, strict=True))

    def pressure(self, role: str) -> float:
        """Return need over what the role's workers do; without any worker a role is starved, whatever it needs."""
        if self.workers[role] == 0:
            return STARVED
        return max(
            need / have if have > 0 else (STARVED if need > 0 else 0.0)
            for need, have in zip(self._need.of(role), self._have[role], strict=True)
        )

    def neediest(self) -> str:
        """Return the role under the higher pressure."""
        return max(ROLES, key=self.pressure)

    @property
    def complete(self) -> bool:
        """Whether both roles have a worker and all that they need."""
        return all(self.pressure(role) <= 1.0 for role in ROLES)


def spread(pools: tuple[PoolFacts, ...], counts: Mapping[str, int], need: Need) -> Cover:
    """Put so many workers of each pool into roles as well as it goes: swing workers where the pressure is higher.

    Args:
        pools: facts of all pools.
        counts: workers by pool.
        need: what they shall cover.
    """
    cover = Cover(need)
    for pool in pools:
        if pool.role is not PoolRole.SWING:
            role = names.ROLE_PREFILL if pool.role is PoolRole.PREFILL else names.ROLE_DECODE
            cover.add(role, pool.capacity, pool.effective(counts[pool.name]))
    for pool in pools:
        if pool.role is PoolRole.SWING:
            for _ in range(pool.effective(counts[pool.name])):
                cover.add(cover.neediest(), pool.capacity)
    return cover
