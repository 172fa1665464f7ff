"""Small clusters and loads for tests of the simulation."""

from collections.abc import Iterable
from random import Random
from typing import Any

from swingpool_control.api.v1alpha1 import InferenceClusterSpec
from swingpool_control.simulation.cluster import Simulation
from swingpool_control.simulation.outcome import Outcome
from swingpool_control.simulation.policies.catalogue import POLICIES
from swingpool_control.simulation.result import Result
from swingpool_control.simulation.settings import Settings
from swingpool_control.simulation.traffic import Arrival

STATIC = Settings(policy=POLICIES["static"])


def spec(pools: list[dict[str, Any]] | None = None, **parts: Any) -> InferenceClusterSpec:
    """One prefill, one decode and two swing workers of the demo profile; `parts` replace parts of the spec."""
    base: dict[str, Any] = {
        "model": {"name": "demo"},
        "objectives": {"ttft": {"p95": "1s"}, "itl": {"p95": "60ms"}},
        "engine": {"type": "Simulated"},
        "pools": pools
        or [
            {"name": "prefill", "role": "Prefill"},
            {"name": "decode", "role": "Decode"},
            {"name": "swing", "role": "Swing", "replicas": {"min": 2, "max": 2}},
        ],
    }
    return InferenceClusterSpec.model_validate(base | parts)


def load(
    requests_per_s: float, seconds: float, *, prompt: int = 200, output: int = 20, seed: int = 1, spread: float = 0.5
) -> list[Arrival]:
    """Poisson arrivals with lengths that lie evenly within `spread` of their means."""
    random = Random(seed)
    found: list[Arrival] = []
    at_s = random.expovariate(requests_per_s)
    while at_s < seconds:
        factors = (random.uniform(1 - spread, 1 + spread), random.uniform(1 - spread, 1 + spread))
        found.append(Arrival(at_s, max(1, round(prompt * factors[0])), max(1, round(output * factors[1]))))
        at_s += random.expovariate(requests_per_s)
    return found


def simulate(
    wanted: InferenceClusterSpec, arrivals: Iterable[Arrival], settings: Settings = STATIC, *, failures_seed: int = 1
) -> tuple[Result, list[Outcome]]:
    """Run a simulation to its end; return its result and every request's outcome, in the order of their ends."""
    outcomes: list[Outcome] = []
    simulation = Simulation(wanted, arrivals, settings, failures=Random(failures_seed), ended=outcomes.append)
    return simulation.run(), outcomes
