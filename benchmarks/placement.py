"""Where requests go, ours against others' rules: 20 simulated workers, three traces, loads from 0.7 to 0.95.

Lengths are those of the traces. Azure's requests arrive by a Poisson process. Mooncake's keep their times, so that a
conversation's next turn comes when it came: as many stretches of the trace run side by side as make the load, on
workers ten times slower than the profile, as a model of ten times its size would be, so that these are long enough.
The load is the share of what the performance model says that the better split of the workers computes in full
iterations, if nothing that has been computed is ever forgotten. All rules run on the same workers and arrivals; the
others' are implemented from their descriptions (`benchmarks.peer_routers`).
"""

import heapq
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from random import Random
from statistics import fmean

from benchmarks.endless import cached_tokens
from benchmarks.harness import DATA, Run, main
from benchmarks.peer_routers import PEERS, Peer
from swingpool.traffic import azure, jsonl
from swingpool_control.api.v1alpha1 import InferenceClusterSpec
from swingpool_control.engine.batching import BatchingEngine
from swingpool_control.engine.model import PerformanceModel
from swingpool_control.engine.profile import built_in
from swingpool_control.placement.dispatcher import Dispatcher
from swingpool_control.placement.limits import NO_DEFLECTION
from swingpool_control.placement.settings import PlacementSettings
from swingpool_control.placement.work import Pace, prompt_s
from swingpool_control.simulation.caches import Caches, ToldCaches
from swingpool_control.simulation.cluster import Simulation
from swingpool_control.simulation.outcome import Outcome
from swingpool_control.simulation.placer import Placer
from swingpool_control.simulation.policies.interface import Placing, Policy
from swingpool_control.simulation.policies.static import Static
from swingpool_control.simulation.settings import Settings
from swingpool_control.simulation.traffic import Arrival
from swingpool_control.sizing.capacity import Shape, capacity

AZURE_CONV = "traces/AzureLLMInferenceTrace_conv.csv"
AZURE_CODE = "traces/AzureLLMInferenceTrace_code.csv"
MOONCAKE = "traces/mooncake_synthetic_trace.jsonl"
PROFILE = "llama-3.1-8b-fp8-h200"
WORKERS = 20
TTFT_S, ITL_S = 1.0, 0.030
WARM_SHARE = 0.2
"""Share of the requests, the first ones, that are not counted: everybody's caches are cold then."""
NEAR = 0.005
"""By so much ITL attainments are equal."""

Engines = Callable[[], Mapping[str, BatchingEngine]]
Make = Callable[[PlacementSettings, Engines], Placer]
"""Makes whoever places requests; only an oracle looks at the workers' engines."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Trace:
    """One trace's requests."""

    name: str
    requests: tuple[Arrival, ...]
    keeps_times: bool
    slower: float = 1.0
    """How much slower than the profile the workers are."""

    @property
    def block_tokens(self) -> int:
        """Tokens under one hash."""
        return self.requests[0].prefix_tokens or 16


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """What one rule did to one cell."""

    ttft_p95_s: float
    ttft_mean_s: float
    itl_attainment: float
    """Share of the times between tokens that met the objective."""
    hit_rate: float
    """Share of prompt tokens that lay in the cache of whoever was to compute them."""
    busiest: float
    """Prompt tokens that the busiest of the prefill workers computed, over their mean."""


