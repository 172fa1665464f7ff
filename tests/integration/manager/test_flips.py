"""Roles on a real API server: flipped by the manager, finished by traffic, and resumed after it was killed.

No kubelet and no router run here: pods are told ready, and a picker's state is served by the test.
"""

import asyncio
import json
import signal
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest
from aiohttp import web

from swingpool.telemetry.router_state import encode
from swingpool_control import names
from swingpool_control.figures import Unknown
from swingpool_control.observation import Percentiles, RouterObservation, WorkerObservation
from tests.support.manager_stand import ManagerProcess, Place, make_ready
from tests.support.waiting import until

DECODE = {"name": "decode", "role": "Decode", "replicas": {"mode": "Fixed", "count": 1}}
SWING = {"name": "swing", "role": "Swing", "replicas": {"mode": "Fixed", "count": 2}}
NONE = Unknown("no requests")
LATENCY = Percentiles(p50=NONE, p90=NONE, p95=NONE, p99=NONE, count=0)


class FakePicker:
    """Serves a state: every worker in rotation in the role of its label, and served in it if the test says so."""

    def __init__(self, here: Place, cluster: str) -> None:
        self._here, self._cluster = here, cluster
        self.served = False
        self.port = 0
        self._since: dict[tuple[str, str], float] = {}
        self._loop = asyncio.new_event_loop()
        self._started = threading.Event()
        self._thread = threading.Thread(target=self._serve, daemon=True)

    def start(self) -> None:
        self._thread.start()
        assert self._started.wait(10)

    def stop(self) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(10)

    def _serve(self) -> None:
        application = web.Application()
        application.add_routes([web.get("/state", self._state)])
        runner = web.AppRunner(application)
        self._loop.run_until_complete(runner.setup())
        self._loop.run_until_complete(web.TCPSite(runner, "127.0.0.1", 0).start())
        self.port = runner.addresses[0][1]
        self._started.set()
        self._loop.run_forever()
        self._loop.run_until_complete(runner.cleanup())
        self._loop.close()

    async def _state(self, request: web.Request) -> web.Response:
        pods = await asyncio.to_thread(self._here.find, "Pod", f"{names.LABEL_CLUSTER}={self._cluster}")
        workers = tuple(
            self._worker(pod["metadata"]["name"], pod["metadata"]["labels"][names.LABEL_ROLE])
            for pod in pods
            if names.LABEL_ROLE in pod["metadata"]["labels"]
        )
        figures = {"requests_per_s": 0.0, "prompt_tokens_per_s": 0.0, "mean_isl_tokens": NONE, "mean_osl_tokens": NONE}
        state = RouterObservation(
            picker="fake", at_unix_s=time.time(), window_s=30.0, queued_requests=0, workers=workers,
            ttft_s=LATENCY, itl_s=LATENCY, **figures,  # type: ignore[arg-type]
        )  # fmt: skip
        return web.Response(body=encode(state))

    def _worker(self, pod: str, role: str) -> WorkerObservation:
        now = time.time()
        since = self._since.setdefault((pod, role), now)
        return WorkerObservation(
            pod=pod,
            address="127.0.0.1:1",
            role=role,
            role_since_unix_s=since,
            in_rotation=True,
            why_not="",
            pending_prefill_tokens=0,
            prefills_in_flight=0,
            decodes_in_flight=0,
            prefills_served=0,
            decodes_served=0,
            first_served_in_role_unix_s=now if self.served else Unknown("nothing served"),
            running=0.0,
            waiting=0.0,
            kv_usage=0.0,
            scraped_unix_s=now,
        )


@pytest.fixture
def picker(here: Place) -> Iterator[FakePicker]:
    one = FakePicker(here, "flipping")
    one.start()
    yield one
    one.stop()


def workers(here: Place, cluster: str, role: str) -> list[dict[str, Any]]:
    return here.find("Pod", f"{names.LABEL_CLUSTER}={cluster},{names.LABEL_ROLE}={role}")


def flips(here: Place) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = ((here.get("InferenceCluster", "flipping") or {}).get("status") or {}).get(
        "flips"
    ) or []
    return found


def test_a_killed_manager_resumes_the_flip_that_stands_on_the_pod(
    here: Place, clusters: Any, picker: FakePicker
) -> None:
    clusters("flipping", DECODE, SWING)
    first = ManagerProcess(here, arguments=(f"--picker-port={picker.port}",)).start()
    second = ManagerProcess(here, arguments=(f"--picker-port={picker.port}",))
    try:
        until("three workers and a router", lambda: len(here.find("Pod", f"{names.LABEL_CLUSTER}=flipping")) == 4)
        for pod in here.find("Pod", f"{names.LABEL_CLUSTER}=flipping"):
            make_ready(here, pod["metadata"]["name"], address="127.0.0.1")
        # Nobody serves prefill, and two swing workers decode: one of them must go over.
        flipped = until("a worker in role prefill", lambda: workers(here, "flipping", "prefill"))
        assert len(flipped) == 1
        assert flipped[0]["metadata"]["labels"][names.LABEL_POOL] == "swing"
        standing = json.loads(flipped[0]["metadata"]["annotations"][names.ANNOTATION_FLIP])
        assert first.stop(signal.SIGKILL) == -signal.SIGKILL

        picker.served = True
        second.start().wait_ready()
        told = until("the flip is finished", lambda: [one for one in flips(here) if one["outcome"] == "Serving"])
        assert [(one["worker"], one["from"], one["to"]) for one in told] == [
            (flipped[0]["metadata"]["name"], "decode", "prefill")
        ]
        assert len(flips(here)) == 1, f"one flip, decided once: {standing}"
        until("it is off the pod", lambda: (
            names.ANNOTATION_FLIP not in (workers(here, "flipping", "prefill")[0]["metadata"].get("annotations") or {})
        ))  # fmt: skip
        assert second.metric('swingpool_manager_flips_total{cluster="flipping",from="decode"') == 1
        until("ready", lambda: here.condition("flipping", "Ready").get("status") == "True")
        events = [one["reason"] for one in here.find("Event") if one["involvedObject"]["name"] == "flipping"]
        # The first manager may have been killed before it told; the second must not tell it again.
        assert events.count("FlipDecided") <= 1
        assert second.stop() == 0
    finally:
        for one in (first, second):
            if one.running:
                one.stop(signal.SIGKILL)
