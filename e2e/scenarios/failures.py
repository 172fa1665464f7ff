"""Things that break under load."""

import json
import signal
import time

from e2e.scenarios.scenario import Facts, Scenario
from e2e.scenarios.stage import GENERATION, PROMPTS, STAGE_NAMESPACE, Stage
from e2e.system.waiting import wait_for, wait_until
from swingpool.kube import kinds
from swingpool_control import names
from swingpool_control.timestamps import unix_seconds

OUT_OF_ROTATION_S = 3.0
_FLIP_S = 60.0
_ATTEMPTS = 3


def manager_killed(stage: Stage) -> Facts:
    """Kill the manager while a flip is under way; the next one must finish it."""
    for attempt in range(1, _ATTEMPTS + 1):
        facts = _manager_killed(stage)
        if facts["in_the_middle"]:
            return {**facts, "attempts": attempt}
    raise AssertionError(f"in {_ATTEMPTS} attempts every flip was over before the manager was dead")


def _manager_killed(stage: Stage) -> Facts:
    load = PROMPTS if stage.workers(pool="swing", role=names.ROLE_DECODE) else GENERATION
    manager = stage.manager()
    with stage.traffic(load) as traffic:
        worker, decided_unix_s = wait_for("a flip under way", lambda: _flip(stage), limit_s=_FLIP_S, every_s=0.02)
        stage.kill(manager, signal.SIGKILL)
        killed = time.monotonic()
        in_the_middle = _flip(stage) is not None
        outcome = wait_for(f"the end of the flip of {worker}", lambda: _told(stage, worker, decided_unix_s), limit_s=90)
        told_s = time.monotonic() - killed
        stage.manager()
        traffic.wait_sent(20)
    assert outcome == "Serving", f"the flip of {worker} ended as {outcome}"
    return {**traffic.facts, "worker": worker, "told_after_s": round(told_s, 1), "in_the_middle": in_the_middle}


def _flip(stage: Stage) -> tuple[str, float] | None:
    """Return a worker whose flip is under way, and when it was decided; None if there is none."""
    for pod in stage.system.kube.objects(kinds.POD, namespace=STAGE_NAMESPACE, labels={names.LABEL_POOL: "swing"}):
        text = (pod["metadata"].get("annotations") or {}).get(names.ANNOTATION_FLIP)
        if text:
            return pod["metadata"]["name"], float(json.loads(text)["decidedUnixS"])
    return None


def _told(stage: Stage, worker: str, decided_unix_s: float) -> str:
    """Return how a flip ended, as the status tells it; empty if it has not."""
    for flip in stage.flips():
        same = flip["worker"] == worker and abs(unix_seconds(flip["decidedAt"]) - decided_unix_s) < 0.1
        if same and flip["outcome"] != "InProgress":
            return str(flip["outcome"])
    return ""


def api_server_restarted(stage: Stage) -> Facts:
    """Take the API server away for a while; serving must not notice."""
    with stage.traffic() as traffic:
        stage.system.cluster.restart_api_server(outage_s=5)
        traffic.wait_sent(40)
        stage.system.wait_ready(STAGE_NAMESPACE, "chat")
    return traffic.facts


def swing_worker_deleted(stage: Stage) -> Facts:
    """Delete a swing worker; it must finish what it holds and be replaced."""
    victim = stage.workers(pool="swing")[0]
    with stage.traffic() as traffic:
        stage.kubectl("delete", "pod", victim.name, "--wait=false")
        wait_until(
            "another swing worker in its place",
            lambda: [pod.name for pod in stage.workers(pool="swing") if pod.serves],
            lambda found: len(found) == 2 and victim.name not in found,
            limit_s=60,
        )
        traffic.wait_sent(20)
    return traffic.facts


def prefill_worker_killed(stage: Stage) -> Facts:
    """Kill a prefill worker that computes prompts; what it held must be computed elsewhere."""
    victim = stage.workers(pool="prefill")[0]
    with stage.traffic(PROMPTS, may_fail_after_first_token=True) as traffic:
        held = wait_for(
            f"{victim.name} to compute prompts",
            lambda: stage.seen_by_router(victim.name).get("prefills_in_flight", 0),
            limit_s=30,
            every_s=0.05,
        )
        stage.kill(victim, signal.SIGKILL)
        traffic.wait_sent(40)
        wait_for(
            f"{victim.name} to be in rotation again",
            lambda: stage.seen_by_router(victim.name).get("in_rotation"),
            limit_s=60,
        )
    return {**traffic.facts, "prefills_in_flight": held}


def hung_worker(stage: Stage) -> Facts:
    """Freeze a decode worker; the router must leave it within three seconds, and take it back when it answers."""
    victim = stage.workers(pool="decode")[0]
    with stage.traffic(may_fail_after_first_token=True) as traffic:
        stage.kill(victim, signal.SIGSTOP)
        frozen = time.monotonic()
        try:
            why = wait_for(
                f"{victim.name} to be out of rotation",
                lambda: stage.seen_by_router(victim.name).get("why_not"),
                limit_s=15,
                every_s=0.05,
            )
            left_s = time.monotonic() - frozen
        finally:
            stage.kill(victim, signal.SIGCONT)
        wait_for(
            f"{victim.name} to be in rotation again",
            lambda: stage.seen_by_router(victim.name).get("in_rotation"),
            limit_s=30,
        )
        traffic.wait_sent(20)
    assert left_s <= OUT_OF_ROTATION_S, f"it was in rotation for {left_s:.1f} s ({why})"
    return {**traffic.facts, "out_of_rotation_after_s": round(left_s, 2), "why": why}


SCENARIOS = (
    Scenario(
        name="prefill-worker-killed",
        about="SIGKILL to a prefill worker that serves: no request fails",
        run=prefill_worker_killed,
        quick=True,
    ),
    Scenario(
        name="manager-killed",
        about="SIGKILL to the manager in the middle of a flip: the flip is finished, no request fails",
        run=manager_killed,
    ),
    Scenario(
        name="api-server-restarted",
        about="the API server is away for 5 s: no request fails",
        run=api_server_restarted,
    ),
    Scenario(
        name="swing-worker-deleted",
        about="a swing worker is deleted: it is replaced, no request fails",
        run=swing_worker_deleted,
    ),
    Scenario(
        name="hung-worker",
        about="a decode worker hangs: out of rotation within 3 s, back when it answers",
        run=hung_worker,
    ),
)
