"""Traffic from workers' own metrics: rates, lengths and latencies of a load whose figures are known."""

from dataclasses import replace

import pytest

from swingpool.manager.external_traffic import SILENT_AFTER_S, Asked, ExternalTraffic
from swingpool.telemetry.vllm_page import Histogram, WorkerFigures
from swingpool_control import names
from swingpool_control.figures import Unknown
from swingpool_control.observation import RouterObservation
from swingpool_control.sizing.traffic import Lengths

BOUNDS = (1.0, 100.0, 1000.0, 10000.0, float("inf"))
SECONDS = (0.01, 0.02, 0.05, 0.1, 0.5, 1.0, float("inf"))
PROMPT, ANSWER = 400, 50
NONE = Unknown("not told")


def histogram(bounds: tuple[float, ...], value: float, count: float) -> Histogram:
    counts = tuple(count if bound >= value else 0.0 for bound in bounds)
    return Histogram(bounds=bounds, counts=counts, sum=value * count)


def figures(*, ended: float, running: float, waiting: float, answer: int, ttft_s: float, at: float) -> WorkerFigures:
    return WorkerFigures(
        running=running,
        waiting=waiting,
        kv_usage=0.25,
        scraped_unix_s=at,
        itl_s=histogram(SECONDS, 0.015, ended * (answer - 1)),
        ttft_s=histogram(SECONDS, ttft_s, ended),
        output_tokens=histogram(BOUNDS, answer, ended),
        prompt_tokens=histogram(BOUNDS, PROMPT, ended),
        transferred_tokens=NONE,
        cached_tokens=ended * 40,
    )


class Cluster:
    """One prefill and one decode worker through which requests go at a rate."""

    def __init__(self) -> None:
        self.traffic = ExternalTraffic()
        self.now = 1000.0
        self.computed = self.ended = 0.0
        self.queue = self.batch = 0.0
        self.roles = {"p": names.ROLE_PREFILL, "d": names.ROLE_DECODE}
        self.silent: set[str] = set()

    def step(self, *, computed: float, ended: float, arrived: float, seconds: float = 1.0) -> RouterObservation:
        self.now += seconds
        self.computed += computed
        self.queue += arrived - computed
        self.ended += ended
        self.batch += computed - ended
        prefill = figures(
            ended=self.computed,
            running=min(1.0, self.queue),
            waiting=max(0.0, self.queue - 1),
            answer=1,
            ttft_s=0.08,
            at=self.now,
        )
        decode = figures(ended=self.ended, running=self.batch, waiting=0, answer=ANSWER, ttft_s=0.018, at=self.now)
        self.traffic.saw(
            [
                Asked(
                    pod=pod,
                    uid=pod,
                    address=f"{pod}:8000",
                    role=self.roles[pod],
                    why_not="",
                    figures=None if pod in self.silent else known,
                )
                for pod, known in (("p", prefill), ("d", decode))
            ],
            now_unix_s=self.now,
        )
        return self.traffic.observation(now_unix_s=self.now)


def test_a_steady_load_is_told_as_it_is() -> None:
    cluster = Cluster()
    for _ in range(30):
        seen = cluster.step(arrived=4, computed=4, ended=4)
    assert seen.requests_per_s == pytest.approx(4.0)
    assert seen.prompt_tokens_per_s == pytest.approx(4.0 * PROMPT)
    assert seen.mean_isl_tokens == pytest.approx(PROMPT)
    assert seen.mean_osl_tokens == pytest.approx(ANSWER)
    assert seen.cached_prompt_tokens_per_s == pytest.approx(160.0, rel=0.1)
    assert isinstance(seen.ttft_s.p95, float)
    assert 0.06 <= seen.ttft_s.p95 <= 0.12, "the prompt's leg and then the first step"
    assert isinstance(seen.itl_s.p95, float)
    assert 0.01 <= seen.itl_s.p95 <= 0.02
    assert isinstance(seen.lengths, Lengths)


