"""What a test, the demo or a person may ask of a development cluster, whichever provider stands behind it."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from subprocess import CompletedProcess
from typing import Protocol

Progress = Callable[[str], None]
"""Called with one line of text whenever something that takes time starts or ends."""


class ClusterError(RuntimeError):
    """The cluster cannot do what was asked; the message says why and what to do."""


@dataclass(frozen=True, kw_only=True)
class AuditEvent:
    """One write that the API server answered, as its audit log tells it."""

    time: str
    user: str
    user_agent: str
    field_manager: str | None
    verb: str
    group: str
    resource: str
    subresource: str
    namespace: str
    name: str
    code: int
    uri: str
    body: object = None
    """The request's body where the policy keeps it: writes to the project's own group."""


class Cluster(Protocol):
    """A whole Kubernetes with at least two nodes that own fake GPUs."""

    name: str
    """The provider: `kind` or `local`."""

    @property
    def running(self) -> bool:
        """Whether the cluster is up and its API server answers."""

    @property
    def kubeconfig(self) -> Path:
        """The administrator's kubeconfig; its server answers where `enter` leads."""

    @property
    def audit_log(self) -> Path:
        """The API server's audit log: one JSON object a line, writes only."""

    def up(self, progress: Progress) -> None:
        """Bring the cluster up, or do nothing if it is; clear first what a crashed run left. Raises ClusterError."""

    def down(self, progress: Progress) -> None:
        """Take the cluster down and leave nothing but caches. Doing it twice is harmless."""

    def load_image(self, name: str, progress: Progress) -> None:
        """Bring an image that was built on this machine to every node."""

    def enter(self) -> None:
        """Move the calling thread to where ClusterIPs or node ports answer; threads started later follow it.

        Call it once, before any thread or event loop starts. There is no way back.
        """

    def service_url(self, namespace: str, service: str, port: int) -> str:
        """Return `http://host:port` by which a Service answers those who entered."""

    def server_version(self) -> str:
        """Return the API server's version, such as `v1.37.2`."""

    def restart_api_server(self, outage_s: float = 0.0) -> None:
        """Stop the API server, keep it away for `outage_s` seconds, start it, and wait until it is ready."""

    def kill_container(self, namespace: str, pod: str, container: str, signal: int) -> None:
        """Send a signal to a container's first process: SIGKILL, SIGSTOP, SIGCONT. Raises ClusterError if none runs."""

    def audit_events(self) -> Iterator[AuditEvent]:
        """Yield every write so far, oldest first."""

    def kubectl(self, *args: str, stdin: str | None = None, check: bool = True) -> CompletedProcess[str]:
        """Run kubectl as administrator. Raises ClusterError with its words if it fails and `check` holds."""

    def helm(self, *args: str, check: bool = True) -> CompletedProcess[str]:
        """Run Helm as administrator. Raises ClusterError with its words if it fails and `check` holds."""

    def kubectl_here(self, *args: str) -> int:
        """Run kubectl as administrator on this terminal, for a person; return its exit status."""

    def diagnostics(self, directory: Path) -> None:
        """Write what helps to explain a failure into a directory: objects, events, logs."""
