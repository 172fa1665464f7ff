"""From nothing to an installed Swingpool: cluster, image, chart. Every step is told, and bounded."""

from dataclasses import dataclass
from pathlib import Path

from e2e.cluster import images
from e2e.cluster.interface import Cluster, Progress
from e2e.system.kubernetes import Kubernetes
from e2e.system.waiting import wait_until

ROOT = Path(__file__).resolve().parents[2]
CHART = ROOT / "charts" / "swingpool"
RELEASE = "swingpool"
NAMESPACE = "swingpool-system"
INSTALL_S = 120
GONE_S = 90


@dataclass(frozen=True, slots=True)
class System:
    """A cluster with Swingpool installed, entered by this process."""

    cluster: Cluster
    kube: Kubernetes
    image: str
    """The image that is installed."""

    def apply(self, manifest: str) -> None:
        """Apply manifests as a user would, server-side and strictly. Raises ClusterError with the server's words."""
        self.cluster.kubectl("apply", "--server-side", "--validate=strict", "-f", "-", stdin=manifest)

    def fresh_namespace(self, name: str) -> None:
        """Make a namespace that refuses pods which are not restricted; one that exists is emptied first."""
        self.delete_namespace(name)
        self.cluster.kubectl("create", "namespace", name)
        self.cluster.kubectl("label", "namespace", name, "pod-security.kubernetes.io/enforce=restricted")

    def delete_namespace(self, name: str) -> None:
        """Delete a namespace with all that is in it, and wait until it is gone."""
        self.cluster.kubectl("delete", "namespace", name, "--ignore-not-found", f"--timeout={GONE_S}s")

    def wait_ready(self, namespace: str, name: str, *, limit_s: float = 90) -> None:
        """Wait until an InferenceCluster is Ready in its newest generation."""
        self.wait_condition("Ready", "True", namespace, name, limit_s=limit_s)

    def wait_condition(
        self, kind: str, status: str, namespace: str, name: str, *, limit_s: float = 60
    ) -> dict[str, str]:
        """Wait until a condition of the newest generation has a status, and return it."""
        what = f"InferenceCluster {namespace}/{name} to have {kind}={status}"
        return wait_until(
            what,
            lambda: self.kube.condition(kind, namespace=namespace, name=name),
            lambda found: found.get("status") == status,
            limit_s=limit_s,
        )

    def restarts(self) -> int:
        """Return how often containers restarted, over all pods of the cluster."""
        return sum(pod.restarts for pod in self.kube.pods(namespace="*"))


def start(cluster: Cluster, progress: Progress) -> System:
    """Bring a cluster up, build and load the image, and install the chart.

    Enters the cluster's network for good: call it before any thread or event loop starts.

    Raises:
        ClusterError: a step failed; the message says which and why.
    """
    cluster.up(progress)
    image = images.build(progress)
    cluster.load_image(image, progress)
    cluster.enter()
    install(cluster, image, progress)
    return System(cluster, Kubernetes(cluster.kubeconfig), image)


def install(cluster: Cluster, image: str, progress: Progress) -> None:
    """Install the chart, or upgrade what is installed to it, and wait until the manager is ready."""
    progress("installing the chart with Helm")
    repository, _, tag = image.rpartition(":")
    cluster.helm(
        "upgrade", "--install", RELEASE, str(CHART),
        "--namespace", NAMESPACE, "--create-namespace",
        "--set", f"image.repository={repository}", "--set-string", f"image.tag={tag}",
        "--set", "envoy.fromSwingpoolImage=true",
        "--wait", "--timeout", f"{INSTALL_S}s",
    )  # fmt: skip
