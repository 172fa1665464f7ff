"""The plan as a user reads it: workers by pool, the figures that were seen, what bound, and why."""

from collections.abc import Mapping

from swingpool_control import names
from swingpool_control.api.status import ObservedFigure, Plan, PlanAlternative, PlannedPool, PlanThreshold, Reason
from swingpool_control.api.v1alpha1 import ReplicaMode, ScalingMode
from swingpool_control.engine.calibration import Calibration
from swingpool_control.figures import Unknown
from swingpool_control.sizing.asked import as_is
from swingpool_control.sizing.budget import Bound
from swingpool_control.sizing.coming import Coming
from swingpool_control.sizing.demand import Demand
from swingpool_control.sizing.need import Need
from swingpool_control.sizing.pools import PoolFacts
from swingpool_control.sizing.programme import Answer, judge, split
from swingpool_control.timestamps import rfc3339
from swingpool_control.view import ClusterView

MAX_MESSAGE = 1024

UNKNOWN = "Unknown"
"""Code of the reason that the demand is unknown."""


def plan(
    view: ClusterView,
    facts: tuple[PoolFacts, ...],
    seen: Demand | Unknown,
    *,
    ahead: Coming | Unknown,
    wanted: Mapping[str, int],
    need: Need,
    bound: Bound | None,
    now_unix_s: float,
) -> Plan:
    """Return the plan.

    Args:
        view: the cluster.
        facts: what was known of its pools.
        seen: the demand it stands on.
        ahead: what is expected, or why nothing is.
        wanted: workers by pool.
        need: what they shall cover.
        bound: what kept the plan from covering it, if anything.
        now_unix_s: the time.
    """
    problem = as_is(facts, wanted, need, view.spec.scaling)
    answer = judge(problem, split(problem, wanted))
    return Plan(
        at=rfc3339(now_unix_s),
        pools=[PlannedPool(name=pool.name, replicas=wanted[pool.name]) for pool in facts],
        prefill_workers=_in_role(answer, names.ROLE_PREFILL),
        decode_workers=_in_role(answer, names.ROLE_DECODE),
        binding="" if bound is None else f"{bound.code}: {bound.message}",
        reasons=_reasons(view, facts, seen, wanted, bound),
        observed=[*_observed(seen), *_factors(view.calibration)],
        forecast=_expected(ahead),
        alternatives=() if isinstance(seen, Unknown) else _alternatives(facts, answer),
        thresholds=() if isinstance(seen, Unknown) else _thresholds(answer),
    )


def summary(plan: Plan) -> str:
    """Return a plan as one line for the log; the same line for the same decision."""
    pools = ", ".join(f"{pool.name} {pool.replicas}" for pool in plan.pools)
    return f"{pools}: {', '.join(reason.code for reason in plan.reasons)}"


def _reasons(
    view: ClusterView,
    facts: tuple[PoolFacts, ...],
    seen: Demand | Unknown,
    wanted: Mapping[str, int],
    bound: Bound | None,
) -> list[Reason]:
    reasons = [_reason(UNKNOWN, f"nothing goes down: {seen.why}")] if isinstance(seen, Unknown) else []
    for pool in facts:
        if wanted[pool.name] > pool.asked:
            reasons.append(_reason("ScaleUp", f"pool {pool.name} from {pool.asked} to {wanted[pool.name]} workers"))
        if wanted[pool.name] < pool.asked:
            reasons.append(_reason("ScaleDown", f"pool {pool.name} from {pool.asked} to {wanted[pool.name]} workers"))
        if pool.blocked:
            reasons.append(_reason("NoCapacity", f"pool {pool.name} is not asked for more: {pool.blocked}"))
    if bound is not None:
        reasons.append(_reason(bound.code, f"more workers are needed but {bound.message} does not allow them"))
    if not isinstance(seen, Unknown):
        reasons += _infeasible(facts)
    if view.spec.scaling.mode is ScalingMode.RECOMMEND and any(pool.mode is ReplicaMode.AUTO for pool in facts):
        reasons.append(_reason("Recommend", "spec.scaling.mode is Recommend: the plan is not carried out"))
    return (reasons or [_reason("Enough", "the workers that run are what is needed")])[:16]


