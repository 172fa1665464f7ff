"""One picture of a cluster: what the router saw, every worker, and what was decided last."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from swingpool_control.api.objectives import LatencyObjective
from swingpool_control.api.quantities import seconds
from swingpool_control.figures import Figure, Unknown
from swingpool_control.observation import Percentiles, RouterObservation, WorkerObservation
from swingpool_control.replay.decision import Decision, SwingDecision
from swingpool_control.timestamps import rfc3339
from swingpool_control.view import ClusterView, WorkerView

SHOWN_DECISIONS = 6
UNKNOWN = "-"
ROLE_STYLES = {"prefill": "cyan", "decode": "magenta"}
BAR_CELLS = 8
STALE_S = 10.0
"""Age from which on a picture is called old: several rounds of the swing loop."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Shown:
    """What a picture is made of."""

    view: ClusterView
    """As the newest decision saw it."""
    seen_unix_s: float
    """When that decision was made, by the manager's clock."""
    decisions: tuple[Decision, ...]
    """Oldest first."""


def picture(shown: Shown, *, now_unix_s: float, trouble: str = "") -> RenderableType:
    """Return the picture.

    Args:
        shown: what was fetched last.
        now_unix_s: the reader's clock, for the age of what is shown.
        trouble: why nothing newer could be fetched; empty if it could.
    """
    view, router = shown.view, shown.view.router
    parts: list[RenderableType] = [_headline(shown, now_unix_s)]
    if trouble:
        parts.append(Text(trouble, "bold red"))
    if isinstance(router, Unknown):
        parts.append(Text(f"the router is unknown: {router.why}", "bold yellow"))
    else:
        parts += [Text(""), _traffic(router), _latencies(view, router)]
    parts += [Text(""), _workers(view)]
    said = list(_decided(shown.decisions))
    if said:
        parts += [Text(""), Text("Last decisions", "bold"), *said[:SHOWN_DECISIONS]]
    return Group(*parts)


def _headline(shown: Shown, now_unix_s: float) -> Text:
    view = shown.view
    text = Text().append(f"{view.namespace}/{view.name}", "bold")
    roles = [worker.role for worker in view.workers if worker.ready and not worker.deleting]
    for role, style in ROLE_STYLES.items():
        text.append(f"   {roles.count(role)} {role}", style)
    starting = sum(1 for worker in view.workers if not worker.ready and not worker.deleting)
    draining = sum(1 for worker in view.workers if worker.deleting or worker.drain)
    for count, word in ((starting, "starting"), (draining, "draining")):
        if count:
            text.append(f"   {count} {word}", "yellow")
    text.append(f"   scaling {view.spec.scaling.mode.value}")
    age = now_unix_s - shown.seen_unix_s
    text.append(f"   seen {max(0.0, age):.0f} s ago", "red" if age > STALE_S else "dim")
    return text


def _traffic(router: RouterObservation) -> Text:
    lengths = f"{_number(router.mean_isl_tokens)} in / {_number(router.mean_osl_tokens)} out"
    text = Text(f"{_number(router.requests_per_s, 2)} requests/s of {lengths} tokens")
    text.append(f"   {_number(router.prompt_tokens_per_s)} prompt tokens/s")
    text.append(f"   {router.queued_requests} wait", "yellow" if router.queued_requests else "")
    if router.queued_requests and not isinstance(router.oldest_wait_s, Unknown):
        text.append(f", the oldest for {router.oldest_wait_s:.1f} s", "yellow")
    return text


def _latencies(view: ClusterView, router: RouterObservation) -> Text:
    objectives, text = view.spec.objectives, Text()
    for name, seen, objective in (
        ("TTFT", router.ttft_s, objectives.ttft),
        ("ITL", router.itl_s, objectives.itl),
    ):
        text.append(f"{name} ")
        for percentile, value, limit_s in _against(seen, objective):
            style = "" if isinstance(value, Unknown) else "green" if value <= limit_s else "bold red"
            text.append(f"{percentile} {_seconds(value)}", style)
            text.append(f" of {_seconds(limit_s)}   ")
    return text


def _against(seen: Percentiles, objective: LatencyObjective) -> Iterator[tuple[str, Figure, float]]:
    for percentile in ("p50", "p90", "p95", "p99"):
        wanted = getattr(objective, percentile)
        if wanted is not None:
            yield percentile, getattr(seen, percentile), seconds(wanted)


def _workers(view: ClusterView) -> Table:
    table = Table(box=None, padding=(0, 1), header_style="bold", pad_edge=False)
    table.add_column("WORKER", no_wrap=True)
    table.add_column("POOL")
    table.add_column("ROLE")
    table.add_column("STATE", max_width=36)
    for heading in ("PREFILLS", "TOKENS", "DECODES", "RUN", "WAIT"):
        table.add_column(heading, justify="right")
    table.add_column("KV CACHE", no_wrap=True)
    seen = {} if isinstance(view.router, Unknown) else {worker.pod: worker for worker in view.router.workers}
    for worker in sorted(view.workers, key=lambda one: (one.pool, one.role, one.pod)):
        found = seen.get(worker.pod)
        state, style = _state(worker, found)
        row = [Text(worker.pod), Text(worker.pool), Text(worker.role or UNKNOWN, ROLE_STYLES.get(worker.role, ""))]
        table.add_row(*row, Text(state, style), *_load(found))
    return table


def _state(worker: WorkerView, seen: WorkerObservation | None) -> tuple[str, str]:
    if worker.deleting:
        return "ending", "yellow"
    if worker.unschedulable or worker.waiting:
        return worker.unschedulable or worker.waiting, "bold red"
    if not worker.ready:
        return "starting", "yellow"
    if worker.flip:
        return "changes its role", "bold yellow"
    if worker.drain:
        return "draining", "yellow"
    if seen is None:
        return "the router does not know it", "yellow"
    return ("serving", "green") if seen.in_rotation else (seen.why_not or "out of rotation", "yellow")


def _load(seen: WorkerObservation | None) -> list[Text]:
    if seen is None:
        return [Text(UNKNOWN) for _ in range(6)]
    counts = (seen.prefills_in_flight, seen.pending_prefill_tokens, seen.decodes_in_flight)
    shown = [Text(f"{count:,}") for count in counts] + [Text(_number(seen.running)), Text(_number(seen.waiting))]
    return [*shown, _bar(seen.kv_usage)]


def _bar(share: Figure) -> Text:
    if isinstance(share, Unknown):
        return Text(UNKNOWN)
    text, full = Text(), round(min(1.0, max(0.0, share)) * BAR_CELLS)
    text.append("█" * full, "red" if share > 0.9 else "yellow" if share > 0.7 else "green")
    return text.append("░" * (BAR_CELLS - full), "dim").append(f" {share:4.0%}")


def _decided(decisions: Iterable[Decision]) -> Iterator[Text]:
    for decision in sorted(decisions, key=lambda one: -one.now_unix_s):
        if not decision.result.summary:
            continue
        about = "roles" if isinstance(decision, SwingDecision) else "replicas"
        text = Text(no_wrap=True, overflow="ellipsis").append(f"  {rfc3339(decision.now_unix_s)[11:19]}  ", "dim")
        yield text.append(f"{about:8}  ").append(decision.result.summary, "bold" if decision.result.actions else "")


def _number(value: Figure, digits: int = 0) -> str:
    return UNKNOWN if isinstance(value, Unknown) else f"{value:,.{digits}f}"


def _seconds(value: Figure) -> str:
    if isinstance(value, Unknown):
        return UNKNOWN
    return f"{value * 1000:.0f} ms" if value < 1 else f"{value:.2f} s"
