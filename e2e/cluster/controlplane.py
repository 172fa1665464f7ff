"""A real control plane: etcd, kube-apiserver, controller-manager and, where there are nodes, the scheduler.

Alone on loopback it serves the integration tests; inside a network namespace it is the head of the local provider.
"""

import os
import secrets
import shutil
import socket
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import yaml

from e2e.cluster import audit
from e2e.cluster.api import Api, Runner, here
from e2e.cluster.binaries import CONTROL_PLANE, binaries
from e2e.cluster.credentials import ADMIN, USERS, Credentials, User
from e2e.cluster.interface import AuditEvent, ClusterError, Progress
from e2e.cluster.paths import cache, lock, silent
from e2e.cluster.processes import Processes, start_time

SERVICE_RANGE = "10.96.0.0/16"
_API_SERVER_PATIENCE_S = 1.0
"""How long an API server may wind down; it would wait for open watches, and what it was told lies in etcd already."""


@dataclass(frozen=True, kw_only=True)
class Ports:
    """Where the control plane listens."""

    api: int
    etcd_client: int
    etcd_peer: int
    controller_manager: int
    scheduler: int


@dataclass(frozen=True, kw_only=True)
class Settings:
    """What makes one control plane differ from another."""

    directory: Path
    ports: Ports
    address: str = "127.0.0.1"
    """Where clients reach the API server; the address that its certificate names."""
    reach_pods: bool = False
    """Whether pods will call the API server through the Service `kubernetes`."""
    scheduler: bool = False
    users: tuple[User, ...] = USERS
    prefix: Sequence[str] = ()
    """Put before every command: how to start a process where it shall run."""
    runner: Runner = field(default=here)


class ControlPlane:
    """One control plane, its state in one directory, its processes recorded there."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._processes = Processes(settings.directory, prefix=settings.prefix)
        self._credentials = Credentials(settings.directory / "credentials", settings.users)
        self.ca_file = settings.directory / "certificates" / "apiserver.crt"
        self.server = f"https://{settings.address}:{settings.ports.api}"
        self.audit_log = settings.directory / "audit.log"

    @property
    def kubeconfig(self) -> Path:
        """The administrator's kubeconfig."""
        return self.kubeconfig_of(ADMIN)

    @property
    def token(self) -> str:
        """The administrator's token."""
        return self._credentials.token(ADMIN)

    @property
    def api(self) -> Api:
        """Calls to the API server as administrator."""
        return Api(server=self.server, token=self.token, ca_file=self.ca_file, runner=self._settings.runner)

    @property
    def running(self) -> bool:
        """Whether the API server runs and is ready."""
        return self._processes.pid("kube-apiserver") is not None and self.api.ready()

    @property
    def kubelet_client_ca(self) -> Path:
        """The authority by which a kubelet knows the API server."""
        return self._credentials.kubelet_client_certificate

    def kubeconfig_of(self, user: str) -> Path:
        """Return the kubeconfig of one of the users in the settings."""
        return self._credentials.kubeconfig(user)

    def start(self, progress: Progress = silent) -> None:
        """Start everything anew in the directory and wait for the API server. Raises ClusterError if that fails."""
        programs = binaries(
            *CONTROL_PLANE, *(["kube-scheduler"] if self._settings.scheduler else []), progress=progress
        )
        self._settings.directory.mkdir(parents=True, exist_ok=True)
        self._credentials.create()
        (self._settings.directory / "audit-policy.yaml").write_text(yaml.safe_dump(audit.POLICY))
        self._processes.start("etcd", self.etcd_command(programs["etcd"]))
        self._start_api_server(programs["kube-apiserver"])
        kcm = "kube-controller-manager"
        self._processes.start(kcm, self.controller_manager_command(programs[kcm]))
        if self._settings.scheduler:
            self._processes.start("kube-scheduler", self.scheduler_command(programs["kube-scheduler"]))

    def wait_for_controllers(self) -> None:
        """Wait until the controllers work: until there is a default ServiceAccount, without which pods are refused."""
        path = "/api/v1/namespaces/default/serviceaccounts/default"
        self._processes.wait_ready("kube-controller-manager", lambda: self._exists(path), limit_s=60.0)

    def stop(self) -> None:
        """End every process; what they wrote stays."""
        for name in ("kube-scheduler", "kube-controller-manager"):
            self._processes.stop(name)
        self._processes.stop("kube-apiserver", patience_s=_API_SERVER_PATIENCE_S)
        self._processes.stop("etcd")

    def stop_api_server(self) -> None:
        """End the API server alone; what it stored stays in etcd."""
        self._processes.stop("kube-apiserver", patience_s=_API_SERVER_PATIENCE_S)

    def start_api_server(self) -> None:
        """Start the API server again and wait until it is ready."""
        self._start_api_server(binaries("kube-apiserver")["kube-apiserver"])

    def restart_api_server(self, outage_s: float = 0.0) -> None:
        """End the API server, leave it away for `outage_s` seconds, start it again and wait until it is ready."""
        self.stop_api_server()
        time.sleep(outage_s)
        self.start_api_server()

    def audit_events(self) -> Iterator[AuditEvent]:
        """Yield every write so far, oldest first."""
        return audit.read(self.audit_log)

    def etcd_command(self, program: Path) -> list[str]:
        """Return etcd's command line."""
        client = f"http://127.0.0.1:{self._settings.ports.etcd_client}"
        peer = f"http://127.0.0.1:{self._settings.ports.etcd_peer}"
        return [
            str(program),
            f"--data-dir={self._settings.directory / 'etcd'}",
            f"--listen-client-urls={client}",
            f"--advertise-client-urls={client}",
            f"--listen-peer-urls={peer}",
            f"--initial-advertise-peer-urls={peer}",
            f"--initial-cluster=default={peer}",
            "--unsafe-no-fsync",  # nothing here outlives the machine's next start
            "--log-level=warn",
        ]

    def api_server_command(self, program: Path) -> list[str]:
        """Return kube-apiserver's command line."""
        settings, credentials = self._settings, self._credentials
        command = [
            str(program),
            f"--etcd-servers=http://127.0.0.1:{settings.ports.etcd_client}",
            f"--secure-port={settings.ports.api}",
            f"--bind-address={settings.address}",
            f"--advertise-address={settings.address}",
            f"--cert-dir={self.ca_file.parent}",
            "--service-account-issuer=https://kubernetes.default.svc",
            f"--service-account-key-file={credentials.service_account_key}",
            f"--service-account-signing-key-file={credentials.service_account_key}",
            f"--token-auth-file={credentials.token_file}",
            "--authorization-mode=Node,RBAC",
            "--enable-admission-plugins=NodeRestriction",
            f"--service-cluster-ip-range={SERVICE_RANGE}",
            "--allow-privileged=true",
            "--kubelet-preferred-address-types=InternalIP",
            f"--kubelet-client-certificate={credentials.kubelet_client_certificate}",
            f"--kubelet-client-key={credentials.kubelet_client_key}",
            f"--audit-policy-file={settings.directory / 'audit-policy.yaml'}",
            f"--audit-log-path={self.audit_log}",
            "--profiling=false",
        ]
        # A loopback address cannot stand in an EndpointSlice.
        return command if settings.reach_pods else [*command, "--endpoint-reconciler-type=none"]

    def controller_manager_command(self, program: Path) -> list[str]:
        """Return kube-controller-manager's command line."""
        off = ["node-ipam-controller"]
        if not self._settings.scheduler:  # no nodes either: it would delete the pods that tests bind to one
            off.append("pod-garbage-collector-controller")
        return [
            str(program),
            f"--kubeconfig={self.kubeconfig_of('system:kube-controller-manager')}",
            f"--service-account-private-key-file={self._credentials.service_account_key}",
            f"--root-ca-file={self.ca_file}",
            "--use-service-account-credentials=true",
            f"--controllers={','.join(['*', *(f'-{one}' for one in off)])}",
            "--leader-elect=false",
            "--bind-address=127.0.0.1",
            f"--secure-port={self._settings.ports.controller_manager}",
        ]

    def scheduler_command(self, program: Path) -> list[str]:
        """Return kube-scheduler's command line."""
        return [
            str(program),
            f"--kubeconfig={self.kubeconfig_of('system:kube-scheduler')}",
            "--leader-elect=false",
            "--bind-address=127.0.0.1",
            f"--secure-port={self._settings.ports.scheduler}",
        ]

    def _start_api_server(self, program: Path) -> None:
        self._processes.start("kube-apiserver", self.api_server_command(program))
        self._processes.wait_ready("kube-apiserver", self._answers, limit_s=60.0)

    def _answers(self) -> bool:
        if not self.ca_file.exists():
            return False
        if not self.kubeconfig.exists():
            self._credentials.write_kubeconfigs(server=self.server, ca_file=self.ca_file)
        return self.api.ready()

    def _exists(self, path: str) -> bool:
        try:
            self.api.call("GET", path)
        except ClusterError:
            return False
        return True


