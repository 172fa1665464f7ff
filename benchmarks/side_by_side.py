"""What benchmarks of policies share: specs, one simulation per policy, a table of what came out."""

import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from random import Random
from typing import Any

from benchmarks.harness import Run
from swingpool_control.api.v1alpha1 import InferenceClusterSpec
from swingpool_control.simulation.cluster import Simulation
from swingpool_control.simulation.outcome import Outcome
from swingpool_control.simulation.policies.interface import Policy
from swingpool_control.simulation.result import Result
from swingpool_control.simulation.settings import Settings
from swingpool_control.simulation.traffic import Arrival

H200 = "llama-3.1-8b-fp8-h200"

PATIENCE_S = 24 * 3600.0
"""How long requests wait: nobody's client gives up, so that every policy pays for the queue that it makes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """One load on one kind of cluster, for any number of policies."""

    profile: str
    objectives: Mapping[str, Mapping[str, str]]
    arrivals: Callable[[], Iterable[Arrival]]
    start: Mapping[str, int]
    """Workers by role at the start."""
    startup_s: float | None
    most: int
    """Workers of any role, at the most."""
    prefix_caching: bool = False
    price_per_hour: str = "3.50"
    scale_down_window: str = "5m"
    accelerators: int | None = None
    """That there are; None is as many as it takes."""
    profile_text: str | None = None
    """A profile's text instead of the built-in one."""

    def fixed(self) -> InferenceClusterSpec:
        """A prefill and a decode pool, for policies that change no roles."""
        return self._spec([self._pool("prefill", "Prefill"), self._pool("decode", "Decode")])

    def swinging(self) -> InferenceClusterSpec:
        """The same two pools, and beside them one whose workers swing."""
        pools = [self._pool("prefill", "Prefill"), self._pool("decode", "Decode"), self._pool("swing", "Swing", 0)]
        return self._spec(pools)

    def swinging_start(self) -> dict[str, int]:
        """As many workers at the start, all but one of each role free to swing."""
        return {"prefill": 1, "decode": 1, "swing": max(0, sum(self.start.values()) - 2)}

    def _pool(self, name: str, role: str, fewest: int = 1) -> dict[str, Any]:
        return {
            "name": name,
            "role": role,
            "replicas": {"min": fewest, "max": self.most},
            "costPerHour": self.price_per_hour,
        }

    def _spec(self, pools: list[dict[str, Any]]) -> InferenceClusterSpec:
        return InferenceClusterSpec.model_validate(
            {
                "model": {"name": self.profile},
                "engine": {"type": "Simulated"},
                "objectives": self.objectives,
                "profile": {"builtIn": self.profile}
                if self.profile_text is None
                else {"configMap": {"name": self.profile}},
                "pools": pools,
                "scaling": {
                    "budgets": {"accelerators": [{"product": "*", "max": self.most}]},
                    "stabilization": {"scaleDownWindow": self.scale_down_window},
                },
            }
        )


def simulate(
    run: Run,
    case: Case,
    policy: Policy,
    *,
    replicas: Mapping[str, int] | None = None,
    spec: InferenceClusterSpec | None = None,
    ended: Callable[[Outcome], None] | None = None,
    label: str = "",
) -> Result:
    """Simulate one policy and say what came out."""
    chosen = spec if spec is not None else case.swinging() if policy.swings else case.fixed()
    names = {pool.name for pool in chosen.pools}
    start = {name: count for name, count in (replicas or case.start).items() if name in names}
    settings = Settings(
        policy=policy,
        future=case.arrivals,
        replicas=start,
        startup_s=case.startup_s,
        accelerators=case.accelerators,
        prefix_caching=case.prefix_caching,
        queue_timeout_s=PATIENCE_S,
    )
    began = time.monotonic()
    simulation = Simulation(
        chosen,
        case.arrivals(),
        settings,
        failures=Random(run.seed),
        profile_text=case.profile_text,
        ended=ended,
    )
    result = simulation.run()
    run.say(f"{label or policy.name:24s} {told(result)}  [{time.monotonic() - began:.0f} s]")
    return result


def told(result: Result) -> str:
    """Return a result as one line."""
    return (
        f"met both {_percent(result.attainment)}  TTFT mean {_s(result.ttft.mean_s)} p50 {_s(result.ttft.p50_s)} "
        f"p99 {_s(result.ttft.p99_s)}  ITL p95 {_ms(result.itl.p95_s)}  {result.accelerator_hours:.3f} GPU-h  "
        f"{result.starts} starts, {len(result.flips)} flips"
        + (f"  {result.refused} refused" if result.refused else "")
        + (f"  {result.failed} failed" if result.failed else "")
    )


def figures(result: Result) -> dict[str, object]:
    """Return what the JSON line tells of a result."""
    return {
        "attainment": _rounded(result.attainment, 4),
        "ttft_mean_s": _rounded(result.ttft.mean_s, 3),
        "ttft_p50_s": _rounded(result.ttft.p50_s, 3),
        "ttft_p95_s": _rounded(result.ttft.p95_s, 3),
        "ttft_p99_s": _rounded(result.ttft.p99_s, 3),
        "itl_p95_s": _rounded(result.itl.p95_s, 4),
        "gpu_hours": _rounded(result.accelerator_hours, 3),
        "starts": result.starts,
        "flips": len(result.flips),
        "refused": result.refused,
    }


def repeated(arrivals: Iterable[Arrival], *, period_s: float, times: int) -> Iterator[Arrival]:
    """Yield the same requests again and again, each time a period later."""
    once = list(arrivals)
    for turn in range(times):
        for one in once:
            yield one._replace(at_s=one.at_s + turn * period_s)


def _rounded(value: float | None, digits: int) -> float | None:
    return None if value is None else round(value, digits)


def _percent(share: float | None) -> str:
    return "-" if share is None else f"{share:6.1%}"


def _s(value: float | None) -> str:
    return "-" if value is None else f"{value:7.2f} s"


def _ms(value: float | None) -> str:
    return "-" if value is None else f"{1000 * value:.1f} ms"
