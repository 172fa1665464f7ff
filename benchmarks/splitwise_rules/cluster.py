"""A cluster of such machines under our timeline and router: transfers begin at once and never share a link.

Machines and what runs them inherit from our engine and its runner, which compiled classes do not allow: this runs in
plain Python alone.
"""

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from functools import partial
from random import Random

from benchmarks.splitwise_rules.machine import Machine
from benchmarks.splitwise_rules.scheduling import Scheduler
from swingpool_control.api.v1alpha1 import InferenceClusterSpec, Pool
from swingpool_control.engine.model import PerformanceModel
from swingpool_control.engine.work import Limits
from swingpool_control.simulation.cluster import Simulation
from swingpool_control.simulation.events import Timeline
from swingpool_control.simulation.fabric import Fabric, Outlet
from swingpool_control.simulation.outcome import Outcome
from swingpool_control.simulation.policies.interface import Given, Placing, Policy
from swingpool_control.simulation.policies.static import Static
from swingpool_control.simulation.runner import Hooks, Job, Runner
from swingpool_control.simulation.settings import Latencies, Settings
from swingpool_control.simulation.traffic import Arrival

PROMPT, TOKEN = "prompt", "token"
"""The two pools."""
RETRY_S = 1.0
"""How long a transfer that finds no room waits before it asks again."""
LONG_S = 1e5
AT_ONCE = Latencies(hop_s=0.0, watch_s=0.0, probe_s=0.0)


class _Unshared(Fabric):
    """Every transfer gets the whole rate, however many there are."""

    def passed_s(self, outlet: Outlet, alone_s: float, *, now_s: float) -> float:
        """Return how long it takes alone."""
        return alone_s


class _Running(Runner):
    """Lets transfers begin when requests come, not between iterations.

    Args:
        timeline: the clock.
        make: makes the machine.
        hooks: who is told.
    """

    def __init__(self, timeline: Timeline, make: Callable[[], Machine], hooks: Hooks) -> None:
        super().__init__(timeline, make, hooks, recompute=False, coalesce=True)
        self._clock = timeline

    def submit(self, job: Job) -> None:
        """Take a request."""
        super().submit(job)
        if job.source is not None:
            self._fetch(job.request.id)

    def _fetch(self, request_id: str) -> None:
        """Begin a transfer that the machine has room for, or try again."""
        if not self.begin_transfers():
            self._clock.after(RETRY_S, lambda: self._again(request_id))

    def _again(self, request_id: str) -> None:
        if isinstance(self.engine, Machine):
            self.engine.fetch(request_id)
            self._fetch(request_id)


class PublishedCluster:
    """One design under one load.

    Args:
        machines: how many of each pool.
        models: times, memory and limits of each pool's machines.
        arrivals: the load.
        scheduler: who places requests; it is told of the machines and of each request's end.
    """

    def __init__(
        self,
        machines: Mapping[str, int],
        models: Mapping[str, PerformanceModel],
        arrivals: Iterable[Arrival],
        scheduler: Scheduler,
    ) -> None:
        policy = Policy(
            name="published",
            about="Splitwise's published simulator's own scheduling.",
            make=partial(_static, scheduler),
        )
        self.outcomes: list[Outcome] = []
        self._scheduler = scheduler
        self._simulation = Simulation(
            _spec(machines),
            arrivals,
            Settings(
                policy=policy,
                latencies=AT_ONCE,
                replicas=machines,
                swing_period_s=60.0,
                queue_timeout_s=LONG_S,
                prefix_caching=False,
            ),
            failures=Random(0),
            known=models,
            ended=self._over,
            runners=partial(_running, models),
        )
        engines = self._simulation.engines()
        scheduler.machines = {name: engine for name, engine in engines.items() if isinstance(engine, Machine)}

    def run(self) -> None:
        """Run to the end."""
        self._simulation.run()

    def _over(self, outcome: Outcome) -> None:
        self._scheduler.over(outcome.number)
        self.outcomes.append(outcome)


def _running(models: Mapping[str, PerformanceModel], timeline: Timeline, pool: Pool, hooks: Hooks) -> Runner:
    model = models[pool.name]
    limits = Limits(
        block_size=1,
        total_blocks=model.kv_capacity_tokens,
        max_batched_tokens=model.max_batched_tokens,
        max_sequences=model.max_sequences,
        lease_s=LONG_S,
        prefix_caching=False,
    )
    return _Running(timeline, partial(Machine, model, limits), replace(hooks, fabric=_Unshared(math.inf)))


def _static(scheduler: Scheduler, given: Given) -> Static:
    return Static(given, Placing(placer=lambda _: scheduler))


def _spec(machines: Mapping[str, int]) -> InferenceClusterSpec:
    return InferenceClusterSpec.model_validate(
        {
            "model": {"name": "bloom-176b"},
            "engine": {"type": "Simulated"},
            "objectives": {"ttft": {"p50": "1s"}, "itl": {"p50": "60ms"}},
            "pools": [
                {"name": name, "role": role, "replicas": {"mode": "Fixed", "count": max(1, machines[name])}}
                for name, role in ((PROMPT, "Prefill"), (TOKEN, "Decode"))
            ],
        }
    )
