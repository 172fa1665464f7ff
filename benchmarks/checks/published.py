"""The simulator against what others measured or simulated: DistServe's worked example and Dynamo's break-even.

DistServe: OPT-13B on A100s, prompts of 512 and answers of 64 tokens, 90% of requests within a TTFT of 200 ms and a mean
time per token of 100 ms, one prefill and one decode worker. Its own simulator sustains 3.4 requests/s per GPU with its
authors' fitted times (the paper's example: 3.3). Its rules: all prompts that wait are computed together, a first token
counts when its prompt is computed, a transfer takes no time.

Dynamo: Llama-3.1-8B, ten clients, answers of 50 tokens, a transfer of 37 ms; disaggregation's gain in throughput was
0, 3, 14 and 22% for prompts of 1k, 2k, 4k and 8k tokens, and times between tokens fell by 7, 11, 18 and 41%. What was
compared is not told in full; it can only be one worker that serves whole requests with a prefill and a decode worker,
since two of the former compute long prompts twice as fast as one prefill worker does.
"""

from dataclasses import replace
from itertools import pairwise
from random import Random
from statistics import fmean

from benchmarks.checks.simulated import DECODE, PREFILL, WHOLE, ClosedLoop, Noting, outcomes, split
from benchmarks.harness import Run
from swingpool_control.engine import facts, roofline
from swingpool_control.engine.fit import fit
from swingpool_control.engine.linear import LinearModel
from swingpool_control.engine.measured import distserve as formulas
from swingpool_control.engine.profile import built_in
from swingpool_control.simulation.outcome import Outcome
from swingpool_control.simulation.traffic import Arrival

DISTSERVE = "profiles/distserve_profiler-a100-80g.distserve.json"
PAIR = {PREFILL: 1, DECODE: 1}
PER_GPU, PAPER_PER_GPU = 3.4, 3.3
WITHIN = 0.10
ISL, OSL = 512, 64
TTFT_S, TPOT_S, SHARE = 0.2, 0.1, 0.9
HALVINGS = 7

CLIENTS, ANSWER_TOKENS, KV_S = 10, 50, 0.037
PROMPTS = (1024, 2048, 4096, 8192)
THROUGHPUT_GAINS, ITL_GAINS = (0.0, 0.03, 0.14, 0.22), (-0.07, -0.11, -0.18, -0.41)
PROFILE = "llama-3.1-8b-fp8-h200"


def check_distserve(run: Run) -> None:
    """Find the highest rate that one prefill and one decode worker sustain."""
    files = run.data(DISTSERVE)
    if files is None:
        return
    model = _opt(files)
    requests = 600 if run.quick else 4_000
    low, high = 4.0, 10.0
    for _ in range(HALVINGS):
        middle = (low + high) / 2
        low, high = (middle, high) if _attainment(model, middle, requests, run.seed) >= SHARE else (low, middle)
    per_gpu = low / 2
    run.say(
        f"DistServe's example: {low:.2f} requests/s on a pair, {per_gpu:.2f} per GPU; "
        f"its simulator {PER_GPU}, its paper {PAPER_PER_GPU}"
    )
    run.figures["distserve_requests_per_s_per_gpu"] = round(per_gpu, 2)
    run.at_most("DistServe's example: relative difference from its own simulator", abs(per_gpu / PER_GPU - 1), WITHIN)


def _opt(files: dict[str, bytes]) -> LinearModel:
    measured = next(one for one in formulas.read(files) if one.name == "facebook/opt-13b/tp1")
    shape = facts.shape("opt-13b")
    step = fit(
        measured.points,
        max_batched_tokens=measured.max_batched_tokens,
        first_principles=roofline.step_cost(shape, facts.accelerator("a100-80gb")),
    )
    return LinearModel(
        name=measured.name,
        step=step,
        kv_capacity_tokens=50_000,
        kv_bytes_per_token=roofline.kv_bytes_per_token(shape),
        max_batched_tokens=10**6,
        max_sequences=256,
        link_bytes_per_s=1e15,
        link_latency_s=0.0,
        startup_s=0.0,
    )


def _attainment(model: LinearModel, rate: float, requests: int, seed: int) -> float:
    """Return the share of requests within both objectives."""
    random = Random(seed)
    at_s, arrivals = 0.0, []
    for _ in range(requests):
        at_s += random.expovariate(rate)
        arrivals.append(Arrival(at_s, ISL, OSL))
    noting = Noting()
    found = outcomes(arrivals, split(noting), {PREFILL: model, DECODE: model}, workers=PAIR)
    good = 0
    for one in found:
        first_s = noting.computed_s[one.number]
        good += first_s - one.arrival.at_s <= TTFT_S and (one.end_s - first_s) / OSL <= TPOT_S
    return good / len(found)


def check_dynamo(run: Run) -> None:
    """Compare a worker that serves whole requests with a pair, by prompt length."""
    model = replace(built_in(PROFILE).model(), link_latency_s=KV_S)
    requests = 100 if run.quick else 1_000
    throughput, itl = [], []
    for tokens, measured, measured_itl in zip(PROMPTS, THROUGHPUT_GAINS, ITL_GAINS, strict=True):
        request = Arrival(0.0, tokens, ANSWER_TOKENS)
        loops = [
            ClosedLoop(request, clients=CLIENTS, requests=requests, policy=policy, model=model, workers=workers)
            for policy, workers in ((WHOLE, {PREFILL: 0, DECODE: 1}), (split(Noting()), PAIR))
        ]
        together, apart = (loop.answered() for loop in loops)
        throughput.append(_per_s(apart) / _per_s(together) - 1)
        itl.append(_itl_s(apart) / _itl_s(together) - 1)
        run.say(
            f"Dynamo's clients, prompts of {tokens}: throughput {throughput[-1]:+.0%} (measured {measured:+.0%}), "
            f"time between tokens {itl[-1]:+.0%} (measured {measured_itl:+.0%})"
        )
    run.figures["dynamo_throughput_gains"] = [round(gain, 3) for gain in throughput]
    run.figures["dynamo_itl_gains"] = [round(gain, 3) for gain in itl]
    run.at_least("Dynamo's clients: least gain in throughput, 2k to 8k", min(throughput[1:]), 0.0)
    run.at_least("Dynamo's clients: throughput at 1k, where no gain was measured", throughput[0], -WITHIN)
    run.at_most("Dynamo's clients: throughput at 1k against that at 2k", throughput[0] - throughput[1], 0.0)
    steps = [after - before for before, after in pairwise(itl)]
    run.at_most("Dynamo's clients: change of ITL at 1k", itl[0], 0.0)
    run.at_most("Dynamo's clients: its largest step from one length to the next, all downwards", max(steps), 0.0)


def _per_s(answered: list[Outcome]) -> float:
    return (len(answered) - 1) / (answered[-1].end_s - answered[0].end_s)


def _itl_s(answered: list[Outcome]) -> float:
    return fmean(one.mean_itl_s for one in answered if one.mean_itl_s is not None)
