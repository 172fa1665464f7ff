"""One picture from several pickers."""

from dataclasses import replace
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from swingpool_control.figures import Unknown
from swingpool_control.observation import Percentiles, RouterObservation, WorkerObservation
from swingpool_control.router_merge import merge


def worker(**more: Any) -> WorkerObservation:
    plain: dict[str, Any] = {
        "pod": "w",
        "address": "10.0.0.1:8000",
        "role": "decode",
        "role_since_unix_s": 100.0,
        "in_rotation": True,
        "why_not": "",
        "pending_prefill_tokens": 0,
        "prefills_in_flight": 0,
        "decodes_in_flight": 2,
        "prefills_served": 0,
        "decodes_served": 5,
        "first_served_in_role_unix_s": 120.0,
        "running": 2.0,
        "waiting": 0.0,
        "kv_usage": 0.5,
        "scraped_unix_s": 130.0,
    }
    return WorkerObservation(**{**plain, **more})


def picker(name: str, *workers: WorkerObservation, **more: Any) -> RouterObservation:
    latency = Percentiles(p50=0.1, p90=0.2, p95=0.3, p99=0.4, count=10)
    plain: dict[str, Any] = {
        "picker": name,
        "at_unix_s": 200.0,
        "window_s": 30.0,
        "requests_per_s": 4.0,
        "prompt_tokens_per_s": 400.0,
        "mean_isl_tokens": 100.0,
        "mean_osl_tokens": 10.0,
        "ttft_s": latency,
        "itl_s": latency,
        "queued_requests": 1,
        "workers": workers,
    }
    return RouterObservation(**{**plain, **more})


def test_one_picker_is_taken_at_its_word() -> None:
    one = picker("a", worker())
    assert merge([one]) is one


def test_traffic_adds_up_and_means_are_weighted() -> None:
    merged = merge([picker("b", requests_per_s=1.0, mean_isl_tokens=1000.0), picker("a", requests_per_s=3.0)])
    assert merged.picker == "a,b"
    assert (merged.requests_per_s, merged.prompt_tokens_per_s, merged.queued_requests) == (4.0, 800.0, 2)
    assert merged.mean_isl_tokens == (1000 * 1 + 100 * 3) / 4


def test_a_part_of_the_traffic_is_not_the_traffic() -> None:
    merged = merge([picker("a"), picker("b", requests_per_s=Unknown("just started"))])
    assert isinstance(merged.requests_per_s, Unknown)
    assert isinstance(merged.mean_isl_tokens, Unknown)


def test_a_picker_without_traffic_has_no_say_on_means_and_percentiles() -> None:
    unknown = Unknown("no requests")
    idle = Percentiles(p50=unknown, p90=unknown, p95=unknown, p99=unknown, count=0)
    merged = merge([picker("a"), picker("b", requests_per_s=0.0, mean_isl_tokens=unknown, ttft_s=idle)])
    assert merged.mean_isl_tokens == 100.0
    assert (merged.ttft_s.p95, merged.ttft_s.count) == (0.3, 10)
    both = merge([picker("a", ttft_s=idle), picker("b", ttft_s=idle)])
    assert isinstance(both.ttft_s.p95, Unknown)


def test_the_worst_percentile_counts() -> None:
    slow = Percentiles(p50=1.0, p90=2.0, p95=3.0, p99=4.0, count=5)
    merged = merge([picker("a"), picker("b", ttft_s=slow)])
    assert (merged.ttft_s.p50, merged.ttft_s.p99, merged.ttft_s.count) == (1.0, 4.0, 15)


def test_a_role_has_changed_when_every_picker_has_seen_it() -> None:
    before = worker()
    after = worker(role="prefill", role_since_unix_s=190.0, first_served_in_role_unix_s=195.0)
    assert merge([picker("a", before), picker("b", after)]).workers[0].role == "decode"
    both = merge([picker("a", after), picker("b", replace(after, role_since_unix_s=191.0))]).workers[0]
    assert (both.role, both.role_since_unix_s, both.first_served_in_role_unix_s) == ("prefill", 190.0, 195.0)


def test_a_change_and_back_counts_when_every_picker_has_seen_it() -> None:
    missed_both = worker(role_since_unix_s=100.0, first_served_in_role_unix_s=110.0)
    saw_both = worker(role_since_unix_s=190.0, first_served_in_role_unix_s=Unknown("none yet"))
    assert merge([picker("a", missed_both), picker("b", saw_both)]).workers[0].role_since_unix_s == 100.0


def test_a_worker_is_in_rotation_of_a_role_that_every_picker_sees() -> None:
    merged = merge([picker("a", worker()), picker("b", worker(role="prefill", role_since_unix_s=190.0))]).workers[0]
    assert not merged.in_rotation
    assert merged.why_not == "picker a sees it as decode; picker b sees it as prefill"


def test_a_worker_that_a_picker_does_not_know_is_not_in_its_rotation() -> None:
    merged = merge([picker("a", worker()), picker("b")]).workers[0]
    assert (merged.in_rotation, merged.why_not) == (False, "picker b does not know it")


def test_what_workers_tell_is_seen_by_every_picker_and_counts_once() -> None:
    unknown = Unknown("just started")
    short = Percentiles(p50=0.2, p90=0.2, p95=0.2, p99=0.2, count=4)
    merged = merge([picker("a", itl_s=short, mean_osl_tokens=unknown), picker("b", requests_per_s=0.0)])
    assert (merged.itl_s.count, merged.itl_s.p95, merged.mean_osl_tokens) == (10, 0.3, 10.0)
    both = merge([picker("a", mean_osl_tokens=unknown), picker("b", mean_osl_tokens=unknown)])
    assert isinstance(both.mean_osl_tokens, Unknown)


def test_first_service_by_any_picker_counts_and_by_none_is_unknown() -> None:
    unknown = worker(first_served_in_role_unix_s=Unknown("none yet"))
    merged = merge([picker("a", unknown), picker("b", worker(first_served_in_role_unix_s=150.0))])
    assert merged.workers[0].first_served_in_role_unix_s == 150.0
    assert isinstance(
        merge([picker("a", unknown), picker("b", unknown)]).workers[0].first_served_in_role_unix_s, Unknown
    )


def test_work_adds_up_and_gauges_are_the_freshest() -> None:
    old, new = worker(scraped_unix_s=100.0, running=9.0), worker(scraped_unix_s=130.0, running=2.0)
    never = worker(scraped_unix_s=Unknown("never"), running=Unknown("never"), in_rotation=False, why_not="not ready")
    merged = merge([picker("a", old), picker("b", new), picker("c", never)]).workers[0]
    assert (merged.decodes_in_flight, merged.decodes_served, merged.running) == (6, 15, 2.0)
    assert (merged.in_rotation, merged.why_not) == (False, "not ready")


@given(st.lists(st.sampled_from("wxyz"), max_size=6), st.integers(2, 4))
def test_every_worker_is_there_once(pods: list[str], pickers: int) -> None:
    seen = [picker(f"p{n}", *(worker(pod=pod) for pod in dict.fromkeys(pods[n:]))) for n in range(pickers)]
    assert [one.pod for one in merge(seen).workers] == sorted(set(pods))
