"""What goes through the router, counted twice: for ever, as metrics, and lately, for the manager's loops."""

import time
from collections import deque

from swingpool.picker.metrics import RouterMetrics
from swingpool.telemetry.vllm_page import Histogram, WorkerFigures
from swingpool.telemetry.windows import MOST_VALUES, Histograms, Values, typical
from swingpool_control.figures import Figure, Unknown
from swingpool_control.placement.estimate import TokenRate
from swingpool_control.sizing.recent import Recent


class Arrival:
    """One request's arrival; its prompt's length becomes exact once a worker has counted it."""

    __slots__ = ("at_s", "prompt_tokens", "unix_s")

    def __init__(self, prompt_tokens: int) -> None:
        self.at_s = time.monotonic()
        self.unix_s = time.time()
        self.prompt_tokens = prompt_tokens


class Traffic:
    """Everything about requests that is reported; times are monotonic seconds unless they say otherwise."""

    def __init__(self, metrics: RouterMetrics, *, window_s: float) -> None:
        self.metrics = metrics
        self.window_s = window_s
        self.token_rate = TokenRate()
        self.queued = 0
        self.arrived_requests = 0
        self.arrived_prompt_tokens = 0
        self.deflected_prompt_tokens = 0
        self._started_s = time.monotonic()
        self._arrivals: deque[Arrival] = deque(maxlen=MOST_VALUES)
        self.ttft_s = Values(window_s=window_s)
        self.itl_s = Histograms(window_s=window_s)
        self.output_tokens = Histograms(window_s=window_s)
        self.recent = Recent()
        self._cached_tokens = Values(window_s=window_s)
        self._tells_cached = False

    def arrived(self, path: str, prompt_tokens: int) -> Arrival:
        """Count a request that arrived with a prompt of about this length."""
        arrival = Arrival(prompt_tokens)
        self._arrivals.append(arrival)
        self.arrived_requests += 1
        self.arrived_prompt_tokens += prompt_tokens
        self.recent.arrived(prompt_tokens, now_s=arrival.at_s)
        self.metrics.arrivals.labels(path).inc()
        return arrival

    def counted(self, arrival: Arrival, *, text_bytes: int, prompt_tokens: int) -> None:
        """Take over a prompt's exact length, and learn from it."""
        if prompt_tokens > 0:
            self.arrived_prompt_tokens += prompt_tokens - arrival.prompt_tokens
            arrival.prompt_tokens = prompt_tokens
            self.token_rate = self.token_rate.observed(text_bytes=text_bytes, tokens=prompt_tokens)

    def first_token(self, ttft_s: float) -> None:
        """Count a time to first token."""
        self.ttft_s.add(ttft_s, now_s=time.monotonic())
        self.metrics.ttft.observe(ttft_s)

    def scraped(self, now: WorkerFigures, before: WorkerFigures, *, prefills: bool) -> None:
        """Count what a worker's histograms grew by. The first scrape of a worker only sets where counting starts.

        Args:
            now: its figures.
            before: those of the scrape before.
            prefills: whether it computes prompts for others: what its prefix cache had was not computed by anyone.
        """
        if isinstance(before.scraped_unix_s, Unknown):
            return
        at_s = time.monotonic()
        if prefills and not isinstance(now.cached_tokens, Unknown):
            self._tells_cached = True
            grown = 0.0 if isinstance(before.cached_tokens, Unknown) else now.cached_tokens - before.cached_tokens
            if grown > 0:
                self._cached_tokens.add(grown, now_s=at_s)
        for series, window, earlier, later in (
            ("itl", self.itl_s, before.itl_s, now.itl_s),
            ("output", self.output_tokens, before.output_tokens, now.output_tokens),
        ):
            if later is not None:
                growth = later.since(earlier or Histogram())
                window.add(growth, now_s=at_s)
                self.metrics.growth.add(series, growth)
                if series == "itl":
                    self.recent.generated(growth.count, now_s=at_s)
                if series == "output" and growth.count > 0:
                    for tokens, count in typical(growth):
                        self.recent.answered(tokens, count, now_s=at_s)

    def generated(self, now: WorkerFigures, before: WorkerFigures, *, predicted_gap_s: float | None) -> None:
        """Count how far off the predicted time between two tokens was on a decode worker, from scrape to scrape.

        Args:
            now: its figures.
            before: those of the scrape before.
            predicted_gap_s: what its model says of what it generates for now; None if that is nothing.
        """
        if predicted_gap_s is None or predicted_gap_s <= 0 or now.itl_s is None or before.itl_s is None:
            return
        growth = now.itl_s.since(before.itl_s)
        if growth.count > 0:
            self.metrics.itl_off.observe(growth.sum / growth.count / predicted_gap_s)

    def cached_per_s(self, *, covered_s: float) -> Figure:
        """Return the prompt tokens per second that prefill workers had in their caches, over the window.

        Args:
            covered_s: seconds of the window that this picker has run for.
        """
        if not self._tells_cached:
            return Unknown("no prefill worker tells what its prefix cache had")
        return sum(self._cached_tokens.recent(now_s=time.monotonic())) / max(1.0, covered_s)

    def recent_arrivals(self) -> tuple[list[Arrival], float]:
        """Return the window's arrivals, and the seconds that it covers."""
        now_s = time.monotonic()
        while self._arrivals and self._arrivals[0].at_s < now_s - self.window_s:
            self._arrivals.popleft()
        since_s = max(now_s - self.window_s, self._started_s)
        if len(self._arrivals) == MOST_VALUES:
            since_s = max(since_s, self._arrivals[0].at_s)
        return list(self._arrivals), now_s - since_s
