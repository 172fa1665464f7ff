"""How many requests the simulator simulates per second, and where the time goes: one core, 40 workers, load 0.8.

Prompt and output lengths are pairs of the Azure conversation trace; arrivals are Poisson. Load 0.8 is four fifths of
the rate at which the performance model says that the better split of the workers is just enough.

The full run compiles the core first (`python -m tools.compiled`), where there is a C compiler; the quick one uses what
lies there compiled already. SWINGPOOL_CORE=python keeps to plain Python. Both cores are made of the same sources, and
are compared here.
"""

import cProfile
import importlib
import json
import os
import pstats
import resource
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import asdict
from math import log
from random import Random
from statistics import fmean

from benchmarks.harness import DATA, Run, main
from swingpool.simulate.collecting import seldom_collected
from swingpool.traffic import azure
from swingpool_control.api.v1alpha1 import InferenceClusterSpec
from swingpool_control.engine import batching
from swingpool_control.engine.profile import built_in
from swingpool_control.simulation.cluster import Simulation
from swingpool_control.simulation.policies.catalogue import POLICIES
from swingpool_control.simulation.settings import Settings
from swingpool_control.simulation.traffic import Arrival
from swingpool_control.sizing.capacity import Shape, capacity
from swingpool_control.sizing.objectives import mean_itl_s, mean_ttft_s
from tools import compiled

TRACE = "traces/AzureLLMInferenceTrace_conv.csv"
PROFILE = "llama-3.1-8b-fp8-h200"
WORKERS = 40
LOAD = 0.8
COMPARED = 3_000
SIZES = (100_000, 1_000_000, 5_000_000)
PARTS = ("engine", "simulation", "placement", "swing", "sizing")
CORE = "SWINGPOOL_CORE"
IN_PYTHON = "import benchmarks.simulator_speed as speed; speed.in_python({seed})"


def measure(run: Run) -> None:
    if run.data(TRACE) is None:
        return
    is_compiled = not batching.__file__.endswith(".py")
    run.figures["core"] = "compiled" if is_compiled else "python"
    run.say(f"the core is {'compiled by mypyc' if is_compiled else 'plain Python'}")
    # Sizing imports it after some simulated minutes, and it takes 74 MiB: memory is compared without that step.
    importlib.import_module("swingpool_control.sizing.fitting")
    load = Load()
    run.figures |= {
        "workers_prefill": load.prefill,
        "workers_decode": WORKERS - load.prefill,
        "arrivals_per_s": round(load.rate, 1),
    }
    sizes = (2_000, 5_000) if run.quick else SIZES if is_compiled else (25_000, 100_000)
    speeds, peaks = [], []
    for count in sizes:
        speed, peak_mib = _timed(run, load, count)
        speeds.append(speed)
        peaks.append(peak_mib)
    if is_compiled:
        _compare(run, load)
    else:
        run.figures["cpu_share_by_part"] = profile(run, load.simulation(COMPARED, run.seed))
    at_100k = speeds[0] if is_compiled and not run.quick else speeds[-1]
    run.at_least("simulated requests per second of wall clock", at_100k, 10_000)
    if is_compiled and not run.quick:
        run.at_least("speed with 5,000,000 requests over that with 100,000", speeds[-1] / speeds[0], 0.8)
        run.at_most("memory with 5,000,000 requests over that with 100,000", peaks[-1] / peaks[0], 1.25)


def _timed(run: Run, load: "Load", count: int) -> tuple[float, float]:
    """Simulate so many requests; return how many per second of wall clock, and the most memory up to now in MiB."""
    simulation = load.simulation(count, run.seed)
    wall_s, cpu_s = time.perf_counter(), time.process_time()
    said_s = wall_s
    with seldom_collected():  # as `swingpool simulate` does
        while simulation.advance(events=200_000):
            if time.perf_counter() - said_s > 30:
                said_s = time.perf_counter()
                run.say(f"  {simulation.ended:,} of {count:,}")
    result = simulation.result()
    wall_s, cpu_s = time.perf_counter() - wall_s, time.process_time() - cpu_s
    peak_mib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    run.say(
        f"{count:,} requests in {wall_s:.1f} s ({cpu_s:.1f} s of CPU): {count / wall_s:,.0f} per second of wall clock; "
        f"attainment {result.attainment:.3f}, at most {peak_mib:.0f} MiB"
    )
    run.figures |= {
        f"requests_per_wall_s_at_{count}": round(count / wall_s),
        f"requests_per_cpu_s_at_{count}": round(count / cpu_s),
        f"peak_mib_at_{count}": round(peak_mib),
    }
    return count / wall_s, peak_mib


def _compare(run: Run, load: "Load") -> None:
    """Run the same in plain Python: it must find the same, and can be profiled."""
    ended = subprocess.run(
        [sys.executable, "-c", IN_PYTHON.format(seed=run.seed)],
        env={**os.environ, CORE: "python", "PYTHONPATH": ""},
        check=True,
        capture_output=True,
        text=True,
    )
    *said, last = ended.stdout.splitlines()
    theirs = json.loads(last)
    for line in said:
        run.say(f"in plain Python, {line}")
    run.figures["python"] = theirs["figures"]
    ours = json.loads(json.dumps(asdict(load.simulation(COMPARED, run.seed).run())))
    run.at_least("the compiled core finds what plain Python finds (1 yes, 0 no)", float(ours == theirs["result"]), 1)


def in_python(seed: int) -> None:
    """Print what plain Python finds, and how fast it is; the last line is JSON."""
    run = Run(quick=True, seed=seed)
    load = Load()
    result = asdict(load.simulation(COMPARED, seed).run())
    _timed(run, load, COMPARED)
    run.figures["cpu_share_by_part"] = profile(run, load.simulation(COMPARED, seed))
    print(json.dumps({"figures": run.figures, "result": result}))


class Load:
    """The traffic and the cluster."""

    def __init__(self) -> None:
        self.pairs = [(one.prompt_tokens, one.output_tokens) for one in azure.read(DATA / TRACE)]
        shape = Shape(
            isl_tokens=fmean(pair[0] for pair in self.pairs), osl_tokens=fmean(pair[1] for pair in self.pairs)
        )
        self.prefill, self.rate = _split(shape)

    def simulation(self, count: int, seed: int) -> Simulation:
        """Return the simulation of so many requests."""
        settings = Settings(policy=POLICIES["ours"], prefix_caching=False)
        arrivals = _arrivals(self.pairs, self.rate, count, seed)
        return Simulation(_spec(self.prefill), arrivals, settings, failures=Random(0))


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
    random = Random(seed).random
    at_s = 0.0
    kinds = len(pairs)
    for _ in range(count):
        at_s -= log(1.0 - random()) / rate
        prompt, output = pairs[int(random() * kinds)]
        yield Arrival(at_s, prompt, output)


def profile(run: Run, simulation: Simulation) -> dict[str, float]:
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


def start() -> int:
    """Run with the compiled core if that is wanted and can be had."""
    if os.environ.get(CORE) is None:
        try:
            folder = compiled.folder() if "--quick" in sys.argv else compiled.build()
        except compiled.NotCompiledError as error:
            print(f"the core is not compiled: {error}", flush=True)
        else:
            if folder.is_dir():
                environment = {**os.environ, CORE: "compiled", "PYTHONPATH": str(folder)}
                os.execve(  # noqa: S606 - the same program again
                    sys.executable, [sys.executable, "-m", "benchmarks.simulator_speed", *sys.argv[1:]], environment
                )
    return main("simulator_speed", measure, takes="some six minutes, and one to compile the core")


if __name__ == "__main__":
    sys.exit(start())