def measure(run: Run) -> None:
    if run.data(AZURE_CONV, AZURE_CODE, MOONCAKE) is None:
        return
    loads = (0.85,) if run.quick else (0.7, 0.8, 0.9, 0.95)
    count = 1_500 if run.quick else 4_000
    model = built_in(PROFILE).model()
    ttft: dict[str, dict[str, float]] = {}
    best, itl_kept, hits = [], [], []
    for trace in traces():
        for load in loads:
            cell = f"{trace.name} at {load:g}"
            prefill, arrivals = cell_of(model.faster(1 / trace.slower), trace, load, count, run.seed)
            found = {"ours": simulate(trace, arrivals, prefill, live)}
            for name, peer in PEERS.items():
                found[name] = simulate(trace, arrivals, prefill, partial(peer_of, peer, run.seed))
            if trace.keeps_times:
                found["oracle"] = simulate(trace, arrivals, prefill, oracle)
                hits.append(found["ours"].hit_rate / found["oracle"].hit_rate)
            for name, one in found.items():
                run.say(
                    f"{cell}, {prefill} of {WORKERS} for prefill, {name}: TTFT p95 {one.ttft_p95_s:.3f} s, mean "
                    f"{one.ttft_mean_s:.3f} s; ITL met by {one.itl_attainment:.2%}; prefix hits {one.hit_rate:.1%}"
                )
            ttft[cell] = {name: round(one.ttft_p95_s, 4) for name, one in found.items()}
            others = [one for name, one in found.items() if name in PEERS]
            best.append(found["ours"].ttft_p95_s / min(one.ttft_p95_s for one in others))
            itl_kept.append(max(one.itl_attainment for one in others) - found["ours"].itl_attainment)
    run.figures |= {"ttft_p95_s": ttft, "hit_rate_against_oracle": [round(one, 4) for one in hits]}
    run.at_most("p95 TTFT of ours against the best other, in the worst cell", max(best), 1.0)
    run.at_most("ITL attainment that ours is behind the best other, in the worst cell", max(itl_kept), NEAR)
    run.at_least("prefix hit rate of ours against the oracle's, in the worst cell", min(hits), 0.95)


def live(settings: PlacementSettings, _: Engines) -> Placer:
    """Return ours, as the live router has it."""
    return Dispatcher(settings)


def told(settings: PlacementSettings, engines: Engines) -> Placer:
    """Return ours, as the live router has it where workers publish what their caches hold."""
    dispatcher = Dispatcher(settings)
    dispatcher.roster.present.believed = ToldCaches(engines)
    return dispatcher


def oracle(settings: PlacementSettings, engines: Engines) -> Placer:
    """Return ours, told at each decision what lies in every worker's cache, and counting hits above all.

    A prompt waits for the worker that has most of it as long as that saves any time at all.
    """
    dispatcher = Dispatcher(replace(settings, saving_weight=1e3, limits=NO_DEFLECTION))
    dispatcher.roster.present.believed = Caches(engines)
    return dispatcher


def peer_of(peer: type[Peer], seed: int, _settings: PlacementSettings, _engines: Engines) -> Placer:
    """Return whoever places requests by another router's rule."""
    return peer(seed)


def traces() -> Iterator[Trace]:
    """Yield the traces."""
    for name, path in (("Azure conversation", AZURE_CONV), ("Azure code", AZURE_CODE)):
        requests = tuple(azure.read(DATA / path))
        yield Trace(name=name, requests=requests, keeps_times=False)
    requests = tuple(jsonl.read(DATA / MOONCAKE, block_tokens=jsonl.BLOCK_TOKENS, hashes_required=True))
    yield Trace(name="Mooncake synthetic", requests=requests, keeps_times=True, slower=10.0)


def cell_of(model: PerformanceModel, trace: Trace, load: float, count: int, seed: int) -> tuple[int, list[Arrival]]:
    """Return how many workers prefill, and the requests that make the load.

    What an endless cache would have depends on the stretches, and their length on the rate: a second look settles it.
    """
    requests = list(trace.requests)
    for _ in range(3 if trace.keeps_times else 1):
        prefill, rate = _split(model, requests, trace)
        requests = list(_arrivals(trace, load * rate, count, seed))
    return prefill, requests


def _split(model: PerformanceModel, requests: list[Arrival], trace: Trace) -> tuple[int, float]:
    """Return how many workers prefill best, and the requests per second that are then just enough."""
    pace = Pace(model)
    cached = list(cached_tokens(requests)) if trace.keeps_times else [0] * len(requests)
    prefill_s = fmean(
        prompt_s(model, one.prompt_tokens, one.prompt_tokens - known)
        - pace.base_s * (1.0 - (one.prompt_tokens - known) / pace.budget)
        for one, known in zip(requests, cached, strict=True)
    )
    isl = fmean(one.prompt_tokens for one in requests)
    osl = fmean(one.output_tokens for one in requests)
    able = capacity(
        model,
        shape=Shape(isl_tokens=isl, osl_tokens=osl),
        ttft_s=trace.slower * TTFT_S,
        itl_s=trace.slower * ITL_S,
    )
    moved_s = fmean(model.transfer_s(tokens=one.prompt_tokens) for one in requests)
    decode_s = max(osl / able.decode_tokens_per_s, moved_s)  # one transfer after the other takes its link
    rates = {count: min(count / prefill_s, (WORKERS - count) / decode_s) for count in range(1, WORKERS)}
    best = max(rates, key=lambda count: rates[count])
    return best, rates[best]


