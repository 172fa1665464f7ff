"""Failures of those who carry a request, while they carry it: no client may hear of any before its first token."""

import json
import re
import signal
import time
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from e2e.load.background import Load
from e2e.load.leaving import leave
from e2e.load.plan import Lengths, Phase
from e2e.scenarios.scenario import Facts, Scenario
from e2e.scenarios.stage import CLUSTER, MODEL, STAGE_NAMESPACE, Stage, check
from e2e.system.install import NAMESPACE, RELEASE
from e2e.system.kubernetes import Pod
from e2e.system.waiting import wait_for, wait_until
from swingpool_control import names

BURST = Phase(
    name="burst", seconds=1, requests_per_s=24, prompt_tokens=Lengths(mean=300, sigma=0.3),
    output_tokens=Lengths(mean=12), stream_share=0.6, arrivals="uniform",
)  # fmt: skip
DISCONNECTS, DISCONNECTS_QUICK = 10_000, 300
FLIP_EVERY_S, FLIP_FOR_S = 2.0, 180.0
_USAGE = re.compile(r"^vllm:kv_cache_usage_perc(?:\{.*\})? (\S+)$", re.MULTILINE)
_EXPIRED = re.compile(r"^vllm:nixl_num_kv_expired_reqs_total(?:\{.*\})? (\S+)$", re.MULTILINE)
_KEPT_NOTHING = re.compile(r"^swingpool_router_prefill_legs_without_transfer_total (\S+)$", re.MULTILINE)
_TIMEOUT_S = 5.0


def prefill_hung(stage: Stage) -> Facts:
    """Freeze a prefill worker that computes prompts; they must be computed elsewhere."""
    victim = stage.workers(pool="prefill")[0]
    with stage.traffic() as traffic:
        stage.kill(victim, signal.SIGSTOP)
        try:
            wait_for(f"{victim.name} to be out of rotation", lambda: _why_not(stage, victim), limit_s=15, every_s=0.05)
            traffic.wait_sent(30)
        finally:
            stage.kill(victim, signal.SIGCONT)
    return traffic.facts


def prefill_errors(stage: Stage) -> Facts:
    """Let a prefill worker answer every request with 500."""
    victim = stage.workers(pool="prefill")[0]
    with stage.traffic() as traffic, fault([victim], kind="error", status=500):
        traffic.wait_sent(60)
    return traffic.facts


def prefill_forgets(stage: Stage) -> Facts:
    """Let prefill workers keep nothing; prompts must be computed again where their tokens are generated."""
    before = router_total(stage, _KEPT_NOTHING)
    with stage.traffic() as traffic, fault(stage.workers(role=names.ROLE_PREFILL), kind="forget"):
        wait_until(
            "legs without parameters",
            lambda: router_total(stage, _KEPT_NOTHING),
            lambda found: found > before,
            limit_s=60,
        )
        traffic.wait_sent(30)
    return {**traffic.facts, "legs_without_transfer": router_total(stage, _KEPT_NOTHING) - before}


def decode_killed(stage: Stage) -> Facts:
    """Kill a decode worker that holds requests, streams among them, of which no token has come."""
    victim, *others = stage.workers(role=names.ROLE_DECODE)
    with fault([victim], kind="slow", factor=5000), burst(stage) as records:
        what = f"{victim.name} to be given requests"
        given = wait_for(what, lambda: held(stage, victim), limit_s=30, every_s=0.02)
        time.sleep(1.0)  # streams' headers have been sent by then
        given = max(given, held(stage, victim))
        stage.kill(victim, signal.SIGKILL)
    check(records, may_fail_after_first_token=False)
    assert others, "another decode worker is left"
    return {"requests": len(records), "failed": 0, "held_by_the_killed": given}


def pickers_killed(stage: Stage) -> Facts:
    """Kill every picker while it holds requests: Envoy must send each of those to a worker by itself."""
    computing = stage.workers(role=names.ROLE_PREFILL)
    with burst(stage) as records, fault(computing, kind="slow", factor=300):
        given = wait_until(
            "prompts to be computed",
            lambda: prompts_held(stage, computing),
            lambda found: found >= len(computing),
            limit_s=30,
            every_s=0.02,
        )
        pods = routers(stage)
        for pod in pods:
            stage.system.cluster.kill_container(pod.namespace, pod.name, "picker", signal.SIGKILL)
    check(records, may_fail_after_first_token=False)
    return {"requests": len(records), "failed": 0, "pickers": len(pods), "held_by_the_killed": given}


def rapid_flips(stage: Stage) -> Facts:
    """Change the role of swing workers every other second while the manager is away."""
    duration_s = 20.0 if stage.quick else FLIP_FOR_S
    swing = stage.workers(pool="swing")
    _manager_replicas(stage, 0)
    flips = 0
    try:
        with stage.traffic() as traffic:
            begin = time.monotonic()
            while time.monotonic() - begin < duration_s:
                turn = time.monotonic()
                role = names.ROLE_PREFILL if flips // len(swing) % 2 else names.ROLE_DECODE
                worker = swing[flips % len(swing)]
                stage.kubectl("label", "pod", worker.name, f"{names.LABEL_ROLE}={role}", "--overwrite")
                flips += 1
                time.sleep(max(0.0, FLIP_EVERY_S - (time.monotonic() - turn)))
    finally:
        _manager_replicas(stage, 1)
    return {**traffic.facts, "changes_of_role": flips, "seconds": round(duration_s)}


