"""A manager as a process with a ServiceAccount's rights, in a namespace of its own; and what kubelets would say."""

import os
import secrets
import signal
import subprocess
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from e2e.cluster.controlplane import ControlPlane
from e2e.cluster.credentials import kubeconfig
from e2e.cluster.interface import AuditEvent, ClusterError
from e2e.ports import free_port
from swingpool.manager.permissions import FINALIZERS, LEASE_PERMISSIONS, PERMISSIONS
from tests.support import kubernetes
from tests.support.processes import swingpool
from tests.support.waiting import until


@dataclass
class Place:
    """A namespace, and a ServiceAccount there that may do what the manager does, and nothing anywhere else."""

    plane: ControlPlane
    namespace: str
    directory: Path

    @property
    def user(self) -> str:
        """Who the ServiceAccount is to the API server."""
        return f"system:serviceaccount:{self.namespace}:manager"

    def path(self, kind: str, name: str = "") -> str:
        """Return the path of a collection, or of an object."""
        return kubernetes.path(kind, self.namespace, name)

    def get(self, kind: str, name: str) -> dict[str, Any] | None:
        """Return an object, None if there is none."""
        try:
            found: dict[str, Any] = self.plane.api.call("GET", self.path(kind, name))
        except ClusterError as error:
            if "404" in str(error):
                return None
            raise
        return found

    def find(self, kind: str, selector: str = "") -> list[dict[str, Any]]:
        """Return the objects of a kind."""
        query = f"?labelSelector={selector}" if selector else ""
        items: list[dict[str, Any]] = self.plane.api.call("GET", self.path(kind) + query)["items"]
        return items

    def create(self, kind: str, obj: dict[str, Any]) -> dict[str, Any]:
        """Create an object."""
        created: dict[str, Any] = self.plane.api.call("POST", self.path(kind), obj)
        return created

    def merge(self, kind: str, name: str, patch: dict[str, Any], *, subresource: str = "") -> None:
        """Apply a merge patch as another field manager."""
        path = f"{self.path(kind, name)}{subresource}?fieldManager=somebody"
        self.plane.api.call("PATCH", path, patch, content_type="application/merge-patch+json")

    def delete(self, kind: str, name: str) -> None:
        """Delete an object."""
        self.plane.api.call("DELETE", self.path(kind, name))

    def writes(self) -> list[AuditEvent]:
        """Return the manager's writes so far, renewals of the lease aside."""
        return [e for e in self.plane.audit_events() if e.user == self.user and e.resource != "leases"]

    def condition(self, cluster: str, kind: str) -> dict[str, Any]:
        """Return a condition of a cluster, empty if it has none."""
        status = (self.get("InferenceCluster", cluster) or {}).get("status") or {}
        return next((one for one in status.get("conditions") or [] if one["type"] == kind), {})

    def kubeconfig(self, *, token_file: Path | None = None) -> Path:
        """Write a kubeconfig of the ServiceAccount, with its token in it or in a file of its own."""
        token = "" if token_file else self.token()
        document: Any = kubeconfig(server=self.plane.server, ca_file=self.plane.ca_file, user="manager", token=token)
        if token_file:
            document["users"][0]["user"] = {"tokenFile": str(token_file)}
        path = self.directory / f"kubeconfig-{secrets.token_hex(3)}"
        path.write_text(yaml.safe_dump(document))
        return path

    def token(self, *, secret: dict[str, Any] | None = None) -> str:
        """Return a token of the ServiceAccount, bound to a Secret if one is given."""
        spec: dict[str, Any] = {"expirationSeconds": 3600}
        if secret:
            spec["boundObjectRef"] = {"apiVersion": "v1", "kind": "Secret", "name": secret["metadata"]["name"]}
        path = f"{self.path('ServiceAccount', 'manager')}/token"
        answer = self.plane.api.call(
            "POST", path, {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": spec}
        )
        return str(answer["status"]["token"])


@contextmanager
def place(plane: ControlPlane, directory: Path) -> Iterator[Place]:
    """Make a namespace with a ServiceAccount that has exactly the manager's rights; remove it in the end."""
    here = Place(plane, f"managed-{secrets.token_hex(4)}", directory)
    kubernetes.make_namespace(plane, here.namespace)
    until("default ServiceAccount", lambda: here.get("ServiceAccount", "default"))
    here.create("ServiceAccount", {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "manager"}})
    rules = [
        {"apiGroups": [one.group], "resources": [one.resource], "verbs": list(one.verbs)}
        for one in (*PERMISSIONS, *LEASE_PERMISSIONS, FINALIZERS)
    ]
    version, group = "rbac.authorization.k8s.io/v1", "rbac.authorization.k8s.io"
    here.create("Role", {"apiVersion": version, "kind": "Role", "metadata": {"name": "manager"}, "rules": rules})
    here.create(
        "RoleBinding",
        {
            "apiVersion": version,
            "kind": "RoleBinding",
            "metadata": {"name": "manager"},
            "roleRef": {"apiGroup": group, "kind": "Role", "name": "manager"},
            "subjects": [{"kind": "ServiceAccount", "name": "manager", "namespace": here.namespace}],
        },
    )
    try:
        yield here
    finally:
        kubernetes.delete_namespace(plane, here.namespace)


