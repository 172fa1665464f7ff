"""Whether prefill and decode capacity are matched: against Splitwise's published design, and against AIConfigurator.

Splitwise: its measured table for BLOOM 176B on 8 x A100, lengths of the Azure conversation trace, 70 machines. Prefill
one prompt at a time; decode with the largest batch whose step stays within 1.25 times that of a sequence alone (its
objective at the median) and whose contexts fit. The sizing programme splits the machines, and is asked about the
published split of 45 and 25.

AIConfigurator: for each shape (model, system, lengths, objectives, rate) its `recommend` says how many accelerators it
would take. Our plan uses its own figures of single workers: for each pair of tensor parallel sizes the programme
chooses how many prefill and decode workers. Workers for both roles are another way: prompts cut into chunks, with the
chunk and the batch that serve most within the objectives. A plan may mix: several layouts for a role, and a part of the
traffic on workers for both roles; then each layout is judged by itself. The plan of fewest accelerators is judged by
AIConfigurator's own `estimate`: requests per second, TTFT (for separate roles with its factor for queueing in it) and
TPOT.
"""

import sys
from statistics import fmean, median

from benchmarks import harness, peer_plans
from benchmarks.harness import Run, main
from benchmarks.peer_answers import Answers
from benchmarks.peer_plans import Plan, Shape
from swingpool.aiconfigurator.client import AIConfiguratorError
from swingpool.traffic import azure
from swingpool_control import names
from swingpool_control.engine import facts, roofline
from swingpool_control.engine.fit import fit
from swingpool_control.engine.linear import LinearModel
from swingpool_control.engine.measured import splitwise
from swingpool_control.engine.model import decode_step_s, prefill_s
from swingpool_control.sizing.programme import PoolOption, Problem, Rates, solve

TABLE, TRACE = "splitwise/perf_model.csv", "traces/AzureLLMInferenceTrace_conv.csv"
SET = "bloom-176b/a100-80gb/tp8"
MACHINES = 70
OPTIMUM, PUBLISHED = (28, 42), (45, 25)
PUBLISHED_RATE = 70.0
"""Requests per second for which Splitwise sized its designs."""
SLOWER = 1.25
"""Splitwise's objective at the median: a token may take so many times as long as in a batch of one."""
CONTEXT = 512
"""Tokens of context in Splitwise's table of batches."""
KV_TOKENS = 89_235
"""KV cache of a DGX A100 beside BLOOM 176B, by Splitwise's own sizes."""

MODELS = {
    "Qwen/Qwen3-32B-FP8": (1.0, ("h200_sxm", "h100_sxm")),
    "meta-llama/Meta-Llama-3.1-8B": (4.0, ("h200_sxm", "h100_sxm", "b200_sxm")),
    "nvidia/Llama-3.1-70B-Instruct-FP8": (0.5, ("h200_sxm", "h100_sxm", "b200_sxm")),
}
"""Models, the rate each is asked for as a share of the load's, and on what. AIConfigurator's tables for 32B FP8 on B200
let no layout make a token in less than 50 ms."""
LOADS = (
    (4000, 500, 1000.0, 20.0, 20.0),
    (2000, 200, 500.0, 25.0, 40.0),
    (8000, 1000, 2000.0, 30.0, 8.0),
)
"""ISL, OSL, TTFT and TPOT in milliseconds, requests per second."""
FEWER = 0.2


def measure(run: Run) -> None:
    """Split Splitwise's machines, then plan AIConfigurator's shapes."""
    _splitwise(run)
    try:
        with Answers() as answers:
            _aiconfigurator(run, answers)
            run.figures["aiconfigurator_asked_anew"] = answers.asked
    except AIConfiguratorError as error:
        run.skipped.append(str(error))
        run.say(f"skipped: {error}")


def _splitwise(run: Run) -> None:
    files = run.data(TABLE, TRACE)
    if files is None:
        return
    arrivals = list(azure.read(harness.DATA / TRACE))
    model = _model(files[TABLE])
    outputs = fmean(arrival.output_tokens for arrival in arrivals)
    prompts = fmean(arrival.prompt_tokens for arrival in arrivals)
    prefill_rate = 1 / fmean(prefill_s(model, prompt_tokens=arrival.prompt_tokens) for arrival in arrivals)
    batch = _batch(model, most=int(KV_TOKENS / (prompts + outputs)))
    decode_rate = batch / (outputs * decode_step_s(model, sequences=batch, context_tokens=batch * CONTEXT))
    rates = {names.ROLE_PREFILL: prefill_rate, names.ROLE_DECODE: decode_rate}
    best = solve(
        Problem(pools=(_pool("machines", rates, MACHINES, fewest=0),), need=dict.fromkeys(rates, 10.0 * MACHINES))
    )
    split = best.pools[0].by_role
    fixed = dict(zip(rates, PUBLISHED, strict=True))
    published = solve(
        Problem(
            pools=tuple(_pool(role, {role: rates[role]}, count, fewest=count) for role, count in fixed.items()),
            need=dict.fromkeys(rates, PUBLISHED_RATE),
        )
    )
    failing = [constraint.message for constraint in published.violated if constraint.code == "DecodeCapacity"]
    run.figures["splitwise"] = {
        "prefill_requests_per_s_per_machine": round(prefill_rate, 3),
        "decode_requests_per_s_per_machine": round(decode_rate, 3),
        "decode_batch": batch,
        "split": [split[role] for role in rates],
        "split_sustains_requests_per_s": round(min(best.sustained.values()), 1),
        "published_split": list(PUBLISHED),
        "published_prefill_sustains_requests_per_s": round(published.sustained[names.ROLE_PREFILL], 1),
        "published_decode_sustains_requests_per_s": round(published.sustained[names.ROLE_DECODE], 1),
        "published_violates": [constraint.message for constraint in published.violated],
    }
    run.say(f"splitwise: {run.figures['splitwise']}")
    run.at_most("splitwise_machines_off_the_optimum", abs(split[names.ROLE_PREFILL] - OPTIMUM[0]), 1)
    run.at_least("splitwise_published_split_is_called_decode_bound", float(len(failing) == 1), 1)
    run.at_most(
        "splitwise_published_split_fails_at_requests_per_s",
        published.sustained[names.ROLE_DECODE],
        published.sustained[names.ROLE_PREFILL],
    )