def _arrivals(trace: Trace, rate: float, count: int, seed: int) -> Iterator[Arrival]:
    random = Random(seed)
    if not trace.keeps_times:
        at_s = 0.0
        for _ in range(count):
            at_s += random.expovariate(rate)
            yield random.choice(trace.requests)._replace(at_s=at_s)
        return
    span_s = trace.requests[-1].at_s
    own_rate = len(trace.requests) / span_s
    copies = max(1, round(rate / own_rate))
    stretch_s = count / rate
    yield from heapq.merge(
        *(_stretch(trace, number, random.random() * (span_s - stretch_s), stretch_s) for number in range(copies)),
        key=lambda one: one.at_s,
    )


def _stretch(trace: Trace, number: int, from_s: float, lasts_s: float) -> Iterator[Arrival]:
    """Yield a stretch of a trace, whose prefixes are its own."""
    for one in trace.requests:
        if from_s <= one.at_s < from_s + lasts_s:
            prefix = tuple((number << 40) | block for block in one.prefix)
            yield one._replace(at_s=one.at_s - from_s, prefix=prefix)


def simulate(trace: Trace, arrivals: list[Arrival], prefill: int, make: Make, *, pickers: int = 1) -> Found:
    """Return what one rule does to a cell.

    Args:
        trace: the cell's.
        arrivals: its requests.
        prefill: its workers for prefill.
        make: makes whoever places requests.
        pickers: how many of those there are, none of which knows of the others' requests.
    """
    ended: list[Outcome] = []

    def engines() -> Mapping[str, BatchingEngine]:
        return simulation.engines()

    placing = Placing(placer=lambda settings: make(settings, engines), deflection=True, late_binding=True)
    policy = Policy(name="static", about="", make=partial(Static, placing=placing))
    simulation = Simulation(
        _spec(trace, prefill, pickers),
        arrivals,
        Settings(policy=policy, prefix_caching=trace.keeps_times, queue_timeout_s=3600.0),
        failures=Random(0),
        ended=ended.append,
    )
    result = simulation.run()
    counted = [one for one in ended if one.number >= WARM_SHARE * len(arrivals)]
    ttfts = sorted(one.ttft_s if one.ttft_s is not None else float("inf") for one in counted)
    itl = next(one for one in result.objectives if one.metric == "itl")
    return Found(
        ttft_p95_s=ttfts[int(0.95 * len(ttfts))],
        ttft_mean_s=fmean(ttfts),
        itl_attainment=itl.share or 0.0,
        hit_rate=_hit_rate(simulation, arrivals),
        busiest=_busiest(simulation, prefill),
    )


def _hit_rate(simulation: Simulation, arrivals: list[Arrival]) -> float:
    """Return the share of all prompt tokens that no worker had to compute."""
    computed = sum(engine.counters.local_compute_tokens for engine in simulation.engines().values())
    return 1.0 - computed / sum(one.prompt_tokens for one in arrivals)


def _busiest(simulation: Simulation, prefill: int) -> float:
    computed = sorted(engine.counters.local_compute_tokens for engine in simulation.engines().values())[-prefill:]
    return computed[-1] / fmean(computed)


def _spec(trace: Trace, prefill: int, pickers: int) -> InferenceClusterSpec:
    return InferenceClusterSpec.model_validate(
        {
            "model": {"name": "nvidia/Llama-3.1-8B-Instruct-FP8"},
            "engine": {"type": "Simulated", "simulated": {"speedup": f"{1 / trace.slower:g}"}},
            "objectives": {
                "ttft": {"p95": f"{trace.slower * TTFT_S:g}s"},
                "itl": {"p95": f"{trace.slower * ITL_S * 1000:g}ms"},
            },
            "profile": {"builtIn": PROFILE},
            "router": {"builtIn": {"replicas": pickers}},
            "pools": [
                {
                    "name": name,
                    "role": name.capitalize(),
                    "replicas": {"mode": "Fixed", "count": count},
                    "engine": {"blockSize": trace.block_tokens},
                }
                for name, count in (("prefill", prefill), ("decode", WORKERS - prefill))
            ],
        }
    )


if __name__ == "__main__":
    sys.exit(main("placement", measure, takes="two to three minutes, or one on the compiled core"))