@dataclass
class ManagerProcess:
    """`swingpool manager` in a namespace."""

    here: Place
    pod_name: str = "manager-0"
    arguments: tuple[str, ...] = ()
    config: Path | None = None
    health_port: int = field(default_factory=free_port)
    metrics_port: int = field(default_factory=free_port)

    def __post_init__(self) -> None:
        self.log_file = self.here.directory / f"{self.pod_name}-{secrets.token_hex(3)}.log"
        self.process: subprocess.Popen[bytes] | None = None

    def start(self) -> "ManagerProcess":
        """Start it; see `wait_ready`."""
        command = [
            *swingpool("manager"),
            *(f"--kubeconfig={self.config or self.here.kubeconfig()}", f"--watch-namespace={self.here.namespace}"),
            *("--swingpool-image=swingpool:test", "--host=127.0.0.1", "--log-format=json"),
            *("--swing-period=0.3", "--lease-duration=12"),  # so that nobody waits long for rounds and leaders
            *(f"--health-port={self.health_port}", f"--metrics-port={self.metrics_port}"),
            *self.arguments,
        ]
        environment = {**os.environ, "POD_NAME": self.pod_name, "POD_NAMESPACE": self.here.namespace}
        with self.log_file.open("ab") as log:
            self.process = subprocess.Popen(command, stdout=log, stderr=log, env=environment)
        return self

    def wait_ready(self) -> "ManagerProcess":
        """Wait until its readiness probe says yes."""
        until(f"the manager is ready\n{self.log()}", lambda: self.probe("/readyz")[0] == 200)
        return self

    def probe(self, path: str) -> tuple[int, str]:
        """Ask a probe; status 0 if nobody answers."""
        return self._ask(f"http://127.0.0.1:{self.health_port}{path}")

    def metric(self, series: str) -> float:
        """Return the sum of the series whose text starts so."""
        _, text = self._ask(f"http://127.0.0.1:{self.metrics_port}/metrics")
        return sum(float(line.rsplit(" ", 1)[1]) for line in text.splitlines() if line.startswith(series))

    def log(self) -> str:
        """Return what it logged."""
        return self.log_file.read_text()

    @property
    def running(self) -> bool:
        """Whether the process runs."""
        return self.process is not None and self.process.poll() is None

    def stop(self, number: signal.Signals = signal.SIGTERM) -> int:
        """Signal it and return its exit status."""
        assert self.process is not None
        if self.process.poll() is None:
            self.process.send_signal(number)
        return self.process.wait(timeout=40)

    def _ask(self, url: str) -> tuple[int, str]:
        try:
            with urllib.request.urlopen(url, timeout=5) as answer:  # noqa: S310 - loopback
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as error:
            with error:
                return error.code, error.read().decode()
        except OSError:
            return 0, ""


@contextmanager
def manager(here: Place, *arguments: str, **more: Any) -> Iterator[ManagerProcess]:
    """Run a manager until the block ends."""
    one = ManagerProcess(here, arguments=arguments, **more).start()
    try:
        yield one.wait_ready()
    finally:
        one.stop(signal.SIGKILL)


def make_ready(here: Place, pod: str, *, address: str) -> None:
    """Say of a pod what its kubelet would: it runs and is ready."""
    here.merge("Pod", pod, {"status": kubernetes.ready_status(address)}, subresource="/status")
