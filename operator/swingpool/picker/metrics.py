"""The router's own metrics, as Prometheus scrapes them; docs/reference/router.md lists them."""

from collections.abc import Iterator

from prometheus_client import CollectorRegistry, Gauge
from prometheus_client.core import HistogramMetricFamily, Metric
from prometheus_client.registry import Collector

from swingpool.picker.series import Counts, Distributions
from swingpool.telemetry import vllm_page
from swingpool.telemetry.windows import combined

_TOKENS = tuple(2.0**power for power in range(4, 21))
_SECONDS = (0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.35, 0.5, 0.75, 1, 1.5, 2, 3, 5, 7.5, 10, 20, 40, 80, 160, 600)
_RATIOS = (0.1, 0.25, 0.5, 0.7, 0.8, 0.9, 1.0, 1.1, 1.2, 1.35, 1.5, 2.0, 3.0, 5.0, 10.0)
_PREFIX = "swingpool_router_"
_GROWTH = {
    "itl": (f"{_PREFIX}itl_seconds", "Inter-token latency, from the workers' own histograms."),
    "output": (f"{_PREFIX}output_tokens", "Output length per engine request; a prefill leg counts as 1."),
}


class RouterMetrics:
    """All series of one picker, in a registry of their own."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self.arrivals = self._counter("arrivals", "Requests that arrived, by path.", "path")
        self.requests = self._counter("requests", "Requests that ended, by the status that clients got.", "code")
        self.decisions = self._counter("decisions", "Placement decisions: split, whole or refused.", "kind")
        self.prompt_tokens = self._histogram("prompt_tokens", "Input sequence length.", buckets=_TOKENS)
        self.ttft = self._histogram("ttft_seconds", "Time to first token: arrival to the answer's first byte.")
        self.ttft_off = self._histogram(
            "ttft_measured_over_predicted",
            "Time to first token of streams that were split, over what was predicted when their prompt was sent.",
            buckets=_RATIOS,
        )
        self.itl_off = self._histogram(
            "itl_measured_over_predicted",
            "A decode worker's mean time between two tokens from scrape to scrape, over what its model predicts.",
            buckets=_RATIOS,
        )
        self.duration = self._histogram("duration_seconds", "Arrival to the last byte.")
        self.legs = self._histogram("prefill_leg_seconds", "Duration of prefill legs, by outcome.", "outcome")
        self.decode_legs = self._histogram("decode_leg_seconds", "From the hand-over to Envoy to the last byte.")
        self.queued = self._gauge("queued_requests", "Requests that wait for their placement.")
        self.queue = self._histogram("queue_seconds", "How long requests waited for their placement.")
        self.prefill_retries = self._counter("prefill_retries", "Prefill legs that failed and were run elsewhere.")
        self.decode_retries = self._counter("decode_retries", "Times that Envoy sent a request to a further worker.")
        self.no_transfer = self._counter(
            "prefill_legs_without_transfer", "Prefill legs whose worker kept no KV cache for the decode worker."
        )
        self.released = self._counter(
            "released_transfers", "Prompts whose client left between the two legs and whose KV cache was freed."
        )
        self.errors = self._counter("errors", "Requests that ended badly, by reason.", "reason")
        self.workers = self._gauge("workers", "Workers, by role and whether they get requests.", "role", "rotation")
        self.compiled = self._gauge("compiled", "1 if what requests go through is compiled, 0 if it is plain Python.")
        self.authorizer = self._counter(
            "authorizer_requests", "Requests that the external authorizer was asked about, by outcome.", "outcome"
        )
        self.authorizer_troubles = self._counter(
            "authorizer_troubles", "What went wrong on the way to the external authorizer, by reason.", "reason"
        )
        self.growth = GrowthCollector()
        self.registry.register(self.growth)

    def _counter(self, name: str, text: str, *labels: str) -> Counts:
        counts = Counts(_PREFIX + name, text, labels)
        self.registry.register(counts)
        return counts

    def _gauge(self, name: str, text: str, *labels: str) -> Gauge:
        return Gauge(_PREFIX + name, text, labels, registry=self.registry)

    def _histogram(self, name: str, text: str, *labels: str, buckets: tuple[float, ...] = _SECONDS) -> Distributions:
        distributions = Distributions(_PREFIX + name, text, labels, bounds=buckets)
        self.registry.register(distributions)
        return distributions


class GrowthCollector(Collector):
    """Workers' histograms added up for as long as the picker runs; a worker's restart or end takes nothing away."""

    def __init__(self) -> None:
        self._totals: dict[str, vllm_page.Histogram] = {}

    def add(self, series: str, growth: vllm_page.Histogram) -> None:
        """Add what a worker's histogram grew by."""
        known = self._totals.get(series)
        self._totals[series] = combined([known, growth]) if known else growth

    def total(self, series: str) -> vllm_page.Histogram | None:
        """Return all that a series grew by; None if nothing was seen of it."""
        return self._totals.get(series)

    def collect(self) -> Iterator[Metric]:
        """Yield the histograms that have been seen."""
        for series, total in self._totals.items():
            name, help_text = _GROWTH[series]
            buckets = [
                ("+Inf" if bound == float("inf") else str(bound), count)
                for bound, count in zip(total.bounds, total.counts, strict=True)
            ]
            yield HistogramMetricFamily(name, help_text, buckets=buckets, sum_value=total.sum)
