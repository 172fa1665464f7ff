"""Series for the picture, made from what was seen: roles over time, latencies over time, tokens over time."""

import bisect
from collections.abc import Sequence
from dataclasses import dataclass

from e2e.demo.moments import Flip, Moment
from e2e.load.record import Record
from e2e.load.summary import percentile

_SNAP_S = 4.0
"""A change of role seen by a look is set to the moment of its flip's decision if that lies so near."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Stretch:
    """A worker in one role."""

    role: str
    start_s: float
    end_s: float


def lanes(moments: Sequence[Moment], flips: Sequence[Flip]) -> dict[str, list[Stretch]]:
    """Return every worker's roles over time, workers in the order in which the looks list them."""
    found: dict[str, list[Stretch]] = {}
    for moment in moments:
        for worker in moment.workers:
            stretches = found.setdefault(worker.name, [])
            last = stretches[-1] if stretches else None
            if last is None or last.role != worker.role:
                start_s = _decided_near(flips, worker.name, moment.now_s) if last else _begin_s(moments, moment)
                if last is not None:
                    stretches[-1] = Stretch(role=last.role, start_s=last.start_s, end_s=start_s)
                stretches.append(Stretch(role=worker.role, start_s=start_s, end_s=moment.now_s))
            else:
                stretches[-1] = Stretch(role=last.role, start_s=last.start_s, end_s=moment.now_s)
    return found


def _begin_s(moments: Sequence[Moment], moment: Moment) -> float:
    """When a worker's lane begins: at the start if it was there at the first look."""
    return 0.0 if moment is moments[0] else moment.now_s


def _decided_near(flips: Sequence[Flip], worker: str, now_s: float) -> float:
    near = [flip.decided_s for flip in flips if flip.worker == worker and 0 <= now_s - flip.decided_s <= _SNAP_S]
    return max(near, default=now_s)


@dataclass(frozen=True, slots=True, kw_only=True)
class Rolling:
    """Percentiles of the values within a window around each moment."""

    at_s: list[float]
    p50: list[float]
    p95: list[float]


def rolling(points: Sequence[tuple[float, float]], *, window_s: float, every_s: float = 0.5) -> Rolling:
    """Return percentiles over time of (when, value) points; moments without any value are left out."""
    ordered = sorted(points)
    times = [at_s for at_s, _ in ordered]
    result = Rolling(at_s=[], p50=[], p95=[])
    if not ordered:
        return result
    steps = int(times[-1] / every_s) + 1
    for step in range(steps + 1):
        at_s = step * every_s
        low = bisect.bisect_left(times, at_s - window_s / 2)
        high = bisect.bisect_right(times, at_s + window_s / 2)
        values = sorted(value for _, value in ordered[low:high])
        p50, p95 = percentile(values, 50), percentile(values, 95)
        if p50 is not None and p95 is not None:
            result.at_s.append(at_s)
            result.p50.append(p50)
            result.p95.append(p95)
    return result


def ttft_points(records: Sequence[Record]) -> list[tuple[float, float]]:
    """Return every stream's TTFT at the moment it was sent."""
    return [(item.sent_s, item.ttft_s) for item in records if item.sent_s is not None and item.ttft_s is not None]


def itl_points(records: Sequence[Record]) -> list[tuple[float, float]]:
    """Return every inter-token latency at the moment its second token came."""
    points = []
    for item in records:
        at_s = item.first_token_s or 0.0
        for gap_s in item.itl_s:
            at_s += gap_s
            points.append((at_s, gap_s))
    return points


def offered(records: Sequence[Record], *, bin_s: float) -> tuple[list[float], list[float], list[float]]:
    """Return bins' starts, and the prompt and output tokens per second that were asked for in each."""
    bins = int(max((item.due_s for item in records), default=0.0) / bin_s) + 1
    prompts, outputs = [0.0] * bins, [0.0] * bins
    for item in records:
        number = int(item.due_s / bin_s)
        prompts[number] += item.prompt_tokens / bin_s
        outputs[number] += item.expected_tokens / bin_s
    return [number * bin_s for number in range(bins)], prompts, outputs
