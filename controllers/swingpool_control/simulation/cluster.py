"""The simulation: a cluster, its traffic and its control loops on one timeline."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from functools import partial
from typing import Final

from swingpool_control.api.engine import SchedulingPolicy
from swingpool_control.api.v1alpha1 import InferenceClusterSpec, KVLoadFailurePolicy, Pool, RouterType
from swingpool_control.engine.batching import BatchingEngine
from swingpool_control.engine.linear import LinearModel
from swingpool_control.engine.model import PerformanceModel
from swingpool_control.engine.work import Limits
from swingpool_control.figures import Unknown
from swingpool_control.placement.dispatcher import Dispatcher
from swingpool_control.placement.limits import NO_DEFLECTION
from swingpool_control.placement.of_spec import settings_of
from swingpool_control.placement.parts import Part
from swingpool_control.placement.settings import PlacementSettings
from swingpool_control.simulation.arriving import Arriving, SimulationError
from swingpool_control.simulation.at_once import AtOnce
from swingpool_control.simulation.control import Control
from swingpool_control.simulation.counters import Counters
from swingpool_control.simulation.events import Timeline
from swingpool_control.simulation.fabric import Fabric
from swingpool_control.simulation.meter import Meter
from swingpool_control.simulation.outcome import Outcome
from swingpool_control.simulation.pickers import Pickers
from swingpool_control.simulation.placer import Placer
from swingpool_control.simulation.pods import Pod, Pods, price_of
from swingpool_control.simulation.policies.interface import Deciding, Given, Placing, PolicyError
from swingpool_control.simulation.result import Gathering, Result
from swingpool_control.simulation.router import Router
from swingpool_control.simulation.runner import Hooks, Runner
from swingpool_control.simulation.settings import Settings
from swingpool_control.simulation.spread import Turns
from swingpool_control.simulation.traffic import Arrival, Randomness
from swingpool_control.simulation.trouble import Trouble
from swingpool_control.sizing import models
from swingpool_control.swing.protocol import KV_LEASE_S

__all__ = ["Simulation", "SimulationError"]

STUCK_S: Final = 3 * 3600.0
"""Longer than any answer takes."""


class Simulation:
    """One cluster under one load, from its first request to the end of its last.

    Args:
        spec: the cluster's spec.
        arrivals: requests in the order of their arrival; taken one by one.
        settings: how to simulate.
        failures: seeded generator of what goes wrong.
        profile_text: text of the profile that `spec.profile.configMap` names; None if it names none.
        known: performance model of each pool, instead of what the spec's profile says; None for that.
        ended: told of each request when it ends; None for nobody.
        runners: makes a pool's workers, another kind of them than vLLM's; None for those.

    Raises:
        SimulationError: the router is external, a pool has no performance profile, or replicas name no pool.
    """

    def __init__(
        self,
        spec: InferenceClusterSpec,
        arrivals: Iterable[Arrival],
        settings: Settings,
        *,
        failures: Randomness,
        profile_text: str | None = None,
        known: Mapping[str, PerformanceModel] | None = None,
        ended: Callable[[Outcome], None] | None = None,
        runners: Callable[[Timeline, Pool, Hooks], Runner] | None = None,
    ) -> None:
        self._spec = spec
        self._settings = settings
        self._failures = failures
        self._told = ended
        self._models = _starting_in(_models(spec, profile_text) if known is None else dict(known), settings.startup_s)
        _check(spec, settings)
        known_powers = models.powers(spec, config_map_text=profile_text) if known is None else {}
        powers = {**known_powers, **settings.tariff.draws}
        self._meter = Meter(powers, settings.tariff, [pool.name for pool in spec.pools])
        self._gathering = Gathering(
            spec,
            prices={pool.name: price_of(pool, settings) for pool in spec.pools},
            meter=self._meter,
            itl_spread=_spreads(self._models.values(), lambda model: model.itl_spread),
        )
        self._timeline = Timeline()
        self._went_on_s = 0.0
        """When a request came or ended last."""
        self._counters = Counters()
        policy = _policy(spec, self._models, settings)
        self._router = Pickers([self._picker(policy.placing, number) for number in range(_pickers(spec))])
        fabric = Fabric(settings.fabric_links)
        hooks = Hooks(
            gaps=self._gathering.gaps,
            transfer=self._transfer,
            fabric=fabric,
            spread=Turns(_spreads(self._models.values(), lambda model: model.prefill_spread)),
        )
        self._pods = Pods(
            self._timeline,
            spec,
            self._models,
            settings,
            make_runner=lambda pool: (runners or self._runner)(self._timeline, pool, hooks),
            changed=self._pod_changed,
        )
        self._control = Control(
            self._timeline,
            spec,
            self._models,
            policy,
            pods=self._pods,
            router=self._router,
            counters=self._counters,
        )
        self._trouble = Trouble(self._timeline, settings, failures, self._pods, changed=self._pod_changed)
        self._pods.begin()
        scrape_s = settings.latencies.scrape_period_s
        self._timeline.every(scrape_s, self._scrape, first_s=scrape_s / 2)
        self._timeline.every(settings.swing_period_s, self._round, first_s=settings.swing_period_s)
        self._arriving = Arriving(self._timeline, arrivals, self._arrive)
        self._arriving.follow()

    def _picker(self, placing: Placing, number: int) -> Router:
        return Router(
            self._timeline,
            self._settings,
            _placer(placing, self._spec, Part(number=number, of=_pickers(self._spec))),
            block_size=self._spec.pools[0].engine.block_size,
            priorities=_priorities(settings_of(self._spec)),
            ended=self._request_ended,
            picker=f"simulated-{number}",
            alone=_pickers(self._spec) == 1,
        )

    @property
    def now_s(self) -> float:
        """The simulated time."""
        return self._timeline.now_s

    @property
    def ended(self) -> int:
        """Requests that have ended."""
        return self._gathering.ended

    @property
    def finished(self) -> bool:
        """Whether every request has ended and none is to come."""
        return self._arriving.exhausted and self._gathering.ended == self._arriving.arrived

    def engines(self) -> dict[str, BatchingEngine]:
        """Return every worker's engine, by the pod's name: for whoever measures what no router sees."""
        return {pod.name: pod.runner.engine for pod in self._pods.pods.values()}

    def send(self, arrival: Arrival) -> None:
        """Let a request arrive now beside those that were given: for a load that depends on what has ended."""
        self._arriving.take(arrival)

    def advance(self, *, events: int) -> bool:
        """Let at most so many events happen; return whether there is more to come.

        Workers that do both roles can fill their KV caches with what the others are to fetch, and wait for one another
        for ever: what has not ended `STUCK_S` after the last request that came or ended has failed.
        """
        arriving, gathering, timeline = self._arriving, self._gathering, self._timeline
        for _ in range(events):
            if arriving.exhausted and gathering.ended == arriving.arrived:
                return False
            timeline.step()
        if arriving.exhausted and timeline.now_s - self._went_on_s > STUCK_S:
            self._router.abandon()
        return not self.finished

    def run(self) -> Result:
        """Run to the end."""
        while self.advance(events=100_000):
            pass
        return self.result()

    def result(self) -> Result:
        """Return what was found up to now."""
        self._gathering.crashes = self._trouble.crashes
        self._meter.read(self._pods.pods.values(), now_s=self.now_s)
        return self._gathering.result(
            policy=self._settings.policy.name,
            finished=self.finished,
            now_s=self.now_s,
            spent=self._pods.spent(),
            starts=self._pods.starts,
        )

    def _arrive(self, number: int, arrival: Arrival) -> None:
        self._went_on_s = self.now_s
        self._gathering.arrival(arrival)
        self._counters.arrived(arrival)
        self._router.arrive(number, arrival)

    def _scrape(self) -> None:
        self._router.scrape(partial(self._gathering.take_gaps, now_s=self.now_s))

    def _round(self) -> None:
        before = self._control.flips
        self._control.round()
        if self._control.flips is not before:
            self._gathering.flips(self._control.flips)
        seen = self._control.seen
        self._meter.read(self._pods.pods.values(), now_s=self.now_s)
        self._gathering.series.sample(
            self._pods.pods.values(),
            waiting_requests=seen.queued_requests,
            waiting_prompt_tokens=seen.queued_prompt_tokens + sum(one.pending_prefill_tokens for one in seen.workers),
            now_s=self.now_s,
            watts=self._meter.watts,
        )

    def _request_ended(self, outcome: Outcome) -> None:
        self._went_on_s = self.now_s
        self._gathering.request(outcome)
        self._counters.ended(outcome)
        if self._told is not None:
            self._told(outcome)

    def _pod_changed(self, pod: Pod) -> None:
        exists = pod.name in self._pods.pods
        self._gathering.series.changed(pod, exists=exists, now_s=self.now_s)
        if not exists:
            self._meter.gone(pod, now_s=self.now_s)
        self._router.changed(pod, exists=lambda one: one.name in self._pods.pods)
        if pod.ready and not pod.deleting:
            self._trouble.began(pod)

    def _transfer(self) -> bool:
        self._gathering.transfers += 1
        share = self._settings.failures.transfer_share
        fails = share > 0 and self._failures.random() < share
        self._gathering.transfers_failed += fails
        return fails

    def _runner(self, timeline: Timeline, pool: Pool, hooks: Hooks) -> Runner:
        model = self._models[pool.name]
        limits = Limits(
            block_size=pool.engine.block_size,
            total_blocks=max(1, model.kv_capacity_tokens // pool.engine.block_size),
            max_batched_tokens=model.max_batched_tokens,
            max_sequences=model.max_sequences,
            lease_s=KV_LEASE_S,
            prefix_caching=self._settings.prefix_caching,
            by_priority=self._spec.engine.scheduling is SchedulingPolicy.PRIORITY,
        )
        return Runner(
            timeline,
            partial(BatchingEngine, model, limits, counted=not limits.prefix_caching),
            hooks,
            recompute=self._spec.engine.kv_load_failure_policy is KVLoadFailurePolicy.RECOMPUTE,
            coalesce=self._settings.coalesce,
        )


def _models(spec: InferenceClusterSpec, profile_text: str | None) -> dict[str, PerformanceModel]:
    found: dict[str, PerformanceModel] = {}
    for name, model in models.of(spec, config_map_text=profile_text).items():
        if isinstance(model, Unknown):
            raise SimulationError(f"pool {name}: {model.why}")
        found[name] = model
    return found


def _starting_in(models: dict[str, PerformanceModel], startup_s: float | None) -> dict[str, PerformanceModel]:
    """Whoever decides knows how long a worker takes to start here, as a profile of it would tell."""
    return {
        name: model if startup_s is None or not isinstance(model, LinearModel) else model.starting_in(startup_s)
        for name, model in models.items()
    }


def _spreads(known: Iterable[PerformanceModel], of: Callable[[LinearModel], tuple[float, ...]]) -> tuple[float, ...]:
    """Return how times spread, over all that is known of it."""
    return tuple(factor for model in known if isinstance(model, LinearModel) for factor in of(model))


def _policy(spec: InferenceClusterSpec, known: dict[str, PerformanceModel], settings: Settings) -> Deciding:
    policy = settings.policy
    if policy.clairvoyant and settings.future is None:
        raise SimulationError(f"policy {policy.name} must be told the future: give the requests a second time")
    startup_s = {
        pool.name: known[pool.name].startup_s if settings.startup_s is None else settings.startup_s
        for pool in spec.pools
    }
    future = settings.future if policy.clairvoyant else None
    try:
        return policy.make(Given(spec=spec, models=known, startup_s=startup_s, future=future))
    except PolicyError as error:
        raise SimulationError(f"policy {policy.name}: {error}") from error


def _pickers(spec: InferenceClusterSpec) -> int:
    """Return how many pickers there are; of an external router nobody knows, and it may well be one."""
    return spec.router.built_in.replicas if spec.router.type is RouterType.BUILT_IN else 1


def _placer(placing: Placing, spec: InferenceClusterSpec, part: Part) -> Placer:
    placer = _one_placer(placing, spec)
    if isinstance(placer, Dispatcher):
        placer.roster.among(part)
    return placer


def _one_placer(placing: Placing, spec: InferenceClusterSpec) -> Placer:
    settings = settings_of(spec)
    if not placing.deflection:
        settings = replace(settings, limits=NO_DEFLECTION)
    if placing.placer is not None:
        return placing.placer(settings)
    return Dispatcher(settings) if placing.late_binding else AtOnce(placing)


def _priorities(settings: PlacementSettings) -> dict[str, int]:
    """Return what workers that schedule by priority are told of each class, as the live router tells it."""
    if not settings.pass_priority:
        return {}
    return {one.name: -one.priority for one in settings.classes} | {"": -settings.classes[0].priority}


def _check(spec: InferenceClusterSpec, settings: Settings) -> None:
    if spec.router.type is RouterType.EXTERNAL:
        raise SimulationError("spec.router.type is External: only the built-in router's placement is known")
    pools = [pool.name for pool in spec.pools]
    for name, count in settings.replicas.items():
        if name not in pools:
            raise SimulationError(f"there is no pool {name!r} to give replicas; there are {', '.join(pools)}")
        if count < 0:
            raise SimulationError(f"pool {name}: replicas must be 0 or more, not {count}")
    for name in (*settings.tariff.workers, *settings.tariff.draws):
        if name not in pools:
            raise SimulationError(f"there is no pool {name!r} to give a price or a power; there are {', '.join(pools)}")
