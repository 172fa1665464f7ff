"""What a plan says, in rows that the terminal and the page show alike."""

from swingpool.plan.manifest import may_shrink
from swingpool.plan.run import Plan, counts
from swingpool.simulate.table import percent, seconds
from swingpool_control.planning.mix import Mix
from swingpool_control.planning.variations import Variation
from swingpool_control.simulation.result import Result

Row = tuple[str, ...]

CHECKS = ("simulated", "workers", "per hour", "met TTFT and ITL", "TTFT p95", "ITL p95", "objectives")
VARIATIONS = ("if", "workers", "per hour", "against the plan")


def verdict(plan: Plan) -> str:
    """Return the answer in one or two sentences."""
    chosen, whole = plan.chosen, plan.whole
    if chosen is None:
        text = f"No mix within the limits holds the objectives. {_why_not(plan)}"
        return text if whole is None else f"{text} Without disaggregation {whole.workers} of {whole.pool} hold them."
    text = f"{counts(chosen.mix)}: {chosen.mix.total} workers, {_cost(plan, chosen.mix)} per hour."
    if plan.worth_it and whole is not None:
        saved = 1 - chosen.mix.cost_per_hour / whole.cost_per_hour
        return f"{text} Without disaggregation it takes {whole.workers} of {whole.pool}: {saved:.0%} are saved."
    if plan.worth_it:
        return f"{text} Without disaggregation none of the numbers that were tried holds the objectives."
    assert whole is not None  # noqa: S101 - what is not worth it has an alternative
    return f"{text} Disaggregation is not worth it here: {whole.workers} workers of {whole.pool} that serve whole " + (
        f"requests hold the objectives for {_money(plan, whole.cost_per_hour)} per hour."
    )


def reasons(plan: Plan) -> tuple[str, ...]:
    """Return what made the plan as large as it is, and what would change it."""
    mix = (plan.chosen or plan.checks[0]).mix
    answer, found = mix.at_peak, []
    peak = mix.peak
    found.append(
        f"The hardest stretch begins at {seconds(peak.from_s)}: {peak.traffic.requests_per_s:.2f} requests/s of "
        f"{peak.traffic.lengths.mean_prompt_tokens:.0f} prompt and {peak.traffic.lengths.mean_output_tokens:.0f} "
        f"output tokens."
    )
    found.append(
        "There, of what the workers sustain: " + ", ".join(f"{role} {load:.0%}" for role, load in answer.load.items())
    )
    if answer.binding is not None:
        found.append(f"What binds: {answer.binding.message}")
    found.extend(f"Next: {one.change}" for one in answer.thresholds[:2])
    return tuple(found)


def checks(plan: Plan) -> list[Row]:
    """Return a row for everything that was simulated."""
    rows = [_check(plan, one.change, counts(one.mix), one.mix.cost_per_hour, one.result) for one in plan.checks]
    if plan.elastic is not None and plan.chosen is not None:
        hours = plan.elastic.result.accelerator_hours / max(1e-9, plan.chosen.result.accelerator_hours)
        name = f"the plan, {plan.elastic.change} ({hours:.0%} of the accelerator hours)"
        rows.append(_check(plan, name, counts(plan.elastic.mix), plan.elastic.mix.cost_per_hour, plan.elastic.result))
    rows += [
        _check(plan, "without disaggregation", f"{one.workers} {one.pool}", one.cost_per_hour, one.result)
        for one in plan.aggregated
    ]
    return rows


def others(plan: Plan) -> list[Row]:
    """Return a row for each other question, by the formulas alone, against what they propose for the asked one."""
    return [_variation(plan, one) for one in plan.others]


def rates(plan: Plan) -> list[Row]:
    """Return a row for each rate, by the formulas alone."""
    return [_variation(plan, one) for one in plan.rates]


def shrinks(plan: Plan) -> str:
    """Return whether swing pools may shrink in quiet times."""
    if plan.elastic is None:
        return ""
    if may_shrink(plan.elastic):
        return "Swing pools may shrink in quiet times: the simulation held so too."
    return "Swing pools keep their size: when they shrank in quiet times, the simulation did not hold."


def _why_not(plan: Plan) -> str:
    violated = plan.checks[0].mix.violated
    if violated:
        return " ".join(one.message for one in violated)
    return "The formulas expected the first to hold; the simulations below show what was missed."


def _check(plan: Plan, change: str, workers: str, cost: float, result: Result) -> Row:
    missed = [f"{one.metric.upper()} {one.percentile}" for one in result.objectives if not one.holds]
    lost = result.refused + result.failed
    if lost:
        missed.append(f"{lost:,} requests lost")
    return (
        change,
        workers,
        _money(plan, cost),
        percent(result.attainment),
        seconds(result.ttft.p95_s),
        seconds(result.itl.p95_s),
        "holds" if not missed else f"{', '.join(missed)} FAILS",
    )


def _variation(plan: Plan, one: Variation) -> Row:
    proposed = plan.checks[0].mix
    if one.mix.violated:
        return one.change, counts(one.mix), _cost(plan, one.mix), f"does not hold: {one.mix.violated[0].message}"
    ratio = one.mix.cost_per_hour / proposed.cost_per_hour if proposed.cost_per_hour else 1.0
    return one.change, counts(one.mix), _cost(plan, one.mix), f"{ratio - 1:+.0%}"


def _cost(plan: Plan, mix: Mix) -> str:
    return _money(plan, mix.cost_per_hour)


def _money(plan: Plan, cost: float) -> str:
    priced = any(pool.cost_per_hour is not None for pool in plan.asked.spec.pools)
    return f"{cost:.2f}" if priced else f"{cost:.0f} accelerators"
