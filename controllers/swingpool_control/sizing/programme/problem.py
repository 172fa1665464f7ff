"""What the sizing programme is asked: pools with what their workers do and cost, what is needed, what may not break.

Everything that was learnt elsewhere comes in as a figure: what a worker sustains (the queueing model, `rates`), prices,
watts, intensities of sites. The programme only chooses numbers.
"""

import math
from bisect import bisect_right
from collections.abc import Mapping
from dataclasses import dataclass, field

from swingpool_control import names

ROLES = (names.ROLE_PREFILL, names.ROLE_DECODE)

ALL_PRODUCTS = "*"
"""In a budget of accelerators: all products together."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rates:
    """Requests per second that one worker adds to a role within the objectives, by how many workers the role has.

    More workers are loaded more closely: their queue is one queue. Hence steps: from `workers` of the role on, each
    adds `requests_per_s`. Workers of all pools count, since one router serves them all.

    Raises:
        ValueError: no steps, or not in rising order, or a rate that falls, is negative or not finite.
    """

    steps: tuple[tuple[int, float], ...]
    """`(workers, requests_per_s)`; the first for 1 worker."""

    def __post_init__(self) -> None:
        """Refuse steps that are out of order: the programme relies on their rising."""
        if not self.steps or self.steps[0][0] != 1:
            raise ValueError("rates need a first step for 1 worker")
        if any(not math.isfinite(rate) or rate < 0 for _, rate in self.steps):
            raise ValueError("rates must be finite numbers, zero or more")
        for (few, low), (many, high) in zip(self.steps, self.steps[1:], strict=False):
            if many <= few or high < low:
                raise ValueError(f"rates must rise with the workers: {many} workers at {high}, {few} at {low}")

    def at(self, workers: int) -> float:
        """Return what one worker adds where the role has so many; 0 for none."""
        index = bisect_right(self.steps, (workers, math.inf))
        return self.steps[index - 1][1] if index else 0.0

    @property
    def best(self) -> float:
        """What one worker adds at most."""
        return self.steps[-1][1]


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolOption:
    """One pool, as the programme may use it.

    Raises:
        ValueError: a number is out of its range.
    """

    name: str
    rates: Mapping[str, Rates]
    """By role; a role that its workers cannot have is missing. Both roles: a swing pool."""
    fewest: int
    most: int
    price_per_hour: float = 0.0
    """Of one worker, in the user's currency."""
    surcharge: float = 0.0
    """What a worker adds to the objective beyond its price, power and carbon, to decide between equals."""
    product: str | None = None
    accelerators: int = 1
    """Of one worker."""
    watts: Mapping[str, float] = field(default_factory=dict)
    """Of one loaded worker, by role; what is missing draws nothing."""
    carbon_g_per_kwh: float = 0.0
    """Intensity of the power where the pool stands."""
    kv_tokens: float = math.inf
    """KV cache of one worker that a plan may fill."""
    site: str = ""
    idle: int = 0
    """Workers among the pool's that are paid for and serve nothing: no node takes them, or they cannot start."""
    surge: int = 0
    """Workers that a rolling update may add for a while, unless the pool has none."""
    present: int = 0
    """Workers that exist, those that end included: budgets count at least these."""
    blocked: str = ""
    """Why the pool can have no more workers than `most`, where that is not its own limit."""

    def __post_init__(self) -> None:
        """Refuse a pool that no plan could respect."""
        if not 0 <= self.fewest <= self.most:
            raise ValueError(f"pool {self.name}: fewest {self.fewest} and most {self.most} are out of order")
        if not 0 <= self.idle <= self.fewest:
            raise ValueError(f"pool {self.name}: {self.idle} idle workers, but the fewest are {self.fewest}")
        if unknown := set(self.rates) - set(ROLES):
            raise ValueError(f"pool {self.name}: no such role: {', '.join(sorted(unknown))}")
        for value in (self.price_per_hour, self.surcharge, self.carbon_g_per_kwh, *self.watts.values()):
            if not math.isfinite(value) or value < 0:
                raise ValueError(f"pool {self.name}: price, watts and intensity must be finite, zero or more")

    @property
    def swings(self) -> bool:
        """Whether its workers take both roles."""
        return len(self.rates) == len(ROLES)

    def watts_in(self, role: str) -> float:
        """Return the watts of one loaded worker in a role."""
        return self.watts.get(role, 0.0)

    @property
    def watts_at_most(self) -> float:
        """Watts of one worker, whatever its role: what a budget counts, since roles change without notice."""
        return max(self.watts.values(), default=0.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Link:
    """What KV cache may flow from prefill workers of one site to decode workers of another (or the same).

    Between sites for which no link is given, anything may flow.
    """

    from_site: str
    to_site: str
    bytes_per_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Budgets over all pools. None, or a missing product: no limit."""

    accelerators: Mapping[str, int] = field(default_factory=dict)
    """By product; `ALL_PRODUCTS` is all together."""
    cost_per_hour: float | None = None
    watts: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Weights:
    """What a plan shall have little of: the objective is the weighted sum."""

    cost: float = 1.0
    """Per unit of money per hour."""
    power: float = 0.0
    """Per kilowatt."""
    carbon: float = 0.0
    """Per kilogram of CO2 per hour."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """What is asked of the programme.

    Raises:
        ValueError: no pools, two of one name, or a need that is negative or not finite.
    """

    pools: tuple[PoolOption, ...]
    need: Mapping[str, float]
    """Requests per second that each role must sustain, by role."""
    kv_tokens: float = 0.0
    """Tokens of KV cache that decode workers must hold together."""
    kv_bytes_per_request: float = 0.0
    """KV cache that one request moves from prefill to decode; for links."""
    links: tuple[Link, ...] = ()
    limits: Limits = Limits()
    weights: Weights = Weights()
    spare_worker: bool = False
    """Whether all must hold when any one worker is lost, before any role changes."""

    def __post_init__(self) -> None:
        """Refuse what has no answer."""
        if not self.pools:
            raise ValueError("no pools to plan")
        if len({pool.name for pool in self.pools}) < len(self.pools):
            raise ValueError("two pools have the same name")
        for value in (*(self.need.get(role, 0.0) for role in ROLES), self.kv_tokens, self.kv_bytes_per_request):
            if not math.isfinite(value) or value < 0:
                raise ValueError("a need must be a finite number, zero or more")
