"""How far predicted TTFT and ITL lie from what the iteration-level simulation finds, at the 95th percentile.

Requests have the lengths of the Azure conversation and code traces, in pairs; arrivals are renewals whose gaps follow a
Gamma distribution. Load is the share of the most prompts that the prefill workers compute; decode workers are as many
as bring them to loads between a third and nine tenths. The simulation places by the live router's own functions.

A percentile of a simulation has an error of its own, the larger the burstier and the more loaded. Two things keep it
small. Gaps and lengths are drawn evenly from their distributions and shuffled, so that each run has the load that it
should have. And the work that a run's requests had to wait for is compared with what it is in the long run, which is
known exactly (a control variate, as a ratio). What error is left is told beside the difference, with 95% confidence
over the seeds. Where it is larger than half the narrowest bar, the point is simulated anew with more requests, again
and again, until the seeds agree or a limit is reached; the prediction plays no part in that.

TTFT's percentile is that of all seeds' requests together: a burst that comes once in several runs has its weight in it,
which the mean of the runs' percentiles would get wrong. Its error comes from leaving out each seed in turn (jackknife).
"""

import math
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from random import Random
from statistics import fmean, median, stdev
from typing import Any

import numpy as np
from scipy.special import gammaincinv

from benchmarks.harness import DATA, Run, main
from swingpool.traffic import azure
from swingpool_control.api.v1alpha1 import InferenceClusterSpec
from swingpool_control.engine.model import PerformanceModel
from swingpool_control.engine.profile import built_in
from swingpool_control.simulation.cluster import Simulation
from swingpool_control.simulation.outcome import Outcome
from swingpool_control.simulation.policies.interface import Policy
from swingpool_control.simulation.policies.live import Features, Live
from swingpool_control.simulation.settings import Settings
from swingpool_control.simulation.traffic import Arrival
from swingpool_control.sizing import workload
from swingpool_control.sizing.queueing import (
    Floats,
    Group,
    Prediction,
    predict,
    prefill_rate,
    prompt_work,
    sustained_decode_rate,
)
from swingpool_control.sizing.traffic import LengthBin, Lengths, Traffic, lengths_of

TRACES = {kind: f"traces/AzureLLMInferenceTrace_{kind}.csv" for kind in ("conv", "code")}
PROFILES = ("llama-3.1-8b-fp8-h200", "demo")
LEVEL = 0.95
LOADS = (0.3, 0.6, 0.8, 0.95)
VARIATIONS = (0.5, 1.0, 2.0, 4.0)
WORKERS = (1, 2, 4, 8)
DECODE_LOADS = (0.35, 0.6, 0.85)
FIXED = Policy(
    name="fixed",
    about="The live router, without deflection, before workers that keep their numbers and roles.",
    make=partial(Live, features=Features(swing=False, sizing=False, deflection=False)),
)
SEEDS = 4
STUDENT_T = 3.18
"""Of 95% and 3 degrees of freedom."""
WARM_UP = 0.1
"""Share of each simulation's requests that fill the queues and are not counted."""
REQUESTS = 1200
"""Of each simulation at Poisson arrivals and moderate load."""
AGREED = 0.05
"""Half the width of the confidence interval, as a share, from which on seeds agree: half the narrowest bar."""
MORE = 4
"""How many times as many requests the next attempt has where they do not."""
ATTEMPTS = 3
"""At most: sixteen times the requests, then."""
HEAVY = 0.9
"""Load from which on optimism is not held against the prediction."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    """What is predicted and simulated."""

    profile: str
    kind: str
    variation: float
    """Coefficient of variation of the gaps between arrivals."""
    load: float
    prefill: int
    decode_load: float

    def __str__(self) -> str:
        return f"{self.profile[:5]} {self.kind} CV {self.variation:g} load {self.load:g} {self.prefill} prefill"


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """A percentile over several seeds."""

    value: float
    half_width: float
    """Of its confidence interval, as a share of the value."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Requests:
    """Requests in the order of their arrival."""

    at_s: list[float]
    pairs: list[tuple[int, int]]
    """Tokens of prompt and answer."""

    def __iter__(self) -> Iterator[Arrival]:
        for at_s, (prompt, output) in zip(self.at_s, self.pairs, strict=True):
            yield Arrival(at_s, prompt, output)


def requests(pairs: list[tuple[int, int]], *, variation: float, rate: float, count: int, seed: str) -> Requests:
    """Return requests whose gaps and lengths are drawn evenly from their distributions, in a random order."""
    random, shape = Random(seed), 1.0 / (variation * variation)
    gaps = gammaincinv(shape, (np.array(random.sample(range(count), count)) + random.random()) / count) / (shape * rate)
    drawn = [pairs[int((number + random.random()) / count * len(pairs))] for number in range(count)]
    random.shuffle(drawn)
    return Requests(at_s=np.cumsum(gaps).tolist(), pairs=drawn)


