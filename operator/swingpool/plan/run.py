"""Runs a plan: reads the traffic, asks the core, simulates what it proposes, and tries without disaggregation."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from random import Random

from rich.console import Console

from swingpool.simulate.collecting import seldom_collected
from swingpool_control.api.v1alpha1 import InferenceClusterSpec, PoolRole, ReplicaMode, Replicas
from swingpool_control.engine.model import PerformanceModel
from swingpool_control.planning import check, cluster, variations
from swingpool_control.planning.check import Check
from swingpool_control.planning.mix import Asked, Mix, Workers, cost_per_hour, mix
from swingpool_control.planning.stretches import stretches
from swingpool_control.planning.variations import Variation
from swingpool_control.simulation.cluster import Simulation
from swingpool_control.simulation.policies.catalogue import OURS, POLICIES
from swingpool_control.simulation.result import Result
from swingpool_control.simulation.settings import Settings
from swingpool_control.simulation.traffic import Arrival

Arrivals = Callable[[], Iterator[Arrival]]

MOST_AGGREGATED = 6
"""Simulations that look for the fewest workers without disaggregation."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Aggregated:
    """Serving without disaggregation, on one pool's kind of worker."""

    pool: str
    workers: int
    cost_per_hour: float
    result: Result

    @property
    def holds(self) -> bool:
        """Whether every objective was met."""
        return check.holds(self.result)


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """Everything that was found."""

    asked: Asked
    checks: tuple[Check, ...]
    elastic: Check | None
    """The chosen mix, whose swing pools may shrink in quiet times; None if no mix held."""
    aggregated: tuple[Aggregated, ...]
    """What was tried without disaggregation."""
    rates: tuple[Variation, ...]
    others: tuple[Variation, ...]
    """At the median, without one pool, at other prices."""

    @property
    def chosen(self) -> Check | None:
        """The cheapest mix that held; None if none did."""
        return check.best(self.checks)

    @property
    def whole(self) -> Aggregated | None:
        """The cheapest that held without disaggregation; None if none did."""
        held = [one for one in self.aggregated if one.holds]
        return min(held, key=lambda one: one.cost_per_hour, default=None)

    @property
    def worth_it(self) -> bool:
        """Whether disaggregation is cheaper, or the only way to hold the objectives."""
        chosen, whole = self.chosen, self.whole
        if chosen is None:
            return whole is None
        return whole is None or chosen.mix.cost_per_hour < whole.cost_per_hour


class Planner:
    """Makes a plan, and says what it does meanwhile.

    Args:
        spec: pools on offer, objectives, budgets.
        models: by pool.
        arrivals: makes the traffic, anew each time.
        settings: how to simulate.
        console: where to say it.
    """

    def __init__(
        self,
        spec: InferenceClusterSpec,
        models: dict[str, PerformanceModel],
        arrivals: Arrivals,
        *,
        settings: Settings,
        console: Console,
    ) -> None:
        self._spec = spec
        self._models = models
        self._arrivals = arrivals
        self._settings = settings
        self._console = console

    def plan(self) -> Plan:
        """Return the plan.

        Raises:
            PlanError: it cannot be planned.
            SimulationError: it cannot be simulated.
            TrafficError: the traffic cannot be used.
        """
        self._say("reading the traffic")
        asked = Asked(spec=self._spec, models=self._models, stretches=stretches(self._arrivals()))
        self._say(f"sizing for {len(asked.stretches)} stretches of it")
        proposed = mix(asked)
        tried = check.checked(self._spec, proposed, self._simulated)
        chosen = check.best(tried)
        return Plan(
            asked=asked,
            checks=tried,
            elastic=None if chosen is None else self._elastic(chosen),
            aggregated=self._aggregated(proposed if chosen is None else chosen.mix),
            rates=variations.at_rates(asked),
            others=(variations.at_median(asked), *variations.without_each(asked), *variations.at_prices(asked)),
        )

    def _simulated(self, chosen: Mix) -> Result:
        self._say(f"simulating {counts(chosen)}")
        return self._run(cluster.spec(self._spec, chosen, fixed=True), self._of(chosen), OURS.name, None)

    def _elastic(self, held: Check) -> Check | None:
        """Simulate a mix whose swing pools may shrink; None if nothing in it may."""
        elastic = cluster.spec(self._spec, held.mix, fixed=False)
        if all(pool.replicas.min == pool.replicas.max for pool in elastic.pools):
            return None
        self._say(f"simulating {counts(held.mix)}, scaled down in quiet times")
        start = {pool.name: pool.replicas.max for pool in elastic.pools}
        result = self._run(elastic, self._of(held.mix), OURS.name, start)
        return Check(mix=held.mix, result=result, change="scaled down in quiet times")

    def _aggregated(self, against: Mix) -> tuple[Aggregated, ...]:
        """Look for the fewest workers of the kind that the plan has most of, by halving."""
        most_of = max(against.workers, key=lambda one: one.total)
        low, high = 0, 2 * against.total
        tried: list[Aggregated] = []
        workers = max(1, against.total)
        while low < high and len(tried) < MOST_AGGREGATED:
            one = self._whole(most_of.pool, workers)
            tried.append(one)
            low, high = (low, workers) if one.holds else (workers + 1, high)
            workers = (
                (low + high) // 2 if any(each.holds for each in tried) else min(high, workers + max(1, workers // 2))
            )
            if workers in {each.workers for each in tried} or workers < 1:
                break
        return tuple(tried)

    def _whole(self, pool: str, workers: int) -> Aggregated:
        self._say(f"simulating {workers} workers of {pool} without disaggregation")
        origin = next(one for one in self._spec.pools if one.name == pool)
        replicas = Replicas(mode=ReplicaMode.FIXED, count=workers)
        alone = origin.model_copy(update={"role": PoolRole.SWING, "replicas": replicas})
        spec = self._spec.model_copy(update={"pools": (alone,)})
        result = self._run(spec, {pool: self._models[pool]}, "aggregated", None)
        price = cost_per_hour(spec, (_all_swing(pool, workers),))
        return Aggregated(pool=pool, workers=workers, cost_per_hour=price, result=result)

    def _of(self, chosen: Mix) -> dict[str, PerformanceModel]:
        return cluster.models(self._spec, chosen, self._models)

    def _run(
        self,
        spec: InferenceClusterSpec,
        models: dict[str, PerformanceModel],
        policy: str,
        replicas: dict[str, int] | None,
    ) -> Result:
        settings = Settings(
            policy=POLICIES[policy],
            replicas=replicas or {},
            startup_s=self._settings.startup_s,
            prefix_caching=self._settings.prefix_caching,
        )
        failures = Random(0)  # noqa: S311 - nothing fails
        simulation = Simulation(spec, self._arrivals(), settings, failures=failures, known=models)
        with seldom_collected():
            return simulation.run()

    def _say(self, text: str) -> None:
        self._console.print(f"[dim]{text} ...[/dim]", highlight=False)


def counts(chosen: Mix) -> str:
    """Return a mix in words, such as `h200: 2 prefill, 3 decode, 1 swing`."""
    parts = []
    for one in chosen.workers:
        each = [f"{getattr(one, kind)} {kind}" for kind in ("prefill", "decode", "swing") if getattr(one, kind)]
        if each:
            parts.append(f"{one.pool}: {', '.join(each)}")
    return "; ".join(parts) or "no workers"


def _all_swing(pool: str, workers: int) -> Workers:
    return Workers(pool=pool, prefill=0, decode=0, swing=workers, least_swing=workers)
