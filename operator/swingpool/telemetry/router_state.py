"""The wire form of a picker's state: JSON that the picker writes at /state and the manager reads.

A figure that is unknown goes as null, with its reason beside it under `<name>Unknown`. Reading is tolerant, since the
two ends may be of different releases: what is missing is unknown, what is not understood is left out.
"""

import math
from collections.abc import Mapping
from dataclasses import fields
from typing import Any

import orjson

from swingpool_control.figures import Figure, Unknown, figure
from swingpool_control.observation import NOT_TOLD, Percentiles, RouterObservation, WorkerObservation
from swingpool_control.sizing.traffic import LengthBin, Lengths

WHY = "Unknown"


class BadStateError(ValueError):
    """The text is no picker's state at all."""


def encode(observation: RouterObservation) -> bytes:
    """Return an observation as JSON."""
    return orjson.dumps(_plain(observation))


def decode(text: bytes) -> RouterObservation:
    """Return the observation that JSON text holds.

    Raises:
        BadStateError: the text is not JSON, or not an object that names a picker and a time.
    """
    try:
        raw = orjson.loads(text)
    except orjson.JSONDecodeError as error:
        raise BadStateError(f"the state is not JSON: {error}") from error
    if not isinstance(raw, Mapping):
        raise BadStateError(f"the state is not an object but {type(raw).__name__}")
    at_unix_s = _figure(raw, "at_unix_s")
    if isinstance(at_unix_s, Unknown):
        raise BadStateError(f"the state has no time: {at_unix_s.why}")
    workers = raw.get("workers")
    return RouterObservation(
        picker=str(raw.get("picker", "")),
        at_unix_s=at_unix_s,
        window_s=_number(raw, "window_s"),
        requests_per_s=_figure(raw, "requests_per_s"),
        prompt_tokens_per_s=_figure(raw, "prompt_tokens_per_s"),
        mean_isl_tokens=_figure(raw, "mean_isl_tokens"),
        mean_osl_tokens=_figure(raw, "mean_osl_tokens"),
        ttft_s=_percentiles(raw.get("ttft_s")),
        itl_s=_percentiles(raw.get("itl_s")),
        queued_requests=int(_number(raw, "queued_requests")),
        workers=tuple(_worker(one) for one in workers if _names_a_pod(one)) if isinstance(workers, list) else (),
        queued_prompt_tokens=int(_number(raw, "queued_prompt_tokens")),
        oldest_wait_s=_figure(raw, "oldest_wait_s"),
        arrival_scv=_figure(raw, "arrival_scv"),
        lengths=_lengths(raw),
        cached_prompt_tokens_per_s=_figure(raw, "cached_prompt_tokens_per_s"),
        arrived_requests=_figure(raw, "arrived_requests"),
        arrived_prompt_tokens=_figure(raw, "arrived_prompt_tokens"),
        deflected_prompt_tokens=_figure(raw, "deflected_prompt_tokens"),
    )


def _plain(value: object) -> dict[str, Any]:
    plain: dict[str, Any] = {}
    for field in fields(value):  # type: ignore[arg-type]
        item = getattr(value, field.name)
        if isinstance(item, Unknown):
            plain[field.name] = None
            plain[field.name + WHY] = item.why
        elif isinstance(item, Percentiles):
            plain[field.name] = _plain(item)
        elif isinstance(item, Lengths):
            plain[field.name] = [[one.prompt_tokens, one.output_tokens, one.weight] for one in item.bins]
        elif isinstance(item, tuple):
            plain[field.name] = [_plain(worker) for worker in item]
        else:
            plain[field.name] = item
    return plain


def _names_a_pod(raw: object) -> bool:
    return isinstance(raw, Mapping) and isinstance(raw.get("pod"), str) and bool(raw["pod"])


def _worker(raw: Mapping[str, Any]) -> WorkerObservation:
    return WorkerObservation(
        pod=raw["pod"],
        address=str(raw.get("address", "")),
        role=str(raw.get("role", "")),
        role_since_unix_s=_number(raw, "role_since_unix_s"),
        in_rotation=raw.get("in_rotation") is True,
        why_not=str(raw.get("why_not", "")),
        pending_prefill_tokens=int(_number(raw, "pending_prefill_tokens")),
        prefills_in_flight=int(_number(raw, "prefills_in_flight")),
        decodes_in_flight=int(_number(raw, "decodes_in_flight")),
        prefills_served=int(_number(raw, "prefills_served")),
        decodes_served=int(_number(raw, "decodes_served")),
        first_served_in_role_unix_s=_figure(raw, "first_served_in_role_unix_s"),
        running=_figure(raw, "running"),
        waiting=_figure(raw, "waiting"),
        kv_usage=_figure(raw, "kv_usage"),
        scraped_unix_s=_figure(raw, "scraped_unix_s"),
        slowness=_figure(raw, "slowness"),
    )


def _lengths(raw: Mapping[str, Any]) -> Lengths | Unknown:
    """Return the sketch of lengths; one that has a bin which is none is unknown as a whole."""
    bins, why = raw.get("lengths"), raw.get("lengths" + WHY)
    if bins is None:
        return Unknown(why) if isinstance(why, str) else NOT_TOLD
    try:
        return Lengths(
            bins=tuple(
                LengthBin(prompt_tokens=prompt, output_tokens=output, weight=count) for prompt, output, count in bins
            )
        )
    except (TypeError, ValueError) as error:
        return Unknown(f"the router's lengths cannot be read: {error}")


def _percentiles(raw: object) -> Percentiles:
    source: Mapping[str, Any] = raw if isinstance(raw, Mapping) else {}
    return Percentiles(
        p50=_figure(source, "p50"),
        p90=_figure(source, "p90"),
        p95=_figure(source, "p95"),
        p99=_figure(source, "p99"),
        count=int(_number(source, "count")),
        mean=_figure(source, "mean"),
    )


def _figure(raw: Mapping[str, Any], name: str) -> Figure:
    why = raw.get(name + WHY)
    if raw.get(name) is None and isinstance(why, str):
        return Unknown(why)
    return figure(raw.get(name), name=name)


def _number(raw: Mapping[str, Any], name: str) -> float:
    """Return a count or a time that has no unknown form: 0 if it is missing."""
    value = raw.get(name)
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        return 0.0
    return float(value)
