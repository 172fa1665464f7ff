"""The control plane's command lines, users and audit log, and which programs serve it."""

import json
import subprocess
from pathlib import Path

import pytest

from e2e.cluster import audit, binaries, controlplane, engine, images
from e2e.cluster.controlplane import ControlPlane, Ports, Settings
from e2e.cluster.credentials import kubeconfig
from e2e.cluster.interface import ClusterError
from e2e.cluster.processes import Processes, start_time

_PORTS = Ports(api=1, etcd_client=2, etcd_peer=3, controller_manager=4, scheduler=5)


def _flags(command: list[str]) -> dict[str, str]:
    return {name: value for name, _, value in (each.removeprefix("--").partition("=") for each in command[1:])}


def _plane(*, reach_pods: bool) -> ControlPlane:
    return ControlPlane(Settings(directory=Path("/d"), ports=_PORTS, address="127.0.0.1", reach_pods=reach_pods))


def test_components_find_each_other() -> None:
    plane = _plane(reach_pods=False)
    etcd = _flags(plane.etcd_command(Path("etcd")))
    server = _flags(plane.api_server_command(Path("kube-apiserver")))
    controllers = _flags(plane.controller_manager_command(Path("kube-controller-manager")))
    assert etcd["listen-client-urls"] == server["etcd-servers"] == "http://127.0.0.1:2"
    assert plane.server == f"https://{server['bind-address']}:{server['secure-port']}"
    assert server["service-account-signing-key-file"] == controllers["service-account-private-key-file"]
    assert controllers["root-ca-file"] == str(plane.ca_file)
    assert server["audit-log-path"] == str(plane.audit_log)


@pytest.mark.parametrize("reach_pods", [True, False])
def test_the_service_kubernetes_has_endpoints_only_if_pods_can_reach_them(*, reach_pods: bool) -> None:
    command = _plane(reach_pods=reach_pods).api_server_command(Path("kube-apiserver"))
    assert ("--endpoint-reconciler-type=none" in command) == (not reach_pods)


def test_a_kubeconfig_checks_the_servers_certificate() -> None:
    made = kubeconfig(server="https://127.0.0.1:1", ca_file=Path("/ca"), user="admin", token="t")
    assert made["clusters"] == [
        {"name": "swingpool", "cluster": {"server": "https://127.0.0.1:1", "certificate-authority": "/ca"}}
    ]


def test_reads_the_audit_log_but_not_a_line_that_is_still_being_written(tmp_path: Path) -> None:
    event = {
        "requestReceivedTimestamp": "2026-01-01T00:00:00Z",
        "user": {"username": "system:serviceaccount:swingpool-system:swingpool"},
        "userAgent": "swingpool",
        "verb": "patch",
        "requestURI": "/apis/apps/v1/namespaces/chat/deployments/chat-swing?fieldManager=swingpool&force=true",
        "objectRef": {"apiGroup": "apps", "resource": "deployments", "namespace": "chat", "name": "chat-swing"},
        "responseStatus": {"code": 200},
    }
    log = tmp_path / "audit.log"
    log.write_text(json.dumps(event) + "\n" + json.dumps(event)[:40])
    [read] = audit.read(log)
    assert (read.verb, read.group, read.name, read.field_manager, read.code) == (
        "patch",
        "apps",
        "chat-swing",
        "swingpool",
        200,
    )
    assert list(audit.read(tmp_path / "none.log")) == []


@pytest.mark.parametrize(
    ("program", "answer", "serves"),
    [
        ("kube-apiserver", f"Kubernetes {binaries.kubernetes_version()}", True),
        ("kube-apiserver", "Kubernetes v1.20.4", False),
        ("etcd", "etcd Version: 3.5.9\nGit SHA: x", True),
        ("etcd", "etcd Version: 3.4.30", False),
        ("helm", "v4.3.1", True),
        ("helm", "v3.9.0+g7ceeda6", False),
        ("kind", "kind version 0.33.0", True),
        ("kind", "kind version 0.20.0", False),
        ("etcd", "", False),
    ],
)
def test_programs_from_elsewhere_serve_if_their_version_fits(program: str, answer: str, serves: bool) -> None:
    assert binaries.fits(program, answer) is serves


def test_an_unknown_program_is_told_as_such() -> None:
    with pytest.raises(ClusterError, match="no module builds 'kubefed'"):
        binaries.binaries("kubefed")


def test_the_provider_can_be_forced(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(engine.CHOICE, "local")
    assert engine.provider() == "local"
    monkeypatch.setenv(engine.CHOICE, "minikube")
    with pytest.raises(ClusterError, match="SWINGPOOL_CLUSTER=minikube: choose kind or local"):
        engine.provider()


def test_an_images_name_tells_its_content_and_a_second_name_leads_back() -> None:
    assert images.name() == images.name()
    first, second = images.name(), images.second_name(images.name())
    assert first != second
    assert images.first_name(second) == images.first_name(first) == first
    assert images.other_names(second) == [second]
    assert images.other_names(first) == [images.DEVELOPMENT]


def test_what_a_crashed_run_left_is_ended_and_what_runs_is_left_alone(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("SWINGPOOL_CACHE", str(tmp_path))
    ended = subprocess.Popen(["true"])
    ended.wait()
    crashed = tmp_path / "control-planes" / f"{ended.pid}-1-aaa"
    alive = controlplane.new_directory()
    crashed.mkdir()
    orphan = Processes(crashed).start("etcd", ["sleep", "60"])
    ours = Processes(alive).start("etcd", ["sleep", "60"])
    try:
        fresh = controlplane.new_directory()
        assert start_time(orphan) is None
        assert not crashed.exists()
        assert start_time(ours) is not None
        assert fresh != alive
    finally:
        Processes(alive).stop("etcd")
