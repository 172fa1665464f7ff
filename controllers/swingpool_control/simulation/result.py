"""What a simulation found, gathered as requests end, in memory that does not grow with them."""

from dataclasses import dataclass

from swingpool_control import names
from swingpool_control.api.status import FlipRecord
from swingpool_control.api.v1alpha1 import InferenceClusterSpec
from swingpool_control.observation import PERCENTILES
from swingpool_control.simulation.gaps import Gaps
from swingpool_control.simulation.histogram import Histogram
from swingpool_control.simulation.meter import Meter
from swingpool_control.simulation.objectives import Limit, good_s, limits
from swingpool_control.simulation.outcome import Outcome
from swingpool_control.simulation.pods import Spent
from swingpool_control.simulation.series import Series, Stay, Window
from swingpool_control.simulation.spread import Spread
from swingpool_control.simulation.tariff import Steps
from swingpool_control.simulation.traffic import Arrival


@dataclass(frozen=True, slots=True, kw_only=True)
class Latency:
    """A latency over all values, seconds; None where there is none."""

    mean_s: float | None
    p50_s: float | None
    p90_s: float | None
    p95_s: float | None
    p99_s: float | None
    largest_s: float | None
    count: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Attained:
    """One objective and how far it was met."""

    metric: str
    percentile: str
    limit_s: float
    share: float | None
    """Share of all values that lay within the limit; a request without a first token counts as one that did not."""
    holds: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class FlipSummary:
    """One change of role."""

    worker: str
    from_role: str
    to_role: str
    decided_at: str
    outcome: str
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """Everything that a simulation found."""

    policy: str
    finished: bool
    """False if it was broken off: then it holds what had happened until then."""
    simulated_s: float
    requests: int
    completed: int
    refused: int
    failed: int
    attainment: float | None
    """Share of all ended requests that met both objectives: TTFT, and its own mean ITL."""
    goodput_per_s: float | None
    """Requests per second that did, over the time in which requests arrived."""
    objectives: tuple[Attained, ...]
    ttft: Latency
    itl: Latency
    e2e: Latency
    accelerator_hours: float
    cost: float | None
    """Money; None if not all pools have a price."""
    flips_to_prefill: int
    flips_to_decode: int
    flips: tuple[FlipSummary, ...]
    """Oldest first."""
    starts: int
    preemptions: int
    transfers: int
    transfers_failed: int
    crashes: int
    energy_kwh: float | None = None
    """What workers drew; None if that is not known of all pools."""
    energy_cost: float | None = None
    """Money for it, beside `cost`; None if no price of power was given."""
    carbon_kg: float | None = None
    """CO2 that it stands for; None if no intensity was given."""
    windows: tuple[Window, ...] = ()
    """What happened over time."""
    stays: tuple[Stay, ...] = ()
    """Every worker in every state that it had."""


