"""The simulator against Mooncake's sweep of static splits: 16 nodes of eight A800, a 70B model, its synthetic trace.

Published: of 5 prefill and 11 decode nodes to 11 and 5, about as many of each serve most requests within a TTFT of 10 s
and 100 ms between tokens. Here nodes take what Splitwise measured of Llama-2-70B on eight A100: engines of that time
spend far more on long contexts than the hardware must, and that is what makes decode as dear as prefill.

Mooncake's cache belongs to the whole cluster: what any request has had computed, all others find. So a prompt is as
long for prefill as what no earlier request had of it, and decode reads contexts that are longer in the mean proportion.
"""

from dataclasses import replace
from functools import partial
from random import Random

from benchmarks.checks.simulated import DECODE, PREFILL, settings, spec
from benchmarks.endless import cached_tokens
from benchmarks.harness import DATA, Run
from swingpool.traffic.read import Scaling, read
from swingpool.traffic.synthetic import Seeds
from swingpool_control.engine import facts, roofline
from swingpool_control.engine.fit import fit
from swingpool_control.engine.linear import LinearModel
from swingpool_control.engine.measured import splitwise
from swingpool_control.simulation.cluster import Simulation
from swingpool_control.simulation.outcome import Outcome
from swingpool_control.simulation.policies.interface import Policy
from swingpool_control.simulation.policies.live import Features, Live
from swingpool_control.simulation.settings import Latencies
from swingpool_control.simulation.traffic import Arrival

TRACE, TABLE = "traces/mooncake_synthetic_trace.jsonl", "splitwise/perf_model.csv"
SET, SHAPE, ACCELERATOR, ACCELERATORS = "llama2-70b/a100-80gb/tp8", "llama-2-70b", "a100-80gb", 8
NODES, FEWEST = 16, 5
TTFT_S, TBT_S = 10.0, 0.1
LINK_BYTES_PER_S, HANDSHAKE_S = 87e9, 0.005
USABLE = 0.9
"""Of the accelerators' memory."""
NEAR = 1
"""Nodes off one to one that count as near."""

STATIC = Policy(
    name="static roles",
    about="Fixed roles, our placement.",
    make=partial(Live, features=Features(swing=False, sizing=False, deflection=False)),
)


def check(run: Run) -> None:
    """Find the best split."""
    if run.quick:
        run.say("Mooncake's splits take more than a minute: not in the quick run")
        return
    files = run.data(TRACE, TABLE)
    if files is None:
        return
    arrivals, longer = _arrivals(run.seed)
    model = _model(files[TABLE])
    decode = replace(
        model,
        step=replace(model.step, context_token_s=model.step.context_token_s * longer),
        kv_capacity_tokens=int(model.kv_capacity_tokens / longer),
        kv_bytes_per_token=model.kv_bytes_per_token * longer,  # what is pulled is the whole context
    )
    shares = {}
    for prefill in range(FEWEST, NODES - FEWEST + 1):
        shares[prefill] = _share(arrivals, model, decode, prefill)
        run.say(f"Mooncake's trace on {prefill}P{NODES - prefill}D: {shares[prefill]:.1%} within both objectives")
    best = max(shares, key=lambda prefill: shares[prefill])
    run.figures["mooncake_share_within_by_prefill_nodes"] = {count: round(one, 3) for count, one in shares.items()}
    run.at_most("Mooncake's best split: nodes off one to one", abs(best - NODES // 2), NEAR)


def _arrivals(seed: int) -> tuple[list[Arrival], float]:
    """Return the trace with what must be computed of each prompt, and how much longer whole prompts are."""
    trace = list(read(DATA / TRACE, seeds=Seeds(arrivals=seed, lengths=seed), scaling=Scaling()))
    found = [
        Arrival(one.at_s, one.prompt_tokens - cached, one.output_tokens)
        for one, cached in zip(trace, cached_tokens(trace), strict=True)
    ]
    return found, sum(one.prompt_tokens for one in trace) / sum(one.prompt_tokens for one in found)


def _model(table: bytes) -> LinearModel:
    measured = next(one for one in splitwise.read({TABLE: table}) if one.name == SET)
    shape, accelerator = facts.shape(SHAPE), facts.accelerator(ACCELERATOR)
    kv_bytes = roofline.kv_bytes_per_token(shape)
    free_bytes = ACCELERATORS * accelerator.memory_bytes * USABLE - 2 * shape.parameters
    return LinearModel(
        name=SET,
        step=fit(
            measured.points,
            max_batched_tokens=measured.max_batched_tokens,
            first_principles=roofline.step_cost(shape, accelerator, tensor_parallel_size=ACCELERATORS),
        ),
        kv_capacity_tokens=int(free_bytes / kv_bytes),
        kv_bytes_per_token=kv_bytes,
        max_batched_tokens=8192,
        max_sequences=256,
        link_bytes_per_s=LINK_BYTES_PER_S,
        link_latency_s=HANDSHAKE_S,
        startup_s=0.0,
    )


def _share(arrivals: list[Arrival], model: LinearModel, decode: LinearModel, prefill: int) -> float:
    found: list[Outcome] = []
    Simulation(
        spec(),
        arrivals,
        settings(STATIC, {PREFILL: prefill, DECODE: NODES - prefill}, Latencies()),
        failures=Random(0),
        known={PREFILL: model, DECODE: decode},
        ended=found.append,
    ).run()
    return sum(_in_time(one) for one in found) / len(found)


def _in_time(outcome: Outcome) -> bool:
    ttft_s = outcome.ttft_s
    return (
        outcome.result == "completed"
        and ttft_s is not None
        and ttft_s <= TTFT_S
        and (outcome.mean_itl_s or 0.0) <= TBT_S
    )
