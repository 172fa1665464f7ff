"""Workers' speed as the live cluster shows it: found, carried into the models, and never from what says nothing."""

from dataclasses import replace
from typing import Any

import pytest

from swingpool_control import names
from swingpool_control.api.status import InferenceClusterStatus
from swingpool_control.engine import profile
from swingpool_control.engine.calibration import DEAD_BAND
from swingpool_control.engine.model import decode_step_s, prefill_s
from swingpool_control.figures import Unknown
from swingpool_control.observation import NOT_TOLD, Percentiles, RouterObservation, WorkerObservation
from swingpool_control.sizing.speed import SpeedMemory, calibrated, follow
from swingpool_control.sizing.traffic import one_length
from swingpool_control.view import ClusterView, WorkerView
from tests.unit.swing.fleet import spec

MODEL = profile.built_in("llama-3.1-8b-fp8-h200").model()
T0 = 1_760_000_000.0
CONTEXT = 1000 + 200 / 2
GONE = Unknown("gone")


def percentiles(mean: float, count: int = 1000) -> Percentiles:
    return Percentiles(p50=mean, p90=mean, p95=mean, p99=mean, count=count, mean=mean)


def worker(pod: str, role: str, **parts: Any) -> WorkerObservation:
    base: dict[str, Any] = {
        "pod": pod,
        "address": pod,
        "role": role,
        "role_since_unix_s": T0,
        "in_rotation": True,
        "why_not": "",
        "pending_prefill_tokens": 0,
        "prefills_in_flight": 0,
        "decodes_in_flight": 0,
        "prefills_served": 0,
        "decodes_served": 0,
        "first_served_in_role_unix_s": T0,
        "running": GONE,
        "waiting": GONE,
        "kv_usage": GONE,
        "scraped_unix_s": T0,
    }
    return WorkerObservation(**(base | parts))


def router(*, itl_ratio: float = 1.0, slowness: float = 1.0, **parts: Any) -> RouterObservation:
    """Two decode workers, of 8 and 24 sequences, and a prefill worker."""
    steps = [decode_step_s(MODEL, sequences=n, context_tokens=round(n * CONTEXT)) for n in (8, 24)]
    mean_s = 32 / (8 / steps[0] + 24 / steps[1])
    base: dict[str, Any] = {
        "picker": "one",
        "at_unix_s": T0,
        "window_s": 15.0,
        "requests_per_s": 1.0,
        "prompt_tokens_per_s": 1000.0,
        "mean_isl_tokens": 1000.0,
        "mean_osl_tokens": 200.0,
        "ttft_s": percentiles(0.1),
        "itl_s": percentiles(mean_s * itl_ratio),
        "queued_requests": 0,
        "workers": (
            worker("p", names.ROLE_PREFILL, slowness=slowness, prefills_served=500, kv_usage=0.2),
            worker("d1", names.ROLE_DECODE, decodes_in_flight=8),
            worker("d2", names.ROLE_DECODE, decodes_in_flight=30, running=24.0),
        ),
        "lengths": one_length(prompt_tokens=1000, output_tokens=200),
    }
    return RouterObservation(**(base | parts))


def view(seen: RouterObservation | Unknown) -> ClusterView:
    def pod(name: str, role: str) -> WorkerView:
        return WorkerView(
            pod=name,
            uid=name,
            pool=role,
            role=role,
            ready=True,
            deleting=False,
            unschedulable="",
            waiting="",
            created_unix_s=T0,
            restarts=0,
            revision="1",
            flip="",
            drain="",
            deletion_cost=0,
        )

    return ClusterView(
        namespace="default",
        name="chat",
        uid="1",
        generation=1,
        spec=spec(),
        status=InferenceClusterStatus(),
        pools=(),
        workers=(pod("p", names.ROLE_PREFILL), pod("d1", names.ROLE_DECODE), pod("d2", names.ROLE_DECODE)),
        router=seen,
        router_ready=True,
        models={names.ROLE_PREFILL: MODEL, names.ROLE_DECODE: MODEL},
    )


def watched(make: Any, *, minutes: int) -> SpeedMemory:
    memory = SpeedMemory()
    for tick in range(minutes * 4):
        now = T0 + 15.0 * tick
        seen = make(tick)
        if isinstance(seen, RouterObservation):
            seen = replace(seen, at_unix_s=now)
        memory = follow(view(seen), memory, now_unix_s=now)
    return memory


