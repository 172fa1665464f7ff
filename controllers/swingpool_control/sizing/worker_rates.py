"""What one worker adds to a role within the objectives, as the sizing programme wants it."""

from collections.abc import Iterator

from swingpool_control import names
from swingpool_control.api.v1alpha1 import Objectives
from swingpool_control.engine.model import PerformanceModel
from swingpool_control.sizing import sustained
from swingpool_control.sizing.objectives import by_percentile
from swingpool_control.sizing.programme import Rates
from swingpool_control.sizing.traffic import Traffic


def worker_rates(model: PerformanceModel, *, traffic: Traffic, objectives: Objectives, role: str, most: int) -> Rates:
    """Return requests per second and worker, by the number of workers in the role; every objective holds.

    Args:
        model: the workers' model.
        traffic: lengths, burstiness and cached share; its rate does not matter.
        objectives: TTFT binds prefill, ITL decode.
        role: prefill or decode.
        most: number of workers up to which rates are told; at least 1.
    """
    each = [0.0] * most
    for number, totals in enumerate(_totals(model, traffic, objectives, role, most)):
        per_worker = [total / workers for workers, total in enumerate(totals, start=1)]
        each = per_worker if number == 0 else [min(pair) for pair in zip(each, per_worker, strict=True)]
    return Rates(steps=tuple(_steps(each)))


def _totals(
    model: PerformanceModel, traffic: Traffic, objectives: Objectives, role: str, most: int
) -> Iterator[tuple[float, ...]]:
    """Yield, for each objective of the role, requests per second by number of workers."""
    itl = by_percentile(objectives.itl)
    if role == names.ROLE_PREFILL:
        handover_s = sustained.handover_s(model, itl_s=min(itl.values()))
        for percentile, ttft_s in by_percentile(objectives.ttft).items():
            level = int(percentile[1:]) / 100
            yield sustained.prefill_rates(
                model, traffic=traffic, level=level, ttft_s=ttft_s, handover_s=handover_s, most=most
            )
        return
    for percentile, itl_s in itl.items():
        level = int(percentile[1:]) / 100
        yield sustained.decode_rates(model, traffic=traffic, level=level, itl_s=itl_s, most=most)


def _steps(each: list[float]) -> Iterator[tuple[int, float]]:
    """Yield where the rate rises; a rate that fell with more workers would be noise of the estimate."""
    reached = -1.0
    for workers, rate in enumerate(each, start=1):
        if rate > reached:
            reached = rate
            yield workers, rate
