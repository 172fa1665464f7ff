"""Things that break under load."""

import json
import signal
import time

from e2e.load.plan import Phase
from e2e.scenarios.scenario import Facts, Scenario
from e2e.scenarios.stage import GENERATION, PROMPTS, STAGE_NAMESPACE, Stage
from e2e.system.kubernetes import Pod
from e2e.system.waiting import wait_for, wait_until
from swingpool.kube import kinds
from swingpool_control import names

OUT_OF_ROTATION_S = 3.0
_FLIP_S = 60.0


def _flip_begun(stage: Stage) -> tuple[Pod, str]:
    """Wait for a worker whose flip is under way, and return it with its annotation."""

    def look() -> list[tuple[str, str]]:
        found = stage.system.kube.objects(kinds.POD, namespace=STAGE_NAMESPACE, labels={names.LABEL_POOL: "swing"})
        notes = [(pod["metadata"]["name"], pod["metadata"].get("annotations") or {}) for pod in found]
        return [(name, note[names.ANNOTATION_FLIP]) for name, note in notes if names.ANNOTATION_FLIP in note]

    name, annotation = wait_for("a flip under way", look, limit_s=_FLIP_S, every_s=0.02)[0]
    return next(pod for pod in stage.workers(pool="swing") if pod.name == name), annotation


def manager_killed(stage: Stage) -> Facts:
    """Kill the manager while a flip is under way; the next one must finish it."""
    load = PROMPTS if stage.workers(pool="swing", role=names.ROLE_DECODE) else GENERATION
    with stage.traffic(load) as traffic:
        worker, annotation = _flip_begun(stage)
        stage.kill(stage.manager(), signal.SIGKILL)
        killed = time.monotonic()
        record = wait_for(
            f"the flip of {worker.name} to be told as serving",
            lambda: next(
                (flip for flip in stage.flips() if flip["worker"] == worker.name and flip["outcome"] == "Serving"), None
            ),
            limit_s=90,
        )
        assert record is not None
        resumed_s = time.monotonic() - killed
        stage.manager()
        traffic.wait_sent(20)
    return {**traffic.facts, "flip": json.loads(annotation), "told_after_s": round(resumed_s, 1)}


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
    return _prefill_killed(stage, PROMPTS)


def _prefill_killed(stage: Stage, phase: Phase) -> Facts:
    victim = stage.workers(pool="prefill")[0]
    with stage.traffic(phase, may_fail_after_first_token=True) as traffic:
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
