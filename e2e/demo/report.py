"""The demo's report, its bars and its summary table."""

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from e2e.demo.moments import Flip, Objective
from e2e.load.record import Record
from e2e.load.summary import percentile, summarize
from swingpool_control import names

MIN_REQUESTS = 2000
MIN_FLIPS_EACH_WAY = 2
MAX_FLIP_P95_S = 3.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Bar:
    """One thing that must hold."""

    name: str
    value: float | None
    limit: str
    holds: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """Everything that a run showed."""

    server_version: str
    provider: str
    records: Sequence[Record]
    flips: Sequence[Flip]
    restarts: int
    objectives: Sequence[Objective]


def bars(outcome: Outcome) -> list[Bar]:
    """Return the bars and whether each holds."""
    failed = sum(not record.succeeded for record in outcome.records)
    ways = Counter(flip.target for flip in outcome.flips if flip.serving_s is not None)
    took = sorted(flip.serving_s - flip.decided_s for flip in outcome.flips if flip.serving_s is not None)
    p95_s = percentile(took, 95)
    sent = len(outcome.records)
    found = [
        Bar(name="requests sent", value=sent, limit=f">= {MIN_REQUESTS}", holds=sent >= MIN_REQUESTS),
        Bar(name="requests failed", value=failed, limit="0", holds=failed == 0),
        Bar(name="container restarts", value=outcome.restarts, limit="0", holds=outcome.restarts == 0),
    ]
    found += [
        Bar(
            name=f"flips to {role}", value=ways[role],
            limit=f">= {MIN_FLIPS_EACH_WAY}", holds=ways[role] >= MIN_FLIPS_EACH_WAY,
        )
        for role in (names.ROLE_PREFILL, names.ROLE_DECODE)
    ]  # fmt: skip
    return [
        *found,
        Bar(
            name="flip, decided to serving, p95 s", value=p95_s,
            limit=f"<= {MAX_FLIP_P95_S:g}", holds=p95_s is not None and p95_s <= MAX_FLIP_P95_S,
        ),
    ]  # fmt: skip


def report(outcome: Outcome) -> dict[str, Any]:
    """Return the report as plain data. Times of flips are seconds since the load started."""
    succeeded = sum(record.succeeded for record in outcome.records)
    summaries = summarize(outcome.records)
    return {
        "kubernetes": {"server_version": outcome.server_version, "provider": outcome.provider},
        "requests": {
            "sent": len(outcome.records),
            "succeeded": succeeded,
            "failed": len(outcome.records) - succeeded,
        },
        "flips": [
            {
                "worker": flip.worker,
                "from": flip.source,
                "to": flip.target,
                "decided_s": flip.decided_s,
                "serving_s": flip.serving_s,
            }
            for flip in outcome.flips
        ],
        "restarts": outcome.restarts,
        "ttft_s": {item.phase: item.ttft_s for item in summaries},
        "itl_s": {item.phase: item.itl_s for item in summaries},
        "objectives": [asdict(item) for item in outcome.objectives],
        "failures": dict(Counter(record.error for record in outcome.records if not record.succeeded).most_common(10)),
        "bars": [asdict(item) for item in bars(outcome)],
    }


def write(outcome: Outcome, path: Path) -> None:
    """Write the report as JSON."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(report(outcome), indent=2) + "\n")


def show(outcome: Outcome, console: Console) -> None:
    """Print the summary: phases, then bars."""
    phases = Table(title="By phase; latencies p50 / p95 / p99", title_justify="left", header_style="grey62")
    phases.add_column("phase", no_wrap=True)
    for name in ("sent", "failed", "TTFT", "ITL"):
        phases.add_column(name, justify="right", no_wrap=True)
    for item in summarize(outcome.records):
        phases.add_row(item.phase, str(item.sent), str(item.failed), _spread(item.ttft_s), _spread(item.itl_s))
    console.print(phases)
    verdicts = Table(title="What must hold", title_justify="left", header_style="grey62")
    for name in ("", "bar", "seen", "limit"):
        verdicts.add_column(name, justify="right" if name in ("seen", "limit") else "left")
    for bar in bars(outcome):
        mark = Text("✔", "green") if bar.holds else Text("✘", "bold red")
        seen = "-" if bar.value is None else f"{bar.value:.3g}" if isinstance(bar.value, float) else str(bar.value)
        verdicts.add_row(mark, bar.name, seen, bar.limit)
    console.print(verdicts)


def _spread(latencies_s: Mapping[str, float | None]) -> str:
    values = ("-" if value is None else f"{value * 1000:,.0f}" for value in latencies_s.values())
    return f"{' / '.join(values)} ms"
