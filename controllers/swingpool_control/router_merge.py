"""One picture from several pickers, none of which sees all traffic.

Counts and rates add up. Of times to first token each picker knows only its own percentiles, and these do not add up:
the worst is taken. What the workers themselves tell, every picker sees whole: one is taken at its word. A worker serves
a role, or has left one, only when every picker has seen it: the one that has not may still send it requests.
"""

from collections.abc import Sequence

from swingpool_control.figures import Figure, Unknown
from swingpool_control.observation import Percentiles, RouterObservation, WorkerObservation
from swingpool_control.sizing.traffic import Lengths, merged


def merge(observations: Sequence[RouterObservation]) -> RouterObservation:
    """Return one observation for all pickers of a cluster.

    Args:
        observations: one of each picker, at least one.
    """
    if len(observations) == 1:
        return observations[0]
    ordered = sorted(observations, key=lambda one: one.picker)
    fullest = max(ordered, key=lambda one: one.itl_s.count)
    by_pod: dict[str, dict[str, WorkerObservation]] = {}
    for one in ordered:
        for worker in one.workers:
            by_pod.setdefault(worker.pod, {})[one.picker] = worker
    pickers = [one.picker for one in ordered]
    return RouterObservation(
        picker=",".join(pickers),
        at_unix_s=min(one.at_unix_s for one in ordered),
        window_s=max(one.window_s for one in ordered),
        requests_per_s=_sum([one.requests_per_s for one in ordered]),
        prompt_tokens_per_s=_sum([one.prompt_tokens_per_s for one in ordered]),
        mean_isl_tokens=_mean([(one.mean_isl_tokens, one.requests_per_s) for one in ordered]),
        mean_osl_tokens=_known([fullest.mean_osl_tokens, *(one.mean_osl_tokens for one in ordered)]),
        ttft_s=_worst([one.ttft_s for one in ordered]),
        itl_s=fullest.itl_s,
        queued_requests=sum(one.queued_requests for one in ordered),
        workers=tuple(_merge_worker(by_pod[pod], pickers) for pod in sorted(by_pod)),
        queued_prompt_tokens=sum(one.queued_prompt_tokens for one in ordered),
        oldest_wait_s=_largest([one.oldest_wait_s for one in ordered]),
        arrival_scv=_burstiest([one.arrival_scv for one in ordered]),
        lengths=_all_lengths([one.lengths for one in ordered]),
        cached_prompt_tokens_per_s=_known(
            [fullest.cached_prompt_tokens_per_s, *(one.cached_prompt_tokens_per_s for one in ordered)]
        ),
        arrived_requests=_sum([one.arrived_requests for one in ordered]),
        arrived_prompt_tokens=_sum([one.arrived_prompt_tokens for one in ordered]),
        deflected_prompt_tokens=_sum([one.deflected_prompt_tokens for one in ordered]),
    )


def _merge_worker(by_picker: dict[str, WorkerObservation], pickers: list[str]) -> WorkerObservation:
    seen = list(by_picker.values())
    # Who saw the role for longest has not seen the last change, if there was one.
    slowest = min(seen, key=lambda one: one.role_since_unix_s)
    why_not = [one.why_not for one in seen]
    if len({one.role for one in seen}) > 1:
        why_not += [f"picker {picker} sees it as {one.role or 'without a role'}" for picker, one in by_picker.items()]
    why_not += [f"picker {picker} does not know it" for picker in pickers if picker not in by_picker]
    freshest = max(seen, key=lambda one: _or(one.scraped_unix_s, -1.0))
    served = [one.first_served_in_role_unix_s for one in seen if one.role == slowest.role]
    return WorkerObservation(
        pod=slowest.pod,
        address=slowest.address,
        role=slowest.role,
        role_since_unix_s=slowest.role_since_unix_s,
        in_rotation=not any(why_not),
        why_not="; ".join(dict.fromkeys(filter(None, why_not))),
        pending_prefill_tokens=sum(one.pending_prefill_tokens for one in seen),
        prefills_in_flight=sum(one.prefills_in_flight for one in seen),
        decodes_in_flight=sum(one.decodes_in_flight for one in seen),
        prefills_served=sum(one.prefills_served for one in seen),
        decodes_served=sum(one.decodes_served for one in seen),
        first_served_in_role_unix_s=min([known for known in served if isinstance(known, float)], default=served[0]),
        running=freshest.running,
        waiting=freshest.waiting,
        kv_usage=freshest.kv_usage,
        scraped_unix_s=freshest.scraped_unix_s,
        slowness=_mean([(one.slowness, float(one.prefills_served)) for one in seen]),
    )


def _sum(figures: Sequence[Figure]) -> Figure:
    """Return the sum, unknown if one of them is: a part of the traffic is not the traffic."""
    total = 0.0
    for one in figures:
        if isinstance(one, Unknown):
            return one
        total += one
    return total


def _known(figures: Sequence[Figure]) -> Figure:
    """Return the first figure that is known."""
    return next((one for one in figures if not isinstance(one, Unknown)), figures[0])


def _mean(weighted: Sequence[tuple[Figure, Figure]]) -> Figure:
    """Return the mean by weight; who has no traffic has no say, and needs no figure."""
    known: list[tuple[float, float]] = []
    for value, weight in weighted:
        if isinstance(weight, Unknown):
            return weight
        if weight <= 0:
            continue
        if isinstance(value, Unknown):
            return value
        known.append((value, weight))
    if not known:
        return next((value for value, _ in weighted), Unknown("no picker has traffic"))
    return sum(value * weight for value, weight in known) / sum(weight for _, weight in known)


def _worst(parts: Sequence[Percentiles]) -> Percentiles:
    """Return the worst of each percentile over the pickers that have values."""
    busy = [one for one in parts if one.count > 0] or list(parts)
    return Percentiles(
        p50=_largest([one.p50 for one in busy]),
        p90=_largest([one.p90 for one in busy]),
        p95=_largest([one.p95 for one in busy]),
        p99=_largest([one.p99 for one in busy]),
        count=sum(one.count for one in parts),
        mean=_largest([one.mean for one in busy]),
    )


def _burstiest(figures: Sequence[Figure]) -> Figure:
    """Return the largest that is known: a share of bursty arrivals looks calmer than all of them, never burstier."""
    return max((one for one in figures if isinstance(one, float)), default=figures[0])


def _all_lengths(sketches: Sequence[Lengths | Unknown]) -> Lengths | Unknown:
    """Return the lengths of all requests of which some picker knows them."""
    known = [one for one in sketches if isinstance(one, Lengths)]
    return merged(known) if known else sketches[0]


def _largest(figures: Sequence[Figure]) -> Figure:
    for one in figures:
        if isinstance(one, Unknown):
            return one
    return max(one for one in figures if isinstance(one, float))


def _or(value: Figure, default: float) -> float:
    return default if isinstance(value, Unknown) else value
