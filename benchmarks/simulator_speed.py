"""How many requests the simulator simulates per second, and where the time goes: one core, 40 workers, load 0.8.

Prompt and output lengths are pairs of the Azure conversation trace; arrivals are Poisson. Load 0.8 is four fifths of
the rate at which the performance model says that the better split of the workers is just enough.
"""

import cProfile
import pstats
import resource
import sys
import time
from collections.abc import Iterator
from random import Random
from statistics import fmean

from benchmarks.harness import DATA, Run, main
from swingpool.traffic import azure
from swingpool_control.api.v1alpha1 import InferenceClusterSpec
from swingpool_control.engine.profile import built_in
from swingpool_control.simulation.cluster import Simulation
from swingpool_control.simulation.policies.catalogue import POLICIES
from swingpool_control.simulation.settings import Settings
from swingpool_control.simulation.traffic import Arrival
from swingpool_control.sizing.capacity import Shape, capacity
from swingpool_control.sizing.objectives import mean_itl_s, mean_ttft_s

TRACE = "traces/AzureLLMInferenceTrace_conv.csv"
PROFILE = "llama-3.1-8b-fp8-h200"
WORKERS = 40
LOAD = 0.8
PROFILED = 2_000
PARTS = ("engine", "simulation", "placement", "swing", "sizing")


def measure(run: Run) -> None:
    if run.data(TRACE) is None:
        return
    pairs = [(one.prompt_tokens, one.output_tokens) for one in azure.read(DATA / TRACE)]
    shape = Shape(isl_tokens=fmean(pair[0] for pair in pairs), osl_tokens=fmean(pair[1] for pair in pairs))
    prefill, rate = _split(shape)
    run.figures |= {"workers_prefill": prefill, "workers_decode": WORKERS - prefill, "arrivals_per_s": round(rate, 1)}
    sizes = (2_000, 5_000) if run.quick else (25_000, 100_000)
    speeds = []
    for count in sizes:
        simulation = _simulation(prefill, _arrivals(pairs, rate, count, run.seed))
        wall_s, cpu_s = time.perf_counter(), time.process_time()
        result = simulation.run()
        wall_s, cpu_s = time.perf_counter() - wall_s, time.process_time() - cpu_s
        speeds.append(count / wall_s)
        peak_mib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
        run.say(
            f"{count:,} requests in {wall_s:.1f} s ({cpu_s:.1f} s of CPU): {speeds[-1]:,.0f} per second of wall clock; "
            f"attainment {result.attainment:.3f}, at most {peak_mib:.0f} MiB"
        )
        run.figures |= {
            f"requests_per_wall_s_at_{count}": round(speeds[-1]),
            f"requests_per_cpu_s_at_{count}": round(count / cpu_s),
            f"peak_mib_at_{count}": round(peak_mib),
        }
    run.figures["cpu_share_by_part"] = _profile(run, _simulation(prefill, _arrivals(pairs, rate, PROFILED, run.seed)))
    run.at_least("simulated requests per second of wall clock", speeds[-1], 10_000)


def _split(shape: Shape) -> tuple[int, float]:
    """Return the number of prefill workers with which the most is served, and the rate at load 0.8."""
    spec = _spec(1)
    able = capacity(
        built_in(PROFILE).model(),
        shape=shape,
        ttft_s=mean_ttft_s(spec.objectives),
        itl_s=mean_itl_s(spec.objectives),
    )
    prefill_per_s = able.prefill_tokens_per_s / shape.isl_tokens
    decode_per_s = able.decode_tokens_per_s / shape.osl_tokens
    best = max(range(1, WORKERS), key=lambda count: min(count * prefill_per_s, (WORKERS - count) * decode_per_s))
    return best, LOAD * min(best * prefill_per_s, (WORKERS - best) * decode_per_s)


def _spec(prefill: int) -> InferenceClusterSpec:
    return InferenceClusterSpec.model_validate(
        {
            "model": {"name": "nvidia/Llama-3.1-8B-Instruct-FP8"},
            "objectives": {"ttft": {"p95": "500ms"}, "itl": {"p95": "30ms"}},
            "profile": {"builtIn": PROFILE},
            "pools": [
                {"name": "prefill", "role": "Prefill", "replicas": {"mode": "Fixed", "count": prefill}},
                {"name": "decode", "role": "Decode", "replicas": {"mode": "Fixed", "count": WORKERS - prefill}},
            ],
        }
    )


def _arrivals(pairs: list[tuple[int, int]], rate: float, count: int, seed: int) -> Iterator[Arrival]:
    random = Random(seed)
    at_s = 0.0
    for _ in range(count):
        at_s += random.expovariate(rate)
        prompt, output = random.choice(pairs)
        yield Arrival(at_s, prompt, output)


def _simulation(prefill: int, arrivals: Iterator[Arrival]) -> Simulation:
    settings = Settings(policy=POLICIES["ours"], prefix_caching=False)
    return Simulation(_spec(prefill), arrivals, settings, failures=Random(0))


def _profile(run: Run, simulation: Simulation) -> dict[str, float]:
    """Return the share of the time by part of the core, by a profiler that slows small functions down more."""
    profiler = cProfile.Profile()
    profiler.runcall(simulation.run)
    functions = pstats.Stats(profiler).stats  # type: ignore[attr-defined]
    total = sum(entry[2] for entry in functions.values())
    shares = {
        part: sum(entry[2] for place, entry in functions.items() if f"swingpool_control/{part}/" in place[0]) / total
        for part in PARTS
    }
    shares["other"] = 1 - sum(shares.values())
    run.say("where the time goes: " + ", ".join(f"{part} {share:.0%}" for part, share in shares.items()))
    hottest = sorted(functions.items(), key=lambda item: item[1][2], reverse=True)[:6]
    for (path, line, name), entry in hottest:
        run.say(f"  {entry[2] / total:4.0%}  {path.rpartition('swingpool_control/')[2]}:{line} {name}")
    return {part: round(share, 3) for part, share in shares.items()}


if __name__ == "__main__":
    sys.exit(main("simulator_speed", measure, takes="two to four minutes"))
