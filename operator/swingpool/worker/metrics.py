"""The worker's metrics, under the names, labels and buckets that vLLM gives them."""

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

from swingpool.worker.jobs import Job
from swingpool.worker.options import Options
from swingpool_control.engine.batching import BatchingEngine


def _buckets(text: str) -> tuple[float, ...]:
    return tuple(map(float, text.split()))


FIRST_TOKEN_S = _buckets("0.001 0.005 0.01 0.02 0.04 0.06 0.08 0.1 0.25 0.5 0.75 1 2.5 5 7.5 10 20 40 80 160 640 2560")
BETWEEN_TOKENS_S = _buckets("0.01 0.025 0.05 0.075 0.1 0.15 0.2 0.3 0.4 0.5 0.75 1 2.5 5 7.5 10 20 40 80")
REQUEST_S = _buckets("0.3 0.5 0.8 1 1.5 2 2.5 5 10 15 20 30 40 50 60 120 240 480 960 1920 7680")
ITERATION_TOKENS = tuple(float(2**power) for power in (0, *range(3, 15)))
TRANSFER_S = _buckets("0.005 0.01 0.025 0.05 0.075 0.1 0.2 0.3 0.5 0.75 1 5")
CHOICES = _buckets("1 2 5 10 20")

_LABELS = ("model_name", "engine")


def tokens_up_to(longest: int) -> tuple[float, ...]:
    """Return buckets 1, 2, 5, 10, ... up to the longest context."""
    steps = (mantissa * 10**power for power in range(len(str(longest))) for mantissa in (1, 2, 5))
    return tuple(float(step) for step in steps if step <= longest)


