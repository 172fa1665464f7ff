"""What is read from a worker's /metrics: the few series it needs, under vLLM's present and former names.

A whole parser would cost more than a request does: lines are picked by their prefix. Series of several engines (data
parallel ranks) or models of one worker add up.
"""

import math
from collections.abc import Iterable
from dataclasses import dataclass, field

from swingpool_control.figures import Figure, Unknown
from swingpool_control.vllm.metrics import names_of

_NEVER = "it has not been scraped yet"


@dataclass(frozen=True, slots=True, kw_only=True)
class Histogram:
    """A cumulative Prometheus histogram: counts of values at or under each bound, in ascending bounds."""

    bounds: tuple[float, ...] = ()
    counts: tuple[float, ...] = ()
    sum: float = 0.0

    @property
    def count(self) -> float:
        """Values in all."""
        return self.counts[-1] if self.counts else 0.0

    def since(self, earlier: "Histogram") -> "Histogram":
        """Return what came after `earlier`; all of it if the worker restarted or its buckets changed."""
        if earlier.bounds != self.bounds or earlier.count > self.count:
            return self
        counts = tuple(now - before for now, before in zip(self.counts, earlier.counts, strict=True))
        return Histogram(bounds=self.bounds, counts=counts, sum=self.sum - earlier.sum)


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerFigures:
    """One scrape of one worker."""

    running: Figure
    waiting: Figure
    kv_usage: Figure
    scraped_unix_s: Figure
    itl_s: Histogram | None = None
    ttft_s: Histogram | None = None
    output_tokens: Histogram | None = None
    prompt_tokens: Histogram | None = None
    """Lengths of the prompts of requests that ended."""
    transferred_tokens: Figure = field(default=Unknown(_NEVER))
    """Prompt tokens whose KV cache came from another worker, since it started."""
    cached_tokens: Figure = field(default=Unknown(_NEVER))
    """Prompt tokens that its own prefix cache had, since it started."""


NO_FIGURES = WorkerFigures(
    running=Unknown(_NEVER), waiting=Unknown(_NEVER), kv_usage=Unknown(_NEVER), scraped_unix_s=Unknown(_NEVER)
)

_KV_USAGE, _KV_USAGE_OLD = names_of("kv_usage")
_ITL, _ITL_OLD = names_of("itl")
_GAUGES = {
    names_of("running")[0]: "running",
    names_of("waiting")[0]: "waiting",
    _KV_USAGE: "kv_usage",
    _KV_USAGE_OLD: "kv_usage_old",
    f"{names_of('by_source')[0]}_total": "transferred",
}
_HISTOGRAMS = {
    _ITL: "itl",
    _ITL_OLD: "itl_old",
    names_of("ttft")[0]: "ttft",
    names_of("output_tokens")[0]: "output",
    names_of("prompt_lengths")[0]: "prompts",
}
_SERIES = {
    **{name: (key, "") for name, key in _GAUGES.items()},
    **{name + part: (key, part) for name, key in _HISTOGRAMS.items() for part in ("_bucket", "_sum")},
}
SERIES_NAMES = tuple(_SERIES)
"""Names of all series that are read."""
_FROM_ANOTHER_WORKER = 'source="external_kv_transfer"'
_FROM_ITS_OWN_CACHE = 'source="local_cache_hit"'


def parse(text: str, *, now_unix_s: float) -> WorkerFigures:
    """Return the figures in a Prometheus text exposition; what is missing, NaN or infinite is unknown."""
    gauges: dict[str, list[float]] = {}
    buckets: dict[str, dict[float, float]] = {}
    sums: dict[str, float] = {}
    for key, part, labels, value in _samples(text):
        if part == "_bucket":
            bounds = buckets.setdefault(key, {})
            bound = _bound(labels)
            bounds[bound] = bounds.get(bound, 0.0) + value
        elif part == "_sum":
            sums[key] = sums.get(key, 0.0) + value
        elif key != "transferred" or _FROM_ANOTHER_WORKER in labels:
            gauges.setdefault(key, []).append(value)
        elif _FROM_ITS_OWN_CACHE in labels:
            gauges.setdefault("cached", []).append(value)

    def histogram(*keys: str) -> Histogram | None:
        for key in keys:
            if key in buckets:
                ordered = sorted(buckets[key].items())
                bounds, counts = zip(*ordered, strict=True)
                return Histogram(bounds=bounds, counts=counts, sum=sums.get(key, 0.0))
        return None

    usage = gauges.get("kv_usage") or gauges.get("kv_usage_old") or []
    return WorkerFigures(
        running=_total(gauges, "running"),
        waiting=_total(gauges, "waiting"),
        kv_usage=sum(usage) / len(usage) if usage else Unknown("vllm:kv_cache_usage_perc is missing"),
        scraped_unix_s=now_unix_s,
        itl_s=histogram("itl", "itl_old"),
        ttft_s=histogram("ttft"),
        output_tokens=histogram("output"),
        prompt_tokens=histogram("prompts"),
        transferred_tokens=_total(gauges, "transferred"),
        cached_tokens=math.fsum(gauges["cached"]) if "cached" in gauges else Unknown("it tells no local_cache_hit"),
    )


def _samples(text: str) -> Iterable[tuple[str, str, str, float]]:
    """Yield (key, part, labels, value) of the series that are read and whose value is finite."""
    for line in text.splitlines():
        if not line.startswith("vllm:"):
            continue
        name, brace, rest = line.partition("{")
        labels, _, number = rest.rpartition("} ") if brace else ("", "", line.rpartition(" ")[2])
        known = _SERIES.get(name if brace else line.partition(" ")[0])
        if known is None:
            continue
        try:
            value = float(number.split(" ", 1)[0])
        except ValueError:
            continue
        if math.isfinite(value):
            yield known[0], known[1], labels, value


def _bound(labels: str) -> float:
    start = labels.find('le="')
    try:
        return float(labels[start + 4 : labels.index('"', start + 4)])
    except ValueError:
        return math.inf


def _total(gauges: dict[str, list[float]], key: str) -> Figure:
    name = next(name for name, known in _GAUGES.items() if known == key)
    return math.fsum(gauges[key]) if key in gauges else Unknown(f"{name} is missing")
