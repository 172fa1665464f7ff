"""What happened over time: windows that widen as a simulation lasts, and who was in which role when.

Memory grows with neither requests nor time: when there are too many windows, every two become one. Requests count where
they arrived, so that a window tells what its clients got.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final

from swingpool_control import names
from swingpool_control.simulation.histogram import Histogram, merged
from swingpool_control.simulation.outcome import Outcome
from swingpool_control.simulation.pods import Pod
from swingpool_control.simulation.tariff import Steps
from swingpool_control.simulation.traffic import Arrival

MOST_WINDOWS: Final = 720
FIRST_S: Final = 5.0
"""Length of the windows at the begin."""

STARTING: Final = "starting"
ENDING: Final = "ending"
STATES = (names.ROLE_PREFILL, names.ROLE_DECODE, names.ROLE_DRAINING, STARTING, ENDING)
"""A worker at a moment: in its role, not ready yet (it may wait for accelerators), or being deleted."""

SHARES = (0.50, 0.95, 0.99)


@dataclass(frozen=True, slots=True, kw_only=True)
class Window:
    """One stretch of time. Latencies are None where there was nothing to measure."""

    from_s: float
    until_s: float
    arrivals: int
    prompt_tokens: int
    """Of the requests that arrived."""
    output_tokens: int
    """That they asked for."""
    ended: int
    """Of the requests that arrived, those that have ended."""
    good: int
    """Of those, the ones that met both objectives."""
    lost: int
    """Of those, the ones that were refused or failed."""
    ttft_p50_s: float | None
    ttft_p95_s: float | None
    ttft_p99_s: float | None
    ttft_largest_s: float | None
    itl_p50_s: float | None
    """Between tokens that came in the window."""
    itl_p95_s: float | None
    itl_p99_s: float | None
    workers: dict[str, float]
    """Mean number by state."""
    pools: dict[str, float]
    """Mean number of pods by pool, in any state."""
    accelerators: float
    """Mean number that pods hold."""
    cost_per_hour: float | None
    """Money; None if not all pools have a price."""
    watts: float | None
    """Mean that workers draw; None if nobody says what they draw."""
    waiting_requests: float
    """Mean number that wait in the router."""
    waiting_prompt_tokens: float
    """Mean number that are not computed yet, wherever they wait."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Stay:
    """One worker in one state."""

    worker: str
    pool: str
    state: str
    from_s: float
    until_s: float


@dataclass(slots=True)
class _Sums:
    """One window while it is filled."""

    arrivals: int = 0
    prompt_tokens: int = 0
    output_tokens: int = 0
    ended: int = 0
    good: int = 0
    lost: int = 0
    ttft: Histogram = field(default_factory=Histogram)
    itl: Histogram = field(default_factory=Histogram)
    samples: int = 0
    workers: dict[str, int] = field(default_factory=lambda: dict.fromkeys(STATES, 0))
    pools: dict[str, int] = field(default_factory=dict)
    accelerators: int = 0
    cost_per_hour: float = 0.0
    watts: float = 0.0
    waiting_requests: int = 0
    waiting_prompt_tokens: int = 0

    def include(self, other: "_Sums") -> None:
        """Take over what the next window holds."""
        for name in ("arrivals", "prompt_tokens", "output_tokens", "ended", "good", "lost", "samples", "accelerators"):
            setattr(self, name, getattr(self, name) + getattr(other, name))
        for name in ("cost_per_hour", "watts", "waiting_requests", "waiting_prompt_tokens"):
            setattr(self, name, getattr(self, name) + getattr(other, name))
        self.ttft.include(other.ttft)
        self.itl.include(other.itl)
        for mine, others in ((self.workers, other.workers), (self.pools, other.pools)):
            for key, count in others.items():
                mine[key] = mine.get(key, 0) + count