class Metrics:
    """All series of one worker, in a registry of their own."""

    def __init__(self, options: Options, engine: BatchingEngine) -> None:
        self._registry = CollectorRegistry()
        self._labels = (options.served_names[0], "0")
        self._engine = engine
        lengths = tokens_up_to(options.max_model_len)
        self._running = self._gauge("num_requests_running", "Requests in the batch.")
        self._waiting = self._gauge("num_requests_waiting", "Requests that wait to be in the batch.")
        self._kv_usage = self._gauge("kv_cache_usage_perc", "Share of the KV cache in use; 1 is all.")
        self._prompt = self._counter("prompt_tokens", "Prompt tokens processed.")
        self._generated = self._counter("generation_tokens", "Tokens generated.")
        self._preemptions = self._counter("num_preemptions", "Preemptions.")
        self._queries = self._counter("prefix_cache_queries", "Prompt tokens looked up in the prefix cache.")
        self._hits = self._counter("prefix_cache_hits", "Prompt tokens found in the prefix cache.")
        self._external_queries = self._counter(
            "external_prefix_cache_queries", "Prompt tokens that might have come from another worker."
        )
        self._external_hits = self._counter(
            "external_prefix_cache_hits", "Prompt tokens that came from another worker."
        )
        self._cached = self._counter("prompt_tokens_cached", "Prompt tokens that were not computed.")
        self._expired = self._counter("nixl_num_kv_expired_reqs", "Requests whose KV cache nobody pulled in time.")
        self._failed = self._counter("nixl_num_failed_transfers", "Pulls of KV cache that failed.")
        self._waiting_why = Gauge(
            "vllm:num_requests_waiting_by_reason",
            "Requests that wait: for capacity, or (deferred) for their KV cache.",
            (*_LABELS, "reason"),
            registry=self._registry,
        )
        self._sources = Counter(
            "vllm:prompt_tokens_by_source",
            "Prompt tokens by where their KV cache came from.",
            (*_LABELS, "source"),
            registry=self._registry,
        )
        self._success = Counter(
            "vllm:request_success", "Requests that ended.", (*_LABELS, "finished_reason"), registry=self._registry
        )
        self._first_token = self._histogram("time_to_first_token_seconds", "Time to first token.", FIRST_TOKEN_S)
        self._between = self._histogram("inter_token_latency_seconds", "Time between tokens.", BETWEEN_TOKENS_S)
        self._per_output = self._histogram(
            "request_time_per_output_token_seconds", "A request's mean time per token.", BETWEEN_TOKENS_S
        )
        self._whole = self._histogram("e2e_request_latency_seconds", "A request's whole time.", REQUEST_S)
        self._queued = self._histogram("request_queue_time_seconds", "A request's time in the queue.", REQUEST_S)
        self._inference = self._histogram("request_inference_time_seconds", "A request's time in the batch.", REQUEST_S)
        self._prefill = self._histogram(
            "request_prefill_time_seconds", "A request's time to its first token.", REQUEST_S
        )
        self._decode = self._histogram(
            "request_decode_time_seconds", "A request's time after its first token.", REQUEST_S
        )
        self._prompt_lengths = self._histogram("request_prompt_tokens", "Lengths of prompts.", lengths)
        self._output_lengths = self._histogram("request_generation_tokens", "Lengths of answers.", lengths)
        self._limits = self._histogram("request_params_max_tokens", "Limits that requests set.", lengths)
        self._choices = self._histogram("request_params_n", "Answers that requests asked for.", CHOICES)
        self._iterations = self._histogram("iteration_tokens_total", "Tokens per iteration.", ITERATION_TOKENS)
        self._transfers = self._histogram("nixl_xfer_time_seconds", "Time of a pull of KV cache.", TRANSFER_S)
        self._seen: dict[str, int] = {}
        for reason in ("stop", "length", "abort", "error"):
            self._success.labels(*self._labels, reason)
        self._cache_info(options)

    def text(self) -> bytes:
        """Return all series in Prometheus' text format, as they are now."""
        engine, counters = self._engine, self._engine.counters
        self._running.set(engine.running)
        self._waiting.set(engine.waiting)
        self._waiting_why.labels(*self._labels, "deferred").set(engine.loading)
        self._waiting_why.labels(*self._labels, "capacity").set(engine.waiting - engine.loading)
        self._kv_usage.set(engine.kv_usage)
        sources = {
            "local_compute": counters.local_compute_tokens,
            "local_cache_hit": counters.local_cache_tokens,
            "external_kv_transfer": counters.transferred_tokens,
        }
        for source, total in sources.items():
            self._advance(self._sources.labels(*self._labels, source), source, total)
        prompt, transferred = sum(sources.values()), counters.transferred_tokens
        self._advance(self._prompt, "prompt", prompt)
        self._advance(self._external_queries, "external queries", prompt)
        self._advance(self._external_hits, "external hits", transferred)
        self._advance(self._cached, "cached", counters.local_cache_tokens + transferred)
        self._advance(self._preemptions, "preemptions", counters.preemptions)
        self._advance(self._queries, "queries", counters.prefix_queries)
        self._advance(self._hits, "hits", counters.prefix_hits)
        self._advance(self._expired, "expired", counters.expired_leases)
        return generate_latest(self._registry)

    def iteration(self, computed_tokens: int, generated_tokens: int) -> None:
        """Count an iteration."""
        self._iterations.observe(computed_tokens)
        self._generated.inc(generated_tokens)

    def first_token(self, seconds: float) -> None:
        """Count a request's first token, so long after its arrival."""
        self._first_token.observe(seconds)

    def between_tokens(self, seconds: float) -> None:
        """Count a further token, so long after the one before."""
        self._between.observe(seconds)

    def finished(self, job: Job, reason: str, now_s: float) -> None:
        """Count a request that ended; one that was never in the batch has no times."""
        self._success.labels(*self._labels, reason).inc()
        if job.first_token_s is None or job.scheduled_s is None:
            return
        request = job.request
        self._whole.observe(now_s - job.arrived_s)
        self._queued.observe(job.scheduled_s - job.arrived_s)
        self._inference.observe(now_s - job.scheduled_s)
        self._prefill.observe(job.first_token_s - job.scheduled_s)
        self._decode.observe(now_s - job.first_token_s)
        if job.tokens > 1:
            self._per_output.observe((now_s - job.first_token_s) / (job.tokens - 1))
        self._prompt_lengths.observe(request.prompt_tokens)
        self._output_lengths.observe(job.tokens)

    def asked(self, *, max_tokens: int, answers: int) -> None:
        """Count what a request asked for."""
        self._limits.observe(max_tokens)
        self._choices.observe(answers)

    def transfer(self, seconds: float) -> None:
        """Count a pull of KV cache that went well."""
        self._transfers.observe(seconds)

    def transfer_failed(self) -> None:
        """Count a pull of KV cache that failed."""
        self._failed.inc()

    def _advance(self, counter: Counter, name: str, total: int) -> None:
        counter.inc(total - self._seen.get(name, 0))
        self._seen[name] = total

    def _gauge(self, name: str, text: str) -> Gauge:
        return Gauge(f"vllm:{name}", text, _LABELS, registry=self._registry).labels(*self._labels)

    def _counter(self, name: str, text: str) -> Counter:
        return Counter(f"vllm:{name}", text, _LABELS, registry=self._registry).labels(*self._labels)

    def _histogram(self, name: str, text: str, buckets: tuple[float, ...]) -> Histogram:
        metric = Histogram(f"vllm:{name}", text, _LABELS, buckets=buckets, registry=self._registry)
        return metric.labels(*self._labels)

    def _cache_info(self, options: Options) -> None:
        facts = {
            "block_size": str(options.block_size),
            "cache_dtype": options.kv_cache_dtype,
            "enable_prefix_caching": str(options.prefix_caching),
            "engine": "0",
            "num_gpu_blocks": str(self._engine.limits.total_blocks),
        }
        info = Gauge("vllm:cache_config_info", "The KV cache's layout.", tuple(facts), registry=self._registry)
        info.labels(**facts).set(1)