def points(*, quick: bool) -> list[Point]:
    """Return all combinations of lengths, burstiness and load, each with two numbers of workers."""
    found = []
    for number, (kind, variation, load, second) in enumerate(
        (kind, variation, load, second)
        for kind in TRACES
        for variation in VARIATIONS
        for load in LOADS
        for second in (0, 1)
    ):
        found.append(
            Point(
                profile=PROFILES[(number // 2) % 2],
                kind=kind,
                variation=variation,
                load=load,
                prefill=WORKERS[(number // 2 + 2 * second + number // 8) % 4],
                decode_load=DECODE_LOADS[number % 3],
            )
        )
    if quick:
        return found[::9]
    # In an order in which a run that is broken off has seen something of everything.
    return [found[27 * number % len(found)] for number in range(len(found))]


@dataclass(frozen=True, slots=True, kw_only=True)
class Compared:
    """A prediction against what was found."""

    point: Point
    predicted: float
    found: Found

    @property
    def error(self) -> float:
        """Above zero if the prediction is too high, as a share of what was found."""
        return self.predicted / self.found.value - 1.0

    def told(self, unit: str, factor: float) -> str:
        """Return it in words."""
        return (
            f"{factor * self.predicted:.4g} {unit} predicted, {factor * self.found.value:.4g} found "
            f"({self.error:+.1%}, found within {self.found.half_width:.1%})"
        )


class Judge:
    """Predicts and simulates points."""

    def __init__(self, run: Run, pairs: dict[str, list[tuple[int, int]]]) -> None:
        self._run = run
        # By prompt length, so that even draws are even over prompts.
        self._pairs = {kind: sorted(found) for kind, found in pairs.items()}
        self._work: dict[tuple[str, str], tuple[Floats, Floats, Floats]] = {}
        self._lengths = {kind: lengths_of(found) for kind, found in pairs.items()}
        self._models: dict[str, PerformanceModel] = {name: built_in(name).model() for name in PROFILES}

    def predicted(self, point: Point) -> tuple[Prediction, float, int]:
        """Return the prediction, the requests per second and the number of decode workers."""
        model = self._models[point.profile]
        traffic = Traffic(
            requests_per_s=1.0, lengths=self._lengths[point.kind], arrival_scv=point.variation * point.variation
        )
        prefill = Group(model=model, workers=point.prefill)
        rate = point.load * prefill_rate(prefill, traffic)
        decode = max(1, math.ceil(rate / (sustained_decode_rate(model, traffic) * point.decode_load)))
        found = predict(traffic.at_rate(rate), prefill=(prefill,), decode=(Group(model=model, workers=decode),))
        return found, rate, decode

    def simulated(self, point: Point, rate: float, decode: int) -> tuple[Found, Found, int]:
        """Return p95 of TTFT and of ITL, and the requests of each seed that it took."""
        # Bursts take longer to even out, and so do batches near saturation.
        longer = (1.0 + point.variation * point.variation / 8) * (1.5 if point.load > HEAVY else 1.0)
        count = 1000 if self._run.quick else int(REQUESTS * longer)
        ttft, itl = self._over_seeds(point, rate, decode, count)
        for _ in range(0 if self._run.quick else ATTEMPTS - 1):
            if max(ttft.half_width, itl.half_width) <= AGREED:
                break
            count *= MORE
            ttft, itl = self._over_seeds(point, rate, decode, count)
        return ttft, itl, count

    def _over_seeds(self, point: Point, rate: float, decode: int, count: int) -> tuple[Found, Found]:
        first_s, found_s, itl = [], [], []
        for seed in range(SEEDS):
            asked = self._requests(point, rate, count, f"{seed}")
            ttft_s, between_s = self._simulated(point, decode, asked)
            first_s.append(ttft_s)
            found_s.append(self._sojourns(point, rate, asked))
            itl.append(between_s)
        return _pooled(first_s, found_s, self._long_run_s(point, rate)), _over(itl)

    def _simulated(self, point: Point, decode: int, asked: Requests) -> tuple[Floats, float]:
        """Return TTFT of all requests that count, and p95 of ITL."""
        seen: list[Outcome] = []
        result = Simulation(
            _spec(point.profile, point.prefill, decode),
            iter(asked),
            Settings(policy=FIXED, prefix_caching=False, swing_period_s=600.0, queue_timeout_s=math.inf),
            failures=Random(0),
            ended=seen.append,
        ).run()
        since = WARM_UP * len(asked.at_s)
        ttft = [math.inf if one.ttft_s is None else one.ttft_s for one in seen if one.number >= since]
        return np.array(ttft), result.itl.p95_s or 0.0

    def _long_run_s(self, point: Point, rate: float) -> float:
        """Return p95 of the work that requests find, and their own time after it, in the long run."""
        model, work_s = self._models[point.profile], point.load / rate
        if (point.profile, point.kind) not in self._work:
            self._work[point.profile, point.kind] = prompt_work(model, _each(self._pairs[point.kind]), 0.0)
        work, alone_s, weights = self._work[point.profile, point.kind]
        (long,) = workload.sojourns(
            work, alone_s / work_s, weights, scv=point.variation**2, load=point.load, levels=(LEVEL,)
        )
        return work_s * long

    def _sojourns(self, point: Point, rate: float, asked: Requests) -> Floats:
        """Return the same of the requests of a run that count."""
        work, alone_s, _ = prompt_work(self._models[point.profile], _each(asked.pairs), 0.0)
        found_s = workload.found(np.diff(np.array(asked.at_s), prepend=0.0), point.load / rate * work, alone_s)
        return found_s[int(WARM_UP * len(asked.at_s)) :]

    def _requests(self, point: Point, rate: float, count: int, seed: str) -> Requests:
        return requests(
            self._pairs[point.kind],
            variation=point.variation,
            rate=rate,
            count=count,
            seed=f"{self._run.seed} {seed} {point}",
        )


def measure(run: Run) -> None:
    if run.data(*TRACES.values()) is None:
        return
    pairs = {
        kind: [(one.prompt_tokens, max(1, one.output_tokens)) for one in azure.read(DATA / name)]
        for kind, name in TRACES.items()
    }
    judge = Judge(run, pairs)
    chosen = points(quick=run.quick)
    compared: dict[str, list[Compared]] = {"ttft": [], "itl": []}
    for number, point in enumerate(chosen, 1):
        made = run.part(str(point), partial(_point, judge, point))
        for name, unit, factor in (("ttft", "s", 1.0), ("itl", "ms", 1000.0)):
            predicted, value, half_width = made[name]
            one = Compared(point=point, predicted=predicted, found=Found(value=value, half_width=half_width))
            compared[name].append(one)
            made[f"{name}_told"] = one.told(unit, factor)
        run.say(
            f"{number:3}/{len(chosen)} {point}, {made['decode']} decode at {made['decode_load']:.2f}, "
            f"{SEEDS} x {made['requests']} requests: "
            f"TTFT {made['ttft_told']}; ITL {made['itl_told']}"
        )
    run.figures["points"] = len(chosen)
    for name, found in compared.items():
        _judge(run, name, found)


def _point(judge: Judge, point: Point) -> dict[str, Any]:
    """Predict and simulate one point; both percentiles as predicted, found and half the width of the interval."""
    prediction, rate, decode = judge.predicted(point)
    ttft, itl, each = judge.simulated(point, rate, decode)
    return {
        "decode": decode,
        "requests": each,
        "decode_load": prediction.decode_load,
        "ttft": (prediction.ttft_s[LEVEL], ttft.value, ttft.half_width),
        "itl": (prediction.itl_s[LEVEL], itl.value, itl.half_width),
    }


def _judge(run: Run, name: str, compared: list[Compared]) -> None:
    errors = sorted(abs(one.error) for one in compared)
    below = [one for one in compared if one.point.load < HEAVY]
    run.figures |= {
        f"{name}_p95_mean_bias_share": round(fmean(one.error for one in compared), 4),
        f"{name}_p95_simulation_uncertainty_share_median": round(median(one.found.half_width for one in compared), 4),
        f"{name}_p95_optimism_share_beyond_uncertainty": round(
            max(0.0, *(-one.error - one.found.half_width for one in below)), 4
        ),
    }
    run.at_most(f"median error of {name} p95", median(errors), 0.10)
    run.at_most(f"p95 error of {name} p95", errors[math.ceil(0.95 * len(errors)) - 1], 0.25)
    run.at_most(f"worst optimism of {name} p95 below load {HEAVY:g}", max(0.0, *(-one.error for one in below)), 0.10)


def _pooled(first_s: list[Floats], found_s: list[Floats], long_s: float) -> Found:
    """Return p95 of TTFT over all seeds' requests, brought to the long run, and its error by leaving out each seed."""

    def without(left_out: int) -> float:
        ttft, found = (
            np.concatenate([one for seed, one in enumerate(values) if seed != left_out])
            for values in (first_s, found_s)
        )
        return long_s * float(np.quantile(ttft, LEVEL) / np.quantile(found, LEVEL))

    value, others = without(-1), [without(seed) for seed in range(len(first_s))]
    error = stdev(others) * (len(others) - 1) / math.sqrt(len(others))
    return Found(value=value, half_width=STUDENT_T * error / value)


def _each(pairs: list[tuple[int, int]]) -> Lengths:
    """Return lengths that are kept as they are, one by one."""
    return Lengths(bins=tuple(LengthBin(prompt_tokens=one, output_tokens=two, weight=1.0) for one, two in pairs))


def _over(values: list[float]) -> Found:
    mean = fmean(values)
    return Found(value=mean, half_width=STUDENT_T * stdev(values) / math.sqrt(len(values)) / mean)


def _spec(profile: str, prefill: int, decode: int) -> InferenceClusterSpec:
    return InferenceClusterSpec.model_validate(
        {
            "model": {"name": "lengths"},
            "engine": {"type": "Simulated"},
            "objectives": {"ttft": {"p95": "1s"}, "itl": {"p95": "50ms"}},
            "profile": {"builtIn": profile},
            "pools": [
                {"name": name, "role": name.capitalize(), "replicas": {"mode": "Fixed", "count": count}}
                for name, count in (("prefill", prefill), ("decode", decode))
            ],
        }
    )


if __name__ == "__main__":
    sys.exit(main("queueing_error", measure, takes="ten to twenty minutes of one core, compiled"))