def _pool(name: str, rates: dict[str, float], most: int, *, fewest: int) -> PoolOption:
    steps = {role: Rates(steps=((1, rate),)) for role, rate in rates.items()}
    return PoolOption(name=name, rates=steps, fewest=fewest, most=most, price_per_hour=1.0)


def _model(table: bytes) -> LinearModel:
    measured = next(found for found in splitwise.read({TABLE: table}) if found.name == SET)
    principles = roofline.step_cost(
        facts.shape("bloom-176b"), facts.accelerator("a100-80gb"), tensor_parallel_size=8, weight_bytes=2.0
    )
    return LinearModel(
        name=SET,
        step=fit(measured.points, max_batched_tokens=measured.max_batched_tokens, first_principles=principles),
        kv_capacity_tokens=KV_TOKENS,
        kv_bytes_per_token=roofline.kv_bytes_per_token(facts.shape("bloom-176b")),
        max_batched_tokens=measured.max_batched_tokens,
        max_sequences=measured.max_sequences,
        link_bytes_per_s=2e11,
        link_latency_s=0.0,
        startup_s=0.0,
    )


def _batch(model: LinearModel, *, most: int) -> int:
    """Return the largest batch within the objective of decode."""
    limit_s = SLOWER * decode_step_s(model, sequences=1, context_tokens=CONTEXT)
    fitting = [
        n for n in range(1, most + 1) if decode_step_s(model, sequences=n, context_tokens=n * CONTEXT) <= limit_s
    ]
    return max(fitting)


def shapes(*, quick: bool) -> tuple[Shape, ...]:
    """Return the shapes; the first is the one that was known before."""
    found = tuple(
        Shape(
            model=model,
            system=system,
            isl=isl,
            osl=osl,
            ttft_ms=ttft_ms,
            tpot_ms=tpot_ms,
            requests_per_s=rate * share,
        )
        for isl, osl, ttft_ms, tpot_ms, rate in LOADS
        for model, (share, systems) in MODELS.items()
        for system in systems
    )
    return found[:1] if quick else found


def _aiconfigurator(run: Run, answers: Answers) -> None:
    found: dict[Shape, tuple[int, Plan]] = {}
    refused: list[str] = []
    impossible: list[str] = []
    for shape in shapes(quick=run.quick):
        theirs = peer_plans.recommended(answers, shape)
        if theirs is None:
            impossible.append(shape.name)
            run.say(f"{shape.name}: left out, AIConfigurator finds nothing within the objectives")
            continue
        ways = (peer_plans.split, peer_plans.chunked, peer_plans.together, peer_plans.mixed)
        plans = [plan for plan in (way(answers, shape) for way in ways) if plan is not None]
        plan = min(plans, key=lambda plan: plan.accelerators, default=None)
        if plan is None:
            refused.append(shape.name)
            run.say(f"{shape.name}: no plan of ours, {theirs} theirs")
            continue
        found[shape] = theirs, plan
        run.say(
            f"{shape.name}: ours {plan.accelerators} ({plan.words}; {plan.requests_per_s:.2f}/s, TTFT "
            f"{plan.ttft_ms:.0f} ms, TPOT {plan.tpot_ms:.1f} ms), theirs {theirs}"
        )
    run.figures["aiconfigurator_finds_nothing"] = impossible
    large = [share for shape in found if (share := peer_plans.without_rounding(answers, shape)) is not None]
    run.figures["median_share_of_theirs_in_large_fleets"] = round(median(large), 3)
    run.say(f"in fleets so large that nothing is rounded: {median(large):.3f} of theirs in the median")
    _figures(run, found, refused)


def _figures(run: Run, found: dict[Shape, tuple[int, Plan]], refused: list[str]) -> None:
    ratios = [plan.accelerators / theirs for theirs, plan in found.values()]
    broken = [shape.name for shape, (_, plan) in found.items() if not plan.holds(shape)] + refused
    run.figures["aiconfigurator"] = {
        "shapes": len(found),
        "accelerators": {shape.name: [plan.accelerators, theirs] for shape, (theirs, plan) in found.items()},
        "plans": {shape.name: plan.words for shape, (_, plan) in found.items()},
        "median_share_of_theirs": round(median(ratios), 3),
        "worst_share_of_theirs": round(max(ratios), 3),
        "not_within_objectives": broken,
    }
    run.at_most("aiconfigurator_plans_out_of_objectives", len(broken), 0)
    run.at_most("aiconfigurator_worst_accelerators_over_theirs", max(ratios), 1.0)
    if not run.quick:
        run.at_most("aiconfigurator_median_accelerators_over_theirs", median(ratios), 1 - FEWER)
        run.at_least("aiconfigurator_shapes", len(found), 21)


if __name__ == "__main__":
    sys.exit(
        main("rate_matching", measure, takes="a few minutes, or half an hour if AIConfigurator must be asked anew")
    )