def test_workers_as_fast_as_their_profile_change_nothing() -> None:
    memory = watched(lambda _: router(), minutes=120)
    assert memory.calibration.neutral
    assert calibrated(view(router()), memory).models == view(router()).models


def test_slower_workers_are_found_within_an_hour_and_told_to_both_roles_models() -> None:
    memory = watched(lambda _: router(itl_ratio=1.3, slowness=1.2), minutes=90)
    assert memory.calibration.decode == pytest.approx(1.3, rel=2 * DEAD_BAND)
    assert memory.calibration.prefill == pytest.approx(1.2, rel=2 * DEAD_BAND)
    seen = calibrated(view(router()), memory)
    model = seen.models[names.ROLE_DECODE]
    assert not isinstance(model, Unknown)
    assert decode_step_s(model, sequences=8, context_tokens=8000) == pytest.approx(
        memory.calibration.decode * decode_step_s(MODEL, sequences=8, context_tokens=8000)
    )
    assert prefill_s(model, prompt_tokens=2000) == pytest.approx(
        memory.calibration.prefill * prefill_s(MODEL, prompt_tokens=2000), rel=1e-6
    )
    assert seen.calibration == memory.calibration


def test_prompts_on_decode_workers_are_taken_off_or_say_nothing() -> None:
    token_s = (
        prefill_s(MODEL, prompt_tokens=1000) - decode_step_s(MODEL, sequences=1, context_tokens=0)
    ) / 1000  # so many per second and worker make steps longer by a quarter of all time
    each = 0.2 * 2 / token_s * 15.0
    some = watched(lambda tick: router(itl_ratio=1 / 0.8, deflected_prompt_tokens=each * tick), minutes=90)
    assert some.calibration.decode == 1.0
    many = watched(lambda tick: router(itl_ratio=2.0, deflected_prompt_tokens=2 * each * tick), minutes=90)
    assert many.calibration.decode == 1.0
    assert "many prompts" in many.calibration.why[names.ROLE_DECODE]


@pytest.mark.parametrize(
    "make",
    [
        lambda _: GONE,
        lambda _: router(itl_s=replace(percentiles(0.05), mean=NOT_TOLD), workers=()),
        lambda _: router(itl_s=percentiles(0.05, count=3), workers=(worker("d1", names.ROLE_DECODE),)),
        lambda _: router(lengths=GONE, mean_isl_tokens=GONE, workers=(worker("p", names.ROLE_PREFILL),)),
    ],
)
def test_what_is_unknown_leaves_the_profiles_alone(make: Any) -> None:
    assert watched(make, minutes=30).calibration.neutral


@pytest.mark.parametrize("kv_usage", [0.95, GONE])
def test_waiting_for_room_in_the_kv_cache_is_not_slowness(kv_usage: Any) -> None:
    full = worker("p", names.ROLE_PREFILL, slowness=1.4, prefills_served=500, kv_usage=kv_usage)
    memory = watched(lambda _: router(workers=(full,)), minutes=60)
    assert memory.calibration.neutral
    assert "wait to be fetched" in memory.calibration.why[names.ROLE_PREFILL]


def test_who_has_room_tells_for_all() -> None:
    full = worker("p", names.ROLE_PREFILL, slowness=2.0, prefills_served=500, kv_usage=0.95)
    roomy = worker("d1", names.ROLE_PREFILL, slowness=1.2, prefills_served=500, kv_usage=0.1)
    memory = watched(lambda _: router(workers=(full, roomy)), minutes=90)
    assert memory.calibration.prefill == pytest.approx(1.2, rel=2 * DEAD_BAND)


def test_prompts_that_are_computed_now_take_no_room_from_others() -> None:
    share = MODEL.max_batched_tokens / MODEL.kv_capacity_tokens
    busy = worker(
        "p",
        names.ROLE_PREFILL,
        slowness=1.2,
        prefills_served=500,
        pending_prefill_tokens=MODEL.max_batched_tokens,
        kv_usage=0.5 + share,
    )
    assert watched(lambda _: router(workers=(busy,)), minutes=30).calibration.prefill > 1.0


def test_old_figures_leave_the_factors_as_they_are() -> None:
    memory = watched(lambda _: router(itl_ratio=1.3), minutes=30)
    later = follow(view(router(itl_ratio=0.7)), memory, now_unix_s=T0 + 7200.0)
    assert later.calibration.decode == memory.calibration.decode > 1.0
