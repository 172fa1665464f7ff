"""What must hold when nothing happens, and what a user reads."""

import json
import time
from collections.abc import Iterator
from typing import Any

from e2e.cluster.interface import AuditEvent
from e2e.scenarios.scenario import Facts, Scenario
from e2e.scenarios.stage import CLUSTER, Stage
from e2e.system.waiting import wait_until
from swingpool_control import names

_QUIET_S, _QUIET_QUICK_S = 60.0, 20.0
_STILL_S, _SETTLE_LIMIT_S = 17.0, 90.0
"""What was before has settled when nothing was written for more than a sizing period."""
_GONE_S = 90.0
_NOT_OURS = ("events", "events.events.k8s.io", "endpoints")
"""Kinds that Kubernetes itself writes and clears away: endpoints follow their Service."""


def quiet(stage: Stage) -> Facts:
    """Do nothing for a while: the manager must write nothing but its Lease."""
    user = stage.manager_user()
    quiet_s = _QUIET_QUICK_S if stage.quick else _QUIET_S
    _settle(stage, user)
    before = len(_writes(stage, user))
    time.sleep(quiet_s)
    new = _writes(stage, user)[before:]
    told = [f"{event.time} {event.verb} {event.resource}/{event.name} {event.subresource}" for event in new]
    assert not new, f"{len(new)} writes in {quiet_s:g} s: {told[:10]}"
    assert before, f"no write by {user} was ever seen: is the audit log read rightly?"
    return {"quiet_s": quiet_s, "writes": 0, "writes_before": before}


def _settle(stage: Stage, user: str) -> None:
    """Wait until what the scenario before left to be told (a restart, objectives that are met again) is told."""
    seen, since_s = -1, time.monotonic()

    def still_s() -> float:
        nonlocal seen, since_s
        found = len(_writes(stage, user))
        if found != seen:
            seen, since_s = found, time.monotonic()
        return time.monotonic() - since_s

    wait_until("the manager to have told all there is", still_s, lambda it: it > _STILL_S, limit_s=_SETTLE_LIMIT_S)


def _writes(stage: Stage, user: str) -> list[AuditEvent]:
    events = stage.system.cluster.audit_events()
    return [event for event in events if event.user == user and event.resource != "leases"]


def explained(stage: Stage) -> Facts:
    """Every field has a description, and `kubectl explain` prints it."""
    raw = json.loads(
        stage.system.cluster.kubectl("get", "--raw", f"/openapi/v3/apis/{names.GROUP}/{names.VERSION}").stdout
    )
    schema = next(
        item for name, item in raw["components"]["schemas"].items() if name.endswith(f".{names.VERSION}.{names.KIND}")
    )
    fields = dict(_fields(schema["properties"]["spec"], "spec"))
    mute = [path for path, item in fields.items() if not item.get("description")]
    assert not mute, f"fields without a description: {mute}"
    deepest = sorted(fields, key=lambda path: path.count("."))[-6:]
    for path in ["spec", "spec.pools", "spec.objectives.ttft", *deepest]:
        printed = stage.kubectl("explain", f"{names.PLURAL}.{path}")
        assert "DESCRIPTION:" in printed, printed
        assert "<empty>" not in printed.split("FIELDS:")[0], printed
    return {"fields": len(fields)}


def _fields(schema: dict[str, Any], path: str) -> Iterator[tuple[str, dict[str, Any]]]:
    yield path, schema
    inner = schema.get("items") or schema
    for name, item in (inner.get("properties") or {}).items():
        merged = {**item, **(item["allOf"][0] if "allOf" in item else {})}
        yield from _fields(merged | {"description": item.get("description")}, f"{path}.{name}")


def shown(stage: Stage) -> Facts:
    """`kubectl get` answers "is it fine" at a glance."""
    lines = stage.kubectl("get", names.SHORT_NAME).splitlines()
    header, row = lines[0].split(), lines[1]
    assert "READY" in header, header
    assert "True" in row, row
    assert f"{len(stage.workers())}/{len(stage.workers())}" in row, row
    return {"printed": lines}


def deleted(stage: Stage) -> Facts:
    """Delete the InferenceCluster: nothing of it is left."""
    stage.kubectl("delete", names.PLURAL, CLUSTER, "--timeout=30s")
    rest = wait_until(
        "everything of the InferenceCluster to be gone", lambda: left(stage), lambda it: not it, limit_s=_GONE_S
    )
    return {"left": rest}


def left(stage: Stage) -> list[str]:
    """Return every object in the namespace that Kubernetes itself did not put there."""
    cluster = stage.system.cluster
    found = cluster.kubectl("api-resources", "--verbs=list", "--namespaced", "-o", "name").stdout.split()
    kinds = [kind for kind in found if kind not in _NOT_OURS]
    listed = stage.kubectl("get", ",".join(kinds), "-o", "name", "--ignore-not-found").split()
    return [name for name in listed if name not in ("configmap/kube-root-ca.crt", "serviceaccount/default")]


SCENARIOS = (
    Scenario(name="quiet", about="nothing to change: the manager writes nothing", run=quiet, quick=True),
    Scenario(name="explained", about="kubectl explain describes every field of the spec", run=explained),
    Scenario(name="shown", about="kubectl get shows the state at a glance", run=shown),
    Scenario(name="deleted", about="kubectl delete leaves nothing", run=deleted, quick=True),
)