def disconnects(stage: Stage) -> Facts:
    """Let clients leave at all moments; soon, and before any lease could end, no worker may hold a block."""
    expired = _worker_total(stage, _EXPIRED)
    left = leave(stage.url, MODEL, clients=DISCONNECTS_QUICK if stage.quick else DISCONNECTS)
    ended = time.monotonic()
    wait_until("no block to be held", lambda: _worker_total(stage, _USAGE), lambda found: found == 0.0, limit_s=25)
    free_s = time.monotonic() - ended
    late = _worker_total(stage, _EXPIRED) - expired
    assert late == 0, f"the blocks of {late:g} requests were freed by the end of their lease only"
    return {
        "left_before_headers": left.before_headers, "left_amid_answer": left.amid_answer, "answered": left.answered,
        "free_after_s": round(free_s, 1),
    }  # fmt: skip


def _why_not(stage: Stage, worker: Pod) -> str:
    return str(stage.seen_by_router(worker.name).get("why_not") or "")


def _seen(stage: Stage, worker: Pod, what: str) -> int:
    return int(stage.seen_by_router(worker.name).get(what) or 0)


def held(stage: Stage, worker: Pod) -> int:
    """Return how many requests the router knows a worker to generate for."""
    return _seen(stage, worker, "decodes_in_flight")


def prompts_held(stage: Stage, workers: Sequence[Pod]) -> int:
    """Return how many prompts the router knows these workers to compute."""
    return sum(_seen(stage, one, "prefills_in_flight") for one in workers)


def routers(stage: Stage) -> list[Pod]:
    """Return the router's pods."""
    labels = {names.LABEL_CLUSTER: CLUSTER, names.LABEL_COMPONENT: names.COMPONENT_ROUTER}
    return [pod for pod in stage.system.kube.pods(namespace=STAGE_NAMESPACE, labels=labels) if not pod.deleting]


@contextmanager
def burst(stage: Stage) -> Iterator[list[Any]]:
    """Send some requests at once; after the block the list holds what became of them."""
    records: list[Any] = []
    with Load(stage.plan(BURST), stage.out / "load") as load:
        yield records
        records += load.wait()


@contextmanager
def fault(workers: Sequence[Pod], **fault: Any) -> Iterator[None]:
    """Give workers a fault while the block runs."""
    for worker in workers:
        _ask(worker, "POST", fault)
    try:
        yield
    finally:
        for worker in workers:
            try:
                _ask(worker, "DELETE", None)
            except OSError:  # killed, and another process by now
                continue


def _ask(worker: Pod, method: str, body: Any) -> None:
    url = f"http://{worker.address}:{names.PORT_WORKER}/faults"
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(url, data=data, method=method, headers={"content-type": "application/json"})
    _open(request)


def _open(request: urllib.request.Request | str) -> str:
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    with opener.open(request, timeout=_TIMEOUT_S) as answer:
        return str(answer.read().decode())


def _worker_total(stage: Stage, series: re.Pattern[str]) -> float:
    pages = (_open(f"http://{worker.address}:{names.PORT_WORKER}/metrics") for worker in stage.workers())
    return sum(float(value) for page in pages for value in series.findall(page))


def router_total(stage: Stage, series: re.Pattern[str]) -> float:
    """Return the sum of a metric over the router's pods."""
    pages = (_open(f"http://{pod.address}:{names.PORT_PICKER_HTTP}/metrics") for pod in routers(stage))
    return sum(float(value) for page in pages for value in series.findall(page))


def _manager_replicas(stage: Stage, count: int) -> None:
    """Take the manager away, or bring it back."""
    stage.kubectl("scale", "deployment", RELEASE, f"--replicas={count}", namespace=NAMESPACE)
    wait_until(
        f"{count} managers",
        lambda: [pod.name for pod in stage.system.kube.pods(namespace=NAMESPACE)],
        lambda found: len(found) == count,
        limit_s=90,
    )
    if count:
        stage.manager()


SCENARIOS = (
    Scenario(
        name="decode-killed",
        about="SIGKILL to a decode worker before the first tokens of what it holds, streams too: no request fails",
        run=decode_killed,
        quick=True,
    ),
    Scenario(
        name="pickers-killed",
        about="SIGKILL to every picker while it holds requests: no request fails",
        run=pickers_killed,
        quick=True,
    ),
    Scenario(name="prefill-hung", about="a prefill worker hangs: no request fails", run=prefill_hung),
    Scenario(name="prefill-errors", about="a prefill worker answers 500: no request fails", run=prefill_errors),
    Scenario(
        name="prefill-forgets",
        about="prefill workers answer without kv_transfer_params: no request fails",
        run=prefill_forgets,
    ),
    Scenario(name="rapid-flips", about="roles change every 2 s for 3 minutes: no request fails", run=rapid_flips),
    Scenario(name="disconnects", about="10,000 clients leave at any moment: no block stays held", run=disconnects),
)