def test_what_waits_has_arrived_too() -> None:
    cluster = Cluster()
    for _ in range(30):
        seen = cluster.step(arrived=6, computed=2, ended=1)
    assert seen.requests_per_s == pytest.approx(6.0)
    [prefill] = [one for one in seen.workers if one.pod == "p"]
    assert prefill.prefills_in_flight == 120
    assert prefill.pending_prefill_tokens == pytest.approx(120 * PROMPT)
    [decode] = [one for one in seen.workers if one.pod == "d"]
    assert decode.decodes_in_flight == 30


def test_a_silent_worker_makes_the_traffic_unknown_and_its_return_loses_nothing() -> None:
    cluster = Cluster()
    for _ in range(20):
        cluster.step(arrived=4, computed=4, ended=4)
    cluster.silent = {"d"}
    seen = cluster.step(arrived=4, computed=4, ended=4)
    assert not isinstance(seen.requests_per_s, Unknown), "one missed answer is no news"
    for _ in range(int(SILENT_AFTER_S)):
        seen = cluster.step(arrived=4, computed=4, ended=4)
    assert isinstance(seen.requests_per_s, Unknown)
    assert "d" in seen.requests_per_s.why
    assert isinstance(seen.arrived_requests, Unknown)
    cluster.silent = set()
    for _ in range(20):
        seen = cluster.step(arrived=4, computed=4, ended=4)
    assert seen.requests_per_s == pytest.approx(4.0)


def test_a_restarted_worker_counts_from_zero_again() -> None:
    cluster = Cluster()
    for _ in range(20):
        cluster.step(arrived=4, computed=4, ended=4)
    cluster.computed = cluster.ended = 0.0
    for _ in range(20):
        seen = cluster.step(arrived=4, computed=4, ended=4)
    assert seen.requests_per_s == pytest.approx(4.0, rel=0.1)


def test_a_role_is_served_when_its_first_request_shows() -> None:
    cluster = Cluster()
    for _ in range(3):
        cluster.step(arrived=4, computed=4, ended=4)
    cluster.roles["d"] = names.ROLE_DRAINING
    seen = cluster.step(arrived=0, computed=0, ended=0)
    [worker] = [one for one in seen.workers if one.pod == "d"]
    assert not worker.in_rotation
    assert isinstance(worker.first_served_in_role_unix_s, Unknown)
    cluster.roles["d"] = names.ROLE_DECODE
    seen = cluster.step(arrived=0, computed=0, ended=0)
    [worker] = [one for one in seen.workers if one.pod == "d"]
    assert worker.in_rotation
    assert worker.role_since_unix_s == cluster.now
    assert isinstance(worker.first_served_in_role_unix_s, Unknown)
    seen = cluster.step(arrived=1, computed=1, ended=1)
    [worker] = [one for one in seen.workers if one.pod == "d"]
    assert worker.first_served_in_role_unix_s == cluster.now


def test_requests_of_a_worker_that_is_gone_stay_counted() -> None:
    cluster = Cluster()
    for _ in range(10):
        seen = cluster.step(arrived=4, computed=4, ended=4)
    before = seen.arrived_requests
    cluster.traffic.saw([], now_unix_s=cluster.now + 1)
    seen = cluster.traffic.observation(now_unix_s=cluster.now + 1)
    assert seen.arrived_requests == before
    assert seen.workers == ()


def test_a_worker_without_figures_is_no_zero() -> None:
    traffic = ExternalTraffic()
    asked = Asked(pod="w", uid="w", address="w:8000", role=names.ROLE_DECODE, why_not="", figures=None)
    traffic.saw([asked, replace(asked, pod="x", uid="x", why_not="its pod is not ready")], now_unix_s=1.0)
    seen = traffic.observation(now_unix_s=1.0)
    assert all(isinstance(one.running, Unknown) and not one.in_rotation for one in seen.workers)
    assert isinstance(seen.requests_per_s, Unknown)
    assert "w" in seen.requests_per_s.why
    assert "x" not in seen.requests_per_s.why
