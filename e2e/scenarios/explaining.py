"""What a cluster tells of its decisions: recommended without being carried out, and made again offline the same."""

import dataclasses
import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from e2e.cluster.interface import AuditEvent
from e2e.load.plan import Lengths, Phase
from e2e.scenarios.scenario import Facts, Scenario
from e2e.scenarios.stage import CLUSTER, GENERATION, PROMPTS, STAGE_NAMESPACE, Stage
from e2e.system.waiting import NotInTimeError, wait_until
from swingpool_control import names

_WATCH_S, _WATCH_QUICK_S = 45.0, 20.0
_FLIP_S = 60.0
_REPLICAS = "/spec/pools/0/replicas"
_LONG_PROMPTS = dataclasses.replace(PROMPTS, requests_per_s=5, prompt_tokens=Lengths(mean=1500, sigma=0.3))
"""More than two prefill workers compute, little enough to wait for, and few requests."""


def recommends(stage: Stage) -> Facts:
    """Load a cluster in mode Recommend beyond what it does: it says so, and writes nothing but the status."""
    watch_s = _WATCH_QUICK_S if stage.quick else _WATCH_S
    try:
        stage.patch(
            [
                {"op": "add", "path": "/spec/scaling/mode", "value": "Recommend"},
                {"op": "replace", "path": _REPLICAS, "value": {"mode": "Auto", "min": 2, "max": 4}},
            ]
        )
        stage.system.wait_ready(STAGE_NAMESPACE, CLUSTER)
        user = stage.manager_user()
        roles = {pod.name: pod.role for pod in stage.workers()}
        with stage.traffic(_LONG_PROMPTS) as traffic:
            said = wait_until("a shortage to be told, and more workers", lambda: _said(stage), _is_short, limit_s=90)
            before = len(_writes(stage, user))
            time.sleep(watch_s)
            new = _writes(stage, user)[before:]
            shown = _explain(stage, "--record", str(_file(stage, "recommend")))
        assert roles == {pod.name: pod.role for pod in stage.workers()}, "a worker changed its role, or its name"
    finally:
        stage.patch(
            [
                {"op": "remove", "path": "/spec/scaling/mode"},
                {"op": "replace", "path": _REPLICAS, "value": {"mode": "Fixed", "count": 2}},
            ]
        )
    other = [event for event in new if event.resource != names.PLURAL or event.subresource != "status"]
    told = [f"{event.verb} {event.resource}/{event.name} {event.subresource}" for event in other]
    assert not other, f"in mode Recommend the manager wrote {told[:10]}"
    assert "Recommended, not carried out" in shown, shown
    return {**traffic.facts, "watched_s": watch_s, "status_writes": len(new), "other_writes": 0, "said": said}


def replays(stage: Stage) -> Facts:
    """Record decisions under a load that makes workers change roles; offline they come out the same."""
    path = _file(stage, "auto")
    facts = next((facts for phase in (_LONG_PROMPTS, GENERATION) if (facts := _record_flip(stage, phase, path))), None)
    assert facts, "neither long prompts nor long generations made a worker change its role"
    body = json.loads(_offline("--replay", str(path), "-o", "json"))
    found = body["decisions"]
    different = [one for one in found if one["differences"]]
    assert not different, f"{len(different)} of {len(found)} decisions come out otherwise: {different[:3]}"
    assert any(one["summary"].startswith("flip ") for one in found), [one["summary"] for one in found]
    return {**facts, "decisions": len(found), "different": 0, "bytes": path.stat().st_size}


def _record_flip(stage: Stage, phase: Phase, path: Path) -> Facts | None:
    """Record the decisions under a load that leads to a flip; None if the roles already fit this load."""
    before = _flips(stage)
    with stage.traffic(phase) as traffic:
        try:
            wait_until("a flip", lambda: _flips(stage) - before, bool, limit_s=_FLIP_S)
        except NotInTimeError:
            return None
        _explain(stage, "--record", str(path))
    return traffic.facts


def _flips(stage: Stage) -> set[tuple[str, str]]:
    return {(flip["worker"], flip["decidedAt"]) for flip in stage.flips()}


def _file(stage: Stage, name: str) -> Path:
    stage.out.mkdir(parents=True, exist_ok=True)
    return stage.out / f"decisions-{name}.json"


def _explain(stage: Stage, *arguments: str) -> str:
    """Run `swingpool explain` as a user would, with the cluster's kubeconfig."""
    kubeconfig = str(stage.system.cluster.kubeconfig)
    return _run(CLUSTER, "-n", STAGE_NAMESPACE, "--kubeconfig", kubeconfig, *arguments, environment=dict(os.environ))


def _offline(*arguments: str) -> str:
    """Run it knowing of no cluster."""
    return _run(*arguments, environment={key: text for key, text in os.environ.items() if not key.startswith("KUBE")})


def _run(*arguments: str, environment: dict[str, str]) -> str:
    call = [str(Path(sys.executable).with_name("swingpool")), "explain", *arguments]
    done = subprocess.run(call, env=environment, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, f"explain ended with {done.returncode}: {done.stdout[-2000:]}{done.stderr[-2000:]}"
    return done.stdout


def _said(stage: Stage) -> dict[str, Any]:
    status = stage.status()
    balance: dict[str, Any] = next(
        (one for one in status.get("conditions") or () if one["type"] == "RolesBalanced"), {}
    )
    plan = status.get("plan") or {}
    return {"balance": balance.get("reason"), "plan": [one["code"] for one in plan.get("reasons") or ()]}


def _is_short(said: dict[str, Any]) -> bool:
    return said["balance"] == "Shortage" and "ScaleUp" in said["plan"]


def _writes(stage: Stage, user: str) -> list[AuditEvent]:
    events = stage.system.cluster.audit_events()
    return [event for event in events if event.user == user and event.resource != "leases"]


SCENARIOS = (
    Scenario(
        name="recommends",
        about="mode Recommend says what it would do, and changes nothing",
        run=recommends,
        quick=True,
    ),
    Scenario(
        name="replays",
        about="recorded decisions come out the same offline",
        run=replays,
        quick=True,
    ),
)