class Gathering:
    """Counts what happens, as it is told of it.

    Args:
        spec: the cluster's.
        prices: of a worker and hour by pool, over time; None where it has no price.
        meter: what workers draw.
        itl_spread: what times between tokens are multiplied with, each factor as likely as the others; empty for as
            they come out.
    """

    def __init__(
        self,
        spec: InferenceClusterSpec,
        *,
        prices: dict[str, Steps | None],
        meter: Meter,
        itl_spread: tuple[float, ...] = (),
    ) -> None:
        self.meter = meter
        self._spread = Spread(itl_spread) if itl_spread else None
        self._limits = limits(spec.objectives)
        self._good_ttft_s = good_s(spec.objectives.ttft)
        self._good_itl_s = good_s(spec.objectives.itl)
        self._priced = None not in prices.values()
        self._ends = {"completed": 0, "refused": 0, "failed": 0}
        self.ended = 0
        """Requests that have ended."""
        self._good = 0
        self._e2e = Histogram()
        self.series = Series(prices, powered=meter.known)
        self._flips: dict[tuple[str, str], FlipRecord] = {}
        self._flips_to = {names.ROLE_PREFILL: 0, names.ROLE_DECODE: 0}
        self._itl_limits_s = tuple(limit.limit_s for limit in self._limits if limit.metric == "itl")
        self.gaps = Gaps(self._itl_limits_s)
        """Times between tokens."""
        self._ttft_limits_s = tuple(limit.limit_s for limit in self._limits if limit.metric == "ttft")
        self._ttft_within = [0] * len(self._ttft_limits_s)
        self.transfers = 0
        self.transfers_failed = 0
        self.crashes = 0
        self.arrived = 0
        self._last_arrival_s = 0.0

    def arrival(self, arrival: Arrival) -> None:
        """Count a request that arrived."""
        self.arrived += 1
        self._last_arrival_s = arrival.at_s
        self.series.arrived(arrival)

    def take_gaps(self, *, now_s: float) -> Histogram:
        """Return the times between tokens that were counted since the last call."""
        taken = self.gaps.take()
        if self._spread:
            taken = self._spread.over(taken)
        self.series.gaps(taken, now_s=now_s)
        return taken

    def request(self, outcome: Outcome) -> None:
        """Count a request that ended."""
        self._ends[outcome.result] += 1
        self.ended += 1
        ttft_s, itl_s = outcome.ttft_s, outcome.mean_itl_s
        if ttft_s is not None:
            for index, limit_s in enumerate(self._ttft_limits_s):
                if ttft_s <= limit_s:
                    self._ttft_within[index] += 1
        good = False
        if outcome.result == "completed":
            self._e2e.add(outcome.end_s - outcome.arrival.at_s)
            good = (ttft_s or 0.0) <= self._good_ttft_s and (itl_s or 0.0) <= self._good_itl_s
            self._good += good
        self.series.ended(outcome, good=good)

    def flips(self, records: tuple[FlipRecord, ...]) -> None:
        """Take over the flips that are known now."""
        for record in records:
            key = (record.worker, record.decided_at)
            if key not in self._flips:
                self._flips_to[record.to] += 1
            self._flips[key] = record

    def result(self, *, policy: str, finished: bool, now_s: float, spent: Spent, starts: int) -> Result:
        """Return what was found up to now."""
        self.take_gaps(now_s=now_s)
        itl = self.series.itl()
        # TTFT's limits come before ITL's.
        itl_within = [itl.at_most(limit_s) for limit_s in self._itl_limits_s] if self._spread else self.gaps.within
        within = (*self._ttft_within, *itl_within)
        ended = self.ended
        return Result(
            policy=policy,
            finished=finished,
            simulated_s=now_s,
            requests=self.arrived,
            completed=self._ends["completed"],
            refused=self._ends["refused"],
            failed=self._ends["failed"],
            attainment=self._good / ended if ended else None,
            goodput_per_s=self._good / self._last_arrival_s if self._last_arrival_s > 0 else None,
            objectives=tuple(
                _attained(limit, count, ended if limit.metric == "ttft" else itl.count)
                for limit, count in zip(self._limits, within, strict=True)
            ),
            ttft=_latency(self.series.ttft()),
            itl=_latency(itl),
            e2e=_latency(self._e2e),
            accelerator_hours=spent.accelerator_s / 3600,
            cost=spent.money if self._priced else None,
            flips_to_prefill=self._flips_to[names.ROLE_PREFILL],
            flips_to_decode=self._flips_to[names.ROLE_DECODE],
            flips=tuple(_flip(record) for record in sorted(self._flips.values(), key=lambda one: one.decided_at)),
            starts=starts,
            preemptions=spent.preemptions,
            transfers=self.transfers,
            transfers_failed=self.transfers_failed,
            crashes=self.crashes,
            energy_kwh=self.meter.energy_kwh,
            energy_cost=self.meter.cost,
            carbon_kg=self.meter.carbon_kg,
            windows=self.series.windows(now_s=now_s),
            stays=self.series.stays(now_s=now_s),
        )


def _attained(limit: Limit, within: int, total: int) -> Attained:
    share = within / total if total else None
    return Attained(
        metric=limit.metric,
        percentile=limit.percentile,
        limit_s=limit.limit_s,
        share=share,
        holds=share is not None and share >= limit.share,
    )


def _latency(values: Histogram) -> Latency:
    p50, p90, p95, p99 = values.percentiles(PERCENTILES.values())
    return Latency(
        mean_s=values.mean,
        p50_s=p50,
        p90_s=p90,
        p95_s=p95,
        p99_s=p99,
        largest_s=values.largest if values.count else None,
        count=values.count,
    )


def _flip(record: FlipRecord) -> FlipSummary:
    return FlipSummary(
        worker=record.worker,
        from_role=record.from_,
        to_role=record.to,
        decided_at=record.decided_at,
        outcome=record.outcome,
        reason=record.reason,
    )