def _infeasible(facts: tuple[PoolFacts, ...]) -> list[Reason]:
    """Objectives that no number of workers can reach by the performance model."""
    found = []
    for role, code, message in (
        (names.ROLE_PREFILL, "TTFTInfeasible", "by the model no number of workers meets the TTFT objective"),
        (names.ROLE_DECODE, "ITLInfeasible", "by the model no number of workers meets the ITL objective"),
    ):
        if all(role in pool.unreachable for pool in facts if role in pool.rates):
            found.append(_reason(code, message))
    return found


def _in_role(answer: Answer, role: str) -> int:
    return sum(pool.by_role.get(role, 0) for pool in answer.pools)


def _alternatives(facts: tuple[PoolFacts, ...], answer: Answer) -> list[PlanAlternative]:
    """The plan's neighbours, those that would break nothing first."""
    priced = not any(isinstance(pool.price_per_hour, Unknown) for pool in facts)
    ordered = sorted(answer.alternatives, key=lambda one: (one.breaks is not None, one.cost_per_hour))
    return [
        PlanAlternative(
            change=one.change[:256],
            cost_per_hour=f"{one.cost_per_hour:+.4g}" if priced else "",
            breaks="" if one.breaks is None else f"{one.breaks.code}: {one.breaks.message}"[:512],
        )
        for one in ordered[:16]
    ]


def _thresholds(answer: Answer) -> list[PlanThreshold]:
    return [
        PlanThreshold(at=f"{one.requests_per_s:.3g} requests/s", change=one.change[:256]) for one in answer.thresholds
    ]


def _reason(code: str, message: str) -> Reason:
    return Reason(code=code, message=message[:MAX_MESSAGE])


def _expected(ahead: Coming | Unknown) -> list[ObservedFigure]:
    if isinstance(ahead, Unknown):
        return [ObservedFigure(name="forecast", value=f"unknown: {ahead.why}"[:256])]
    figures = {
        "requestsPerSecond": f"{ahead.requests.expected:.4g}",
        "requestsPerSecondAtMost": f"{ahead.requests.upper:.4g}",
        "promptTokensPerSecond": f"{ahead.prompt_tokens.expected:.4g}",
        "promptTokensPerSecondAtMost": f"{ahead.prompt_tokens.upper:.4g}",
        "model": ahead.requests.model,
    }
    return [ObservedFigure(name=name, value=value[:256]) for name, value in figures.items()]


def _factors(calibration: Calibration) -> list[ObservedFigure]:
    """By how much work takes longer than the profiles say, and why that does not move."""
    factors = {names.ROLE_PREFILL: calibration.prefill, names.ROLE_DECODE: calibration.decode}
    return [
        ObservedFigure(
            name=f"{role}TimeFactor",
            value=f"{factor:.3g}" + (f" ({calibration.why[role]})" if role in calibration.why else "")[:240],
        )
        for role, factor in factors.items()
    ]


def _observed(seen: Demand | Unknown) -> list[ObservedFigure]:
    if isinstance(seen, Unknown):
        return [ObservedFigure(name="demand", value=f"unknown: {seen.why}"[:256])]
    figures = {
        "requestsPerSecond": seen.requests_per_s,
        "promptTokensPerSecond": seen.prompt_tokens_per_s,
        "pendingPromptTokens": seen.pending_tokens,
        "sequences": seen.sequences,
        "generatedTokensPerSecond": seen.generated_tokens_per_s,
        "kvTokens": seen.kv_tokens,
        "meanInputTokens": seen.shape.isl_tokens,
        "meanOutputTokens": seen.shape.osl_tokens,
    }
    return [ObservedFigure(name=name, value=f"{value:.4g}") for name, value in figures.items()]