@contextmanager
def on_loopback(progress: Progress = silent) -> Iterator[ControlPlane]:
    """Run a control plane on free loopback ports and remove every trace of it; clear first what crashed runs left."""
    directory = new_directory()
    plane = ControlPlane(Settings(directory=directory, ports=Ports(**_free_ports()), prefix=_die_with_us()))
    try:
        plane.start(progress)
        plane.wait_for_controllers()
        yield plane
    finally:
        plane.stop()
        shutil.rmtree(directory)


def new_directory() -> Path:
    """Return a fresh directory for a control plane, having ended what earlier runs left that crashed."""
    runs = cache() / "control-planes"
    with lock("control-planes"):
        runs.mkdir(exist_ok=True)
        for directory in runs.iterdir():
            pid, _, started = directory.name.partition("-")
            if start_time(int(pid)) != started.partition("-")[0]:
                processes = Processes(directory)
                for name in processes.names():
                    processes.stop(name, patience_s=1.0)
                shutil.rmtree(directory)
        directory = runs / f"{os.getpid()}-{start_time(os.getpid())}-{secrets.token_hex(3)}"
        directory.mkdir(mode=0o700)
    return directory


def _die_with_us() -> tuple[str, ...]:
    """Return a prefix that ends a process when this thread ends, where the machine has one."""
    return ("setpriv", "--pdeathsig", "KILL", "--") if shutil.which("setpriv") else ()


def _free_ports() -> dict[str, int]:
    sockets = {name: socket.socket() for name in Ports.__dataclass_fields__}
    try:
        for each in sockets.values():
            each.bind(("127.0.0.1", 0))
        return {name: each.getsockname()[1] for name, each in sockets.items()}
    finally:
        for each in sockets.values():
            each.close()
