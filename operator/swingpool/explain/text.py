"""An explanation as a person reads it."""

from collections.abc import Iterable, Mapping
from typing import Any

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from swingpool_control.api.status import InferenceClusterStatus, ObservedFigure, Plan
from swingpool_control.conditions.conditions import Type
from swingpool_control.replay.decision import Decision, Recording, SwingDecision
from swingpool_control.swing.balance import State
from swingpool_control.timestamps import rfc3339

SHOWN_CONDITIONS = (Type.METRICS_AVAILABLE, Type.OBJECTIVES_MET, Type.ROLES_BALANCED, Type.SCALING_LIMITED)
SHOWN_FLIPS = 5


def status(name: str, mode: str, found: InferenceClusterStatus) -> RenderableType:
    """Return what a status says about why the cluster is as it is.

    Args:
        name: `namespace/name`.
        mode: of scaling: a recommendation is not carried out.
        found: the status.
    """
    parts: list[RenderableType] = [Text(f"{name}   {found.roles}   workers {found.workers}   scaling {mode}", "bold")]
    parts += [
        Text(f"{condition.type} {condition.status}: {condition.message}")
        for condition in found.conditions
        if condition.type in SHOWN_CONDITIONS
    ]
    if found.plan is None:
        parts.append(Text("\nno plan was made yet"))
    else:
        parts += _plan(found.plan, only_recommended=mode == "Recommend")
    if found.flips:
        parts.append(Text("\nLast changes of role", "bold"))
        parts += [
            Text(f"  {flip.decided_at}  {flip.worker}: {flip.from_} to {flip.to}, {flip.outcome}: {flip.reason}")
            for flip in found.flips[:SHOWN_FLIPS]
        ]
    return Group(*parts)


def _plan(plan: Plan, *, only_recommended: bool) -> list[RenderableType]:
    title = "\nRecommended, not carried out" if only_recommended else "\nPlan"
    pools = ", ".join(f"{pool.name} {pool.replicas}" for pool in plan.pools)
    parts: list[RenderableType] = [
        Text(f"{title} of {plan.at}", "bold"),
        Text(f"  {pools}: {plan.prefill_workers} for prefill, {plan.decode_workers} for decode"),
        *(Text(f"  {reason.code}: {reason.message}") for reason in plan.reasons),
    ]
    if plan.binding:
        parts.append(Text(f"  bound by {plan.binding}"))
    for heading, figures in (("Observed", plan.observed), ("Expected", plan.forecast)):
        if figures:
            parts += [Text(f"\n{heading}", "bold"), _figures(figures)]
    if plan.alternatives:
        parts.append(Text("\nInstead", "bold"))
        for other in plan.alternatives:
            cost = f", {other.cost_per_hour} per hour" if other.cost_per_hour else ""
            parts.append(Text(f"  {other.change}{cost}" + (f": breaks {other.breaks}" if other.breaks else "")))
    if plan.thresholds:
        parts.append(Text("\nWhat would change it", "bold"))
        parts += [Text(f"  at {item.at}: {item.change}") for item in plan.thresholds]
    return parts


def _figures(figures: Iterable[ObservedFigure]) -> Table:
    table = Table(box=None, show_header=False, padding=(0, 2))
    for figure in figures:
        table.add_row(figure.name, figure.value)
    return table


def decisions(recording: Recording) -> RenderableType:
    """Return the newest decision of each loop in words."""
    parts: list[RenderableType] = []
    newest = {decision.loop: decision for decision in recording.decisions}
    for loop, decision in newest.items():
        parts.append(Text(f"\nLast decision on {'roles' if loop == 'swing' else 'replicas'}", "bold"))
        parts.append(Text(f"  {rfc3339(decision.now_unix_s)}  {decision.result.summary}"))
        if isinstance(decision, SwingDecision):
            parts += [Text(f"  {line}") for line in _balance(decision)]
    return Group(*parts)


def _balance(decision: SwingDecision) -> list[str]:
    pods = {worker.uid: worker.pod for worker in decision.view.workers}
    found = []
    for item in decision.result.memory.balance:
        text = {State.ENOUGH: "has what it needs", State.SHORTAGE: "is short of workers"}.get(item.state)
        text = text or f"is skewed: {pods.get(item.worker, 'one worker')} is loaded far beyond the others"
        found.append(f"{item.role} {text} since {rfc3339(item.since_unix_s)}")
    return found


def requests(found: Iterable[dict[str, Any]]) -> RenderableType:
    """Return what pickers remember of requests, as they tell it, with seconds since the arrival of each."""
    parts: list[RenderableType] = []
    for one in found:
        who = ", ".join(f"{key} {one[key]}" for key in ("class", "tenant") if one[key])
        kind = "stream" if one["stream"] else "not streamed"
        parts.append(Text(f"{one['requestID']}   {one['path']}, {kind}   {who}".rstrip(), "bold"))
        parts.append(
            Text(f"arrived {rfc3339(one['arrivedUnixS'])} at {one['router']}, {one['promptTokens']} prompt tokens")
        )
        table = Table(box=None, show_header=False, padding=(0, 2))
        for step in one["steps"]:
            table.add_row(f"{step['afterS']:.3f} s", step["what"])
        if one["firstTokenAfterS"] is not None:
            table.add_row(f"{one['firstTokenAfterS']:.3f} s", _first_token(one))
        if one["endedAfterS"] is not None:
            trouble = f": {one['trouble']}" if one["trouble"] else ""
            table.add_row(f"{one['endedAfterS']:.3f} s", f"ended with status {one['status'] or 'none'}{trouble}")
        else:
            table.add_row("", "under way")
        parts += [table, Text("")]
    return Group(*parts[:-1])


def _first_token(one: Mapping[str, Any]) -> str:
    foreseen = one.get("predictedFirstTokenAfterS")  # pickers of before do not tell it
    return "first token" if foreseen is None else f"first token, predicted at {foreseen:.3f} s"


def replayed(
    recording: Recording, found: Iterable[tuple[Decision, tuple[str, ...]]], *, version: str
) -> RenderableType:
    """Return what became of decisions that were made again.

    Args:
        recording: what was recorded.
        found: each decision, and where it differs now.
        version: of this program.
    """
    parts: list[RenderableType] = [
        Text(f"{recording.cluster}, decided by swingpool {recording.version}, again by {version}", "bold")
    ]
    for decision, differences in found:
        verdict = "the same" if not differences else f"DIFFERS in {len(differences)} places"
        style = "" if not differences else "bold red"
        parts.append(
            Text(f"{rfc3339(decision.now_unix_s)}  {decision.loop}: {verdict}: {decision.result.summary}", style)
        )
        parts += [Text(f"    {line}") for line in differences[:10]]
    return Group(*parts)
