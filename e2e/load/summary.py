"""Percentiles of a run, by phase."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from e2e.load.record import Record

REPORTED = (50, 95, 99)


def percentile(values: Sequence[float], percent: float) -> float | None:
    """Return the nearest-rank percentile of sorted values; None of none."""
    if not values:
        return None
    return values[max(0, math.ceil(percent / 100 * len(values)) - 1)]


def percentiles(values: Iterable[float]) -> dict[str, float | None]:
    """Return p50, p95 and p99, to a tenth of a millisecond."""
    ordered = sorted(values)
    found = {f"p{percent}": percentile(ordered, percent) for percent in REPORTED}
    return {name: None if value is None else round(value, 4) for name, value in found.items()}


@dataclass(frozen=True, slots=True, kw_only=True)
class PhaseSummary:
    """One phase's requests, judged by the phase in which they were due."""

    phase: str
    sent: int
    succeeded: int
    failed: int
    prompt_tokens: int
    output_tokens: int
    ttft_s: dict[str, float | None]
    itl_s: dict[str, float | None]


def summarize(records: Sequence[Record]) -> list[PhaseSummary]:
    """Return summaries by phase, in the order in which the phases came."""
    phases: dict[str, list[Record]] = {}
    for record in sorted(records, key=lambda item: item.due_s):
        phases.setdefault(record.phase, []).append(record)
    return [
        PhaseSummary(
            phase=phase,
            sent=len(members),
            succeeded=sum(record.succeeded for record in members),
            failed=sum(not record.succeeded for record in members),
            prompt_tokens=sum(record.prompt_tokens for record in members),
            output_tokens=sum(record.received_tokens for record in members),
            ttft_s=percentiles(record.ttft_s for record in members if record.ttft_s is not None),
            itl_s=percentiles(gap for record in members for gap in record.itl_s),
        )
        for phase, members in phases.items()
    ]
