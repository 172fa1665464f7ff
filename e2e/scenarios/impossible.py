"""Specs that the API accepts and no cluster can fulfil: a condition names what is missing."""

from typing import Any

import yaml

from e2e.scenarios.scenario import Facts, Scenario
from e2e.scenarios.stage import BASELINE, Stage

_QUOTA = """
apiVersion: v1
kind: ResourceQuota
metadata: {name: few}
spec: {hard: {pods: "1"}}
"""


def no_accelerator(stage: Stage) -> Facts:
    """Ask for an accelerator that no node has."""
    spec = _baseline()
    spec["spec"]["engine"]["simulated"]["requestAccelerators"] = True
    for pool in spec["spec"]["pools"]:
        pool["accelerator"] = {"product": "NVIDIA-UNOBTAINIUM"}
    return _told(stage, "e2e-no-accelerator", spec, ("NVIDIA-UNOBTAINIUM", "nvidia.com/gpu", "node"))


def no_quota(stage: Stage) -> Facts:
    """Ask for more pods than the namespace may have."""
    return _told(stage, "e2e-no-quota", _baseline(), ("quota",), before=_QUOTA)


def _baseline() -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load(BASELINE)
    return found


def _told(stage: Stage, namespace: str, spec: object, words: tuple[str, ...], before: str = "") -> Facts:
    """Apply a spec in a namespace of its own, for one that was just deleted refuses content; read what is said."""
    stage.system.fresh_namespace(namespace)
    try:
        if before:
            stage.apply(before, namespace=namespace)
        stage.apply(yaml.safe_dump(spec), namespace=namespace)
        found = stage.system.wait_condition("Degraded", "True", namespace, "chat", limit_s=90)
        ready = stage.system.kube.condition("Ready", namespace=namespace, name="chat")
    finally:
        stage.system.delete_namespace(namespace)
    said = f"{found['reason']}: {found['message']}"
    assert any(word.lower() in said.lower() for word in words), f"none of {words} in: {said}"
    assert ready.get("status") == "False", ready
    return {"condition": said}


SCENARIOS = (
    Scenario(name="no-accelerator", about="no node has the accelerator: a condition says so", run=no_accelerator),
    Scenario(name="no-quota", about="a quota refuses pods: a condition says so", run=no_quota),
)
