"""The local provider's fixed names, addresses and directories; one such cluster exists on a machine at a time."""

from dataclasses import dataclass
from pathlib import Path

from e2e.cluster.controlplane import Ports
from e2e.cluster.paths import cache

NETWORK_NAMESPACE = "swingpool"
CONTROL_PLANE_ADDRESS = "10.244.255.10"
DNS_ADDRESS = "10.244.255.53"
CLUSTER_DNS = "10.96.0.10"
POD_RANGE = "10.244.0.0/16"
# Inside a network namespace of our own no port is taken.
PORTS = Ports(api=6443, etcd_client=2379, etcd_peer=2380, controller_manager=10257, scheduler=10259)
COREDNS_READY_PORT = 8181

LOCKS = Path("/run/lock")
"""Where the lock on the machine's one cluster lies, whichever cache its users have."""

RUN = Path("/run/swingpool")
"""Sockets, whose paths must be short, and the link to the state of the cluster that runs; gone after a reboot."""


@dataclass(frozen=True, kw_only=True)
class NodeSpec:
    """A node and the GPUs that it claims to have."""

    number: int
    gpu_product: str
    gpu_memory_mib: int
    gpus: int = 8

    @property
    def name(self) -> str:
        """The node's name."""
        return f"gpu-{self.number}"

    @property
    def address(self) -> str:
        """The node's own address."""
        return f"10.244.255.{self.number}"

    @property
    def pod_range(self) -> str:
        """Where the node's pods get their addresses."""
        return f"10.244.{self.number}.0/24"

    @property
    def kubelet_port(self) -> int:
        """Where the node's kubelet serves logs and exec."""
        return 10250

    @property
    def labels(self) -> dict[str, str]:
        """The labels that GPU feature discovery would give the node, and a zone of its own."""
        return {
            "nvidia.com/gpu.present": "true",
            "nvidia.com/gpu.product": self.gpu_product,
            "nvidia.com/gpu.count": str(self.gpus),
            "nvidia.com/gpu.memory": str(self.gpu_memory_mib),
            "topology.kubernetes.io/zone": f"zone-{self.number}",
        }


NODES = (
    NodeSpec(number=1, gpu_product="NVIDIA-H100-80GB-HBM3", gpu_memory_mib=81559),
    NodeSpec(number=2, gpu_product="NVIDIA-H200", gpu_memory_mib=143771),
)


def state() -> Path:
    """Return where a cluster's state lies while it runs."""
    return cache() / "local" / "state"


def node_store(node: NodeSpec) -> Path:
    """Return where a node keeps its images from one cluster to the next."""
    return cache() / "local" / "images" / node.name


def socket(node: NodeSpec) -> Path:
    """Return the socket of a node's containerd."""
    return RUN / node.name / "containerd.sock"
