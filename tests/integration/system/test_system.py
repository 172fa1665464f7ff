"""What the demo and the scenarios read and do, against the real API server."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from e2e.cluster.controlplane import ControlPlane
from e2e.cluster.tools import Kubectl
from e2e.scenarios import allswing, calm
from e2e.scenarios.guard import Guard
from e2e.scenarios.stage import BASELINE, Stage
from e2e.system.install import System
from e2e.system.kubernetes import Kubernetes
from e2e.system.waiting import wait_until
from swingpool_control import names
from tests.support import kubernetes
from tests.support.waiting import ENOUGH_S

SAMPLE = Path(__file__).parents[3] / "e2e" / "demo" / "sample.yaml"


class ClusterOfKubectl:
    """As much of a cluster as the tests here need."""

    name = "control plane"

    def __init__(self, plane: ControlPlane) -> None:
        self._kubectl = Kubectl(plane.kubeconfig)
        self.kubeconfig = plane.kubeconfig

    def kubectl(self, *args: str, stdin: str | None = None, check: bool = True) -> Any:
        return self._kubectl.run(*args, stdin=stdin, check=check)


@pytest.fixture(scope="module")
def system(plane: ControlPlane) -> System:
    cluster: Any = ClusterOfKubectl(plane)
    return System(cluster, Kubernetes(plane.kubeconfig), "localhost/swingpool:test")


@pytest.fixture(scope="module")
def stage(system: System, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    system.fresh_namespace("e2e")
    yield Stage(system=system, out=tmp_path_factory.mktemp("stage"), quick=True)
    system.delete_namespace("e2e")


def _pod(name: str, role: str) -> dict[str, Any]:
    labels = {
        names.LABEL_COMPONENT: names.COMPONENT_WORKER, names.LABEL_CLUSTER: "chat", names.LABEL_POOL: "swing",
        names.LABEL_ROLE: role,
    }  # fmt: skip
    security = {
        "allowPrivilegeEscalation": False, "runAsNonRoot": True, "capabilities": {"drop": ["ALL"]},
        "seccompProfile": {"type": "RuntimeDefault"},
    }  # fmt: skip
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": "e2e", "labels": labels},
        "spec": {"containers": [{"name": "engine", "image": "i", "securityContext": security}]},
    }


def _make_worker(plane: ControlPlane, name: str, role: str) -> None:
    path = kubernetes.path("Pod", "e2e", name)
    plane.api.apply(path, _pod(name, role))
    status = {"status": kubernetes.ready_status("10.1.0.1")}
    plane.api.call("PATCH", f"{path}/status", status, content_type="application/merge-patch+json")


def test_the_resources_of_demo_and_scenarios_are_taken_strictly(stage: Stage) -> None:
    for manifest in (BASELINE, allswing.MANIFEST):
        stage.apply(manifest)
    stage.kubectl("delete", names.PLURAL, "--all")
    stage.apply(SAMPLE.read_text())
    found = stage.system.kube.inference_cluster(namespace="e2e", name="chat")
    assert found["spec"]["objectives"]["ttft"] == {"p95": "1s"}
    assert stage.flips() == []
    assert stage.system.kube.condition("Ready", namespace="e2e", name="chat") == {}
    stage.patch([{"op": "replace", "path": "/spec/pools/2/replicas", "value": {"mode": "Fixed", "count": 4}}])
    stage.kubectl("delete", names.PLURAL, "--all")
    assert stage.system.kube.inference_cluster(namespace="e2e", name="chat") == {}


def test_every_field_is_explained(stage: Stage) -> None:
    assert calm.explained(stage)["fields"] > 60


def test_deletion_is_seen_to_leave_nothing(stage: Stage) -> None:
    stage.apply(BASELINE)
    stage.kubectl("create", "configmap", "forgotten")
    assert calm.left(stage) == ["configmap/forgotten", "inferencecluster.swingpool.dev/chat"]
    stage.kubectl("delete", "configmap", "forgotten")
    assert calm.deleted(stage) == {"left": []}


def test_workers_and_the_guard_follow_role_labels(stage: Stage, control_plane: ControlPlane) -> None:
    guard = Guard(control_plane.kubeconfig)
    _make_worker(control_plane, "a", names.ROLE_DECODE)
    _make_worker(control_plane, "b", names.ROLE_DECODE)
    assert [(pod.name, pod.serves) for pod in stage.workers(pool="swing", role="decode")] == [("a", True), ("b", True)]
    assert stage.workers(role=names.ROLE_PREFILL) == []

    def serving() -> list[str]:
        return sorted(name for judge in guard.judges.values() for name in judge.serving(names.ROLE_DECODE))

    wait_until("the guard to see both workers", serving, lambda found: found == ["a", "b"], limit_s=ENOUGH_S)
    stage.kubectl("label", "pod", "a", f"{names.LABEL_ROLE}=prefill", "--overwrite")
    wait_until("a change of role", lambda: guard.changes, lambda changes: changes == 1, limit_s=ENOUGH_S)
    assert guard.faults == []
    stage.kubectl("label", "pod", "b", f"{names.LABEL_ROLE}=prefill", "--overwrite")
    wait_until("the guard's alarm", lambda: guard.faults, bool, limit_s=ENOUGH_S)
    assert guard.faults == ["b left role decode and no other ready worker has it"]
    guard.stop()
    stage.kubectl("delete", "pod", "a", "b", "--force", "--grace-period=0")
