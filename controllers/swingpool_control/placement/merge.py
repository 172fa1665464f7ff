"""Several pickers' observations as one: what each sent itself adds up, what all of them scraped is taken once."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import fields, replace

from swingpool_control.figures import Figure, Unknown, is_known
from swingpool_control.observation import Percentiles, RouterObservation, WorkerObservation


def merge(observations: Sequence[RouterObservation]) -> RouterObservation:
    """Return what a cluster's pickers see together; the order of the observations does not matter.

    Rates and counts add up (a picker that does not know its rate makes the sum unknown); means and percentiles are
    averaged by the number of values they stand on, which is close for pickers behind one Service; of a worker's own
    figures the newest scrape holds.

    Raises:
        ValueError: there are no observations.
    """
    if not observations:
        raise ValueError("there is no observation to merge")
    if len(observations) == 1:
        return observations[0]
    ordered = sorted(observations, key=lambda one: one.picker)
    by_pod: dict[str, list[WorkerObservation]] = {}
    for observation in ordered:
        for worker in observation.workers:
            by_pod.setdefault(worker.pod, []).append(worker)
    rates = [(one.requests_per_s, one) for one in ordered]
    return RouterObservation(
        picker=",".join(one.picker for one in ordered),
        at_unix_s=max(one.at_unix_s for one in ordered),
        window_s=max(one.window_s for one in ordered),
        requests_per_s=_sum(rate for rate, _ in rates),
        prompt_tokens_per_s=_sum(one.prompt_tokens_per_s for one in ordered),
        mean_isl_tokens=_mean((one.mean_isl_tokens, _weight(rate)) for rate, one in rates),
        mean_osl_tokens=_mean((one.mean_osl_tokens, _weight(rate)) for rate, one in rates),
        ttft_s=_percentiles([one.ttft_s for one in ordered], counts=sum),
        # Each picker reads the same workers' histograms: as many values as one of them saw, not the sum.
        itl_s=_percentiles([one.itl_s for one in ordered], counts=max),
        queued_requests=sum(one.queued_requests for one in ordered),
        workers=tuple(_worker(seen) for _, seen in sorted(by_pod.items())),
    )


def _worker(seen: list[WorkerObservation]) -> WorkerObservation:
    """Merge one worker. A role that only some pickers have seen yet is its role: labels reach them one by one."""
    newest = max(seen, key=lambda one: (one.role_since_unix_s, one.role))
    alike = [one for one in seen if one.role == newest.role]
    scraped = max(seen, key=lambda one: _or_never(one.scraped_unix_s))
    serving = any(one.in_rotation for one in seen)
    return replace(
        newest,
        role_since_unix_s=min(one.role_since_unix_s for one in alike),
        in_rotation=serving,
        why_not="" if serving else newest.why_not,
        pending_prefill_tokens=sum(one.pending_prefill_tokens for one in seen),
        prefills_in_flight=sum(one.prefills_in_flight for one in seen),
        decodes_in_flight=sum(one.decodes_in_flight for one in seen),
        prefills_served=sum(one.prefills_served for one in seen),
        decodes_served=sum(one.decodes_served for one in seen),
        first_served_in_role_unix_s=_earliest(one.first_served_in_role_unix_s for one in alike),
        running=scraped.running,
        waiting=scraped.waiting,
        kv_usage=scraped.kv_usage,
        scraped_unix_s=scraped.scraped_unix_s,
    )


def _sum(values: Iterable[Figure]) -> Figure:
    total = 0.0
    for value in values:
        if isinstance(value, Unknown):
            return value
        total += value
    return total


def _mean(weighted: Iterable[tuple[Figure, float]]) -> Figure:
    """Return the weighted mean of what is known; plain if no weight is above zero; unknown if nothing is known."""
    pairs = list(weighted)
    known = [(value, weight) for value, weight in pairs if not isinstance(value, Unknown)]
    if not known:
        return pairs[0][0]
    total = sum(weight for _, weight in known)
    if total <= 0:
        return sum(value for value, _ in known) / len(known)
    return sum(value * (weight / total) for value, weight in known)


def _percentiles(parts: list[Percentiles], *, counts: Callable[[list[int]], int]) -> Percentiles:
    merged = {
        field.name: _mean((getattr(part, field.name), part.count) for part in parts)
        for field in fields(Percentiles)
        if field.name != "count"
    }
    return Percentiles(count=counts([part.count for part in parts]), **merged)


def _weight(rate: Figure) -> float:
    return 0.0 if isinstance(rate, Unknown) else rate


def _or_never(value: Figure) -> float:
    return float("-inf") if isinstance(value, Unknown) else value


def _earliest(values: Iterable[Figure]) -> Figure:
    pairs = list(values)
    known = [value for value in pairs if is_known(value)]
    return min(known, key=_or_never) if known else pairs[0]