class Series:
    """Gathers both.

    Args:
        prices: of a pod and hour by pool; None where it has no price.
        powered: whether it is known what workers draw.
    """

    def __init__(self, prices: dict[str, Steps | None], *, powered: bool = False) -> None:
        self._prices = prices
        self._priced = None not in prices.values()
        self._powered = powered
        self._pool_names = tuple(prices)
        self._width_s = FIRST_S
        self._windows: list[_Sums] = []
        self._stays: list[Stay] = []
        self._now: dict[str, tuple[str, str, float]] = {}
        """By worker: its pool, its state, and since when."""

    def arrived(self, arrival: Arrival) -> None:
        """Count a request that arrived."""
        window = self._at(arrival.at_s)
        window.arrivals += 1
        window.prompt_tokens += arrival.prompt_tokens
        window.output_tokens += arrival.output_tokens

    def ended(self, outcome: Outcome, *, good: bool) -> None:
        """Count a request that ended."""
        window = self._at(outcome.arrival.at_s)
        window.ended += 1
        window.good += good
        window.lost += outcome.result != "completed"
        if outcome.ttft_s is not None:
            window.ttft.add(outcome.ttft_s)

    def gaps(self, gaps: Histogram, *, now_s: float) -> None:
        """Count times between tokens."""
        self._at(now_s).itl.include(gaps)

    def sample(
        self,
        pods: Iterable[Pod],
        *,
        waiting_requests: int,
        waiting_prompt_tokens: int,
        now_s: float,
        watts: float = 0.0,
    ) -> None:
        """Take a look at all workers, and at what they draw; called at equal intervals."""
        window = self._at(now_s)
        window.samples += 1
        window.watts += watts
        costs = {pool: 0.0 if price is None else price.at(now_s) for pool, price in self._prices.items()}
        for pod in pods:
            name = pod.pool.name
            window.workers[state_of(pod)] += 1
            if pod.name not in self._now:
                self._now[pod.name] = (name, STARTING, pod.created_s)
            window.pools[name] = window.pools.get(name, 0) + 1
            if pod.placed_s is not None:
                window.accelerators += pod.pool.accelerator.count
                window.cost_per_hour += costs[name]
        window.waiting_requests += waiting_requests
        window.waiting_prompt_tokens += waiting_prompt_tokens

    def changed(self, pod: Pod, *, exists: bool, now_s: float) -> None:
        """Note a pod's new state."""
        state = state_of(pod) if exists else ""
        known = self._now.get(pod.name)
        if known is not None and known[1] == state:
            return
        if known is not None and now_s > known[2]:
            pool, before, since_s = known
            self._stays.append(Stay(worker=pod.name, pool=pool, state=before, from_s=since_s, until_s=now_s))
        if known is None and exists and now_s > pod.created_s:
            self._stays.append(
                Stay(worker=pod.name, pool=pod.pool.name, state=STARTING, from_s=pod.created_s, until_s=now_s)
            )
        if exists:
            self._now[pod.name] = (pod.pool.name, state, now_s)
        else:
            self._now.pop(pod.name, None)

    def ttft(self) -> Histogram:
        """Return all times to first token."""
        return merged(window.ttft for window in self._windows)

    def itl(self) -> Histogram:
        """Return all times between tokens."""
        return merged(window.itl for window in self._windows)

    def windows(self, *, now_s: float) -> tuple[Window, ...]:
        """Return the windows up to now."""
        return tuple(self._window(index, sums, now_s) for index, sums in enumerate(self._windows))

    def stays(self, *, now_s: float) -> tuple[Stay, ...]:
        """Return who was what when, by worker's first appearance and time."""
        open_ones = (
            Stay(worker=worker, pool=pool, state=state, from_s=since_s, until_s=now_s)
            for worker, (pool, state, since_s) in self._now.items()
            if now_s > since_s
        )
        return tuple(sorted((*self._stays, *open_ones), key=lambda stay: (stay.from_s, stay.worker)))

    def _at(self, time_s: float) -> _Sums:
        index = int(time_s / self._width_s)
        while index >= MOST_WINDOWS:
            pairs = [self._windows[number : number + 2] for number in range(0, len(self._windows), 2)]
            for pair in pairs:
                if len(pair) == 2:
                    pair[0].include(pair[1])
            self._windows = [pair[0] for pair in pairs]
            self._width_s *= 2
            index = int(time_s / self._width_s)
        while len(self._windows) <= index:
            self._windows.append(_Sums())
        return self._windows[index]

    def _window(self, index: int, sums: _Sums, now_s: float) -> Window:
        samples = max(1, sums.samples)
        from_s = index * self._width_s
        ttft, itl = sums.ttft.percentiles(SHARES), sums.itl.percentiles(SHARES)
        return Window(
            from_s=from_s,
            until_s=max(from_s, min(from_s + self._width_s, now_s)),
            arrivals=sums.arrivals,
            prompt_tokens=sums.prompt_tokens,
            output_tokens=sums.output_tokens,
            ended=sums.ended,
            good=sums.good,
            lost=sums.lost,
            ttft_p50_s=ttft[0],
            ttft_p95_s=ttft[1],
            ttft_p99_s=ttft[2],
            ttft_largest_s=sums.ttft.largest if sums.ttft.count else None,
            itl_p50_s=itl[0],
            itl_p95_s=itl[1],
            itl_p99_s=itl[2],
            workers={state: sums.workers[state] / samples for state in STATES},
            pools={pool: sums.pools.get(pool, 0) / samples for pool in self._pool_names},
            accelerators=sums.accelerators / samples,
            cost_per_hour=sums.cost_per_hour / samples if self._priced else None,
            watts=sums.watts / samples if self._powered else None,
            waiting_requests=sums.waiting_requests / samples,
            waiting_prompt_tokens=sums.waiting_prompt_tokens / samples,
        )


def state_of(pod: Pod) -> str:
    """Return what a worker is now."""
    if pod.deleting:
        return ENDING
    return pod.role if pod.ready else STARTING
