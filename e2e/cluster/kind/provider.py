"""The kind provider: the same cluster as the local one, in containers of a Docker engine."""

import json
import shutil
import subprocess
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import yaml

from e2e.cluster import audit, images, tools
from e2e.cluster.binaries import binaries
from e2e.cluster.commands import run
from e2e.cluster.engine import docker_answers
from e2e.cluster.interface import AuditEvent, ClusterError, Progress
from e2e.cluster.kind import config
from e2e.cluster.paths import cache, lock, silent
from e2e.cluster.processes import wait_until

_API_SERVER_S = 120.0


class KindCluster:
    """A kind cluster whose workers claim to have GPUs."""

    name = "kind"

    def __init__(self) -> None:
        self._directory = cache() / "kind"
        self._kubectl = tools.Kubectl(self.kubeconfig)
        self._helm = tools.Helm(self.kubeconfig)

    @property
    def running(self) -> bool:
        """Whether the cluster is up and its API server answers."""
        return self.kubeconfig.exists() and docker_answers() and self._api_ready()

    @property
    def kubeconfig(self) -> Path:
        """The administrator's kubeconfig."""
        return self._directory / "kubeconfig"

    @property
    def audit_log(self) -> Path:
        """A copy of the API server's audit log, as of now."""
        copy = self._directory / "audit.log"
        copy.write_text(_run(["docker", "exec", config.CONTROL_PLANE, "cat", config.AUDIT_LOG]))
        return copy

    def up(self, progress: Progress = silent) -> None:
        """Bring the cluster up, or do nothing if it is; clear first what a crashed run left. Raises ClusterError."""
        if not docker_answers():
            raise ClusterError("no Docker engine answers: start it, or set SWINGPOOL_CLUSTER=local")
        with lock("kind", progress):
            if self.running:
                progress("the kind cluster is up already")
                return
            kind = self._kind(progress)
            self._directory.mkdir(exist_ok=True)
            _run(config.delete(kind, kubeconfig=self.kubeconfig))
            policy = self._directory / "audit-policy.yaml"
            policy.write_text(yaml.safe_dump(audit.POLICY))
            configuration = self._directory / "kind.yaml"
            configuration.write_text(config.document(audit_policy=policy))
            progress("creating the kind cluster")
            _run(config.create(kind, configuration=configuration, kubeconfig=self.kubeconfig))
            for node, spec in config.WORKERS.items():
                self._kubectl.run(*config.gpu_patch(node, spec))
            progress(f"Kubernetes {self.server_version()} is up")

    def down(self, progress: Progress = silent) -> None:
        """Delete the cluster and what is kept about it. Doing it twice is harmless."""
        with lock("kind", progress):
            if self._directory.exists():
                progress("deleting the kind cluster")
                _run(config.delete(self._kind(progress), kubeconfig=self.kubeconfig))
                shutil.rmtree(self._directory)

    def load_image(self, name: str, progress: Progress = silent) -> None:
        """Bring an image of the Docker engine to every node; kind skips those that have it."""
        kind = self._kind(progress)
        progress(f"loading {name}")
        built = images.first_name(name)
        for other in images.other_names(name):
            _run(["docker", "tag", built, other])
        for each in (built, *images.other_names(name)):
            _run(config.load(kind, each))

    def enter(self) -> None:
        """Do nothing: node ports answer where we are."""

    def service_url(self, namespace: str, service: str, port: int) -> str:
        """Return the URL of a Service's port at a worker, through a NodePort Service that is put beside it."""
        given = json.loads(self._kubectl.run("-n", namespace, "get", "service", service, "-o", "json").stdout)
        beside = config.outside_service(given, name=f"{service}-outside", namespace=namespace)
        self._kubectl.run("apply", "-f", "-", stdin=json.dumps(beside))
        found = json.loads(
            self._kubectl.run("-n", namespace, "get", "service", f"{service}-outside", "-o", "json").stdout
        )
        node_port = next(each["nodePort"] for each in found["spec"]["ports"] if each["port"] == port)
        address = _run(config.node_address(next(iter(config.WORKERS)))).strip()
        return f"http://{address}:{node_port}"

    def server_version(self) -> str:
        """Return the API server's version."""
        answer = json.loads(self._kubectl.run("version", "-o", "json").stdout)
        return str(answer["serverVersion"]["gitVersion"])

    def restart_api_server(self, outage_s: float = 0.0) -> None:
        """Let the kubelet end the API server, keep it away, and let it start again; wait until it is ready."""
        _run(config.stop_api_server())
        try:
            wait_until("the API server's end", lambda: not self._api_ready(), limit_s=_API_SERVER_S)
            time.sleep(outage_s)
        finally:
            _run(config.start_api_server())
        wait_until("the API server's return", self._api_ready, limit_s=_API_SERVER_S)

    def kill_container(self, namespace: str, pod: str, container: str, signal: int) -> None:
        """Send a signal to a container's first process, on the node that runs it."""
        found = json.loads(self._kubectl.run("-n", namespace, "get", "pod", pod, "-o", "json").stdout)
        for status in found["status"].get("containerStatuses", []):
            if status["name"] == container and "running" in status["state"]:
                _run(config.signal_container(found["spec"]["nodeName"], status["containerID"], signal))
                return
        raise ClusterError(f"no node runs container {container} of pod {namespace}/{pod}")

    def audit_events(self) -> Iterator[AuditEvent]:
        """Yield every write so far, oldest first."""
        return audit.read(self.audit_log)

    def kubectl(self, *args: str, stdin: str | None = None, check: bool = True) -> subprocess.CompletedProcess[str]:
        """Run kubectl as administrator."""
        return self._kubectl.run(*args, stdin=stdin, check=check)

    def kubectl_here(self, *args: str) -> int:
        """Run kubectl as administrator on this terminal."""
        return self._kubectl.run_here(*args)

    def helm(self, *args: str, check: bool = True) -> subprocess.CompletedProcess[str]:
        """Run Helm as administrator."""
        return self._helm.run(*args, check=check)

    def diagnostics(self, directory: Path) -> None:
        """Write objects, events and logs into a directory."""
        tools.diagnostics(self._kubectl, directory)
        kind = self._kind(silent)
        _run([str(kind), "export", "logs", str(directory / "kind"), f"--name={config.CLUSTER}"])

    def _api_ready(self) -> bool:
        return self._kubectl.run("get", "--raw=/readyz", "--request-timeout=2s", check=False).returncode == 0

    def _kind(self, progress: Progress) -> Path:
        return binaries("kind", progress=progress)["kind"]


def _run(command: Sequence[str]) -> str:
    return run(command).stdout
