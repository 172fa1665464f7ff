"""The configuration files of containerd, the kubelets, the pod network and CoreDNS, as pure functions."""

import json
from collections.abc import Iterable
from pathlib import Path

from e2e.cluster.local.cgroups import node_group
from e2e.cluster.local.layout import CLUSTER_DNS, COREDNS_READY_PORT, DNS_ADDRESS, NodeSpec

PAUSE_IMAGE = "localhost/swingpool-pause:1"

KERNEL_TUNABLES = {
    "vm/overcommit_memory": "1",
    "vm/panic_on_oom": "0",
    "kernel/panic": "10",
    "kernel/panic_on_oops": "1",
    "kernel/keys/root_maxkeys": "1000000",
    "kernel/keys/root_maxbytes": "25000000",
}
"""What a kubelet wants below /proc/sys, and would set on the host for good if it saw anything else."""


def containerd(*, store: Path, run: Path, socket: Path, cni_conf: Path, cni_bin: Path) -> str:
    """Return a node's containerd configuration."""
    return f"""version = 2
root = {json.dumps(str(store))}
state = {json.dumps(str(run))}

[grpc]
  address = {json.dumps(str(socket))}

[plugins."io.containerd.internal.v1.opt"]
  path = {json.dumps(str(run / "opt"))}

[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = {json.dumps(PAUSE_IMAGE)}
  restrict_oom_score_adj = true
  disable_apparmor = true
  netns_mounts_under_state_dir = true
  [plugins."io.containerd.grpc.v1.cri".cni]
    bin_dir = {json.dumps(str(cni_bin))}
    conf_dir = {json.dumps(str(cni_conf))}
"""


def containerd_without_kubernetes(configuration: str) -> str:
    """Return a configuration under which containerd keeps its store but takes up no pods of an earlier run."""
    return 'disabled_plugins = ["io.containerd.grpc.v1.cri"]\n' + configuration


def pod_network(node: NodeSpec, *, leases: Path) -> dict[str, object]:
    """Return a node's pod network: a routed pair of devices for each pod, which needs no bridge and no filter on it."""
    address_management = {
        "type": "host-local",
        "dataDir": str(leases),
        "ranges": [[{"subnet": node.pod_range}]],
        "routes": [{"dst": "0.0.0.0/0"}],
    }
    plugins = [{"type": "ptp", "ipMasq": False, "ipam": address_management}]
    return {"cniVersion": "0.4.0", "name": "pods", "plugins": plugins}


def kubelet(node: NodeSpec, *, directory: Path, socket: Path, client_ca: Path) -> dict[str, object]:
    """Return a node's KubeletConfiguration."""
    return {
        "apiVersion": "kubelet.config.k8s.io/v1beta1",
        "kind": "KubeletConfiguration",
        "address": node.address,
        "port": node.kubelet_port,
        "healthzPort": 0,
        "authentication": {
            "anonymous": {"enabled": False},
            "webhook": {"enabled": True},
            "x509": {"clientCAFile": str(client_ca)},
        },
        "authorization": {"mode": "Webhook"},
        "containerRuntimeEndpoint": f"unix://{socket}",
        "cgroupDriver": "cgroupfs",
        "cgroupRoot": f"/{node_group(node.name)}",
        "failCgroupV1": False,
        "failSwapOn": False,
        "localStorageCapacityIsolation": False,
        "makeIPTablesUtilChains": False,
        "protectKernelDefaults": True,
        "clusterDNS": [CLUSTER_DNS],
        "clusterDomain": "cluster.local",
        "resolvConf": str(directory / "resolv.conf"),
        "podLogsDir": str(directory / "pod-logs"),
        "volumePluginDir": str(directory / "volume-plugins"),
        # A full disk is the machine's affair; images stay until the cache goes.
        "evictionHard": {"memory.available": "50Mi", "nodefs.available": "0%", "imagefs.available": "0%"},
        "imageGCHighThresholdPercent": 100,
        "maxPods": 100,
        "nodeStatusUpdateFrequency": "5s",
    }


def corefile(kubeconfig: Path) -> str:
    """Return CoreDNS's configuration: the cluster's own names, nothing beyond."""
    return f""".:53 {{
    bind {DNS_ADDRESS}
    errors
    ready 127.0.0.1:{COREDNS_READY_PORT}
    kubernetes cluster.local in-addr.arpa ip6.arpa {{
        kubeconfig {kubeconfig} swingpool
        ttl 2
    }}
}}
"""


def node_mounts(*, directory: Path, kept: Iterable[Path]) -> str:
    """Return the script that gives a node a view of the file system in which what it writes stays its own.

    Runs in a fresh mount namespace and then becomes the command that follows it. `/run`, `/var/lib` and `/var/log` are
    covered, except for the `kept` directories below them; the kernel's settings are covered with what a kubelet wants.
    """
    lines = ["set -eu"]
    for number, covered in enumerate(map(Path, ("/run", "/var/lib", "/var/log"))):
        cover = directory / "covers" / str(number)
        lines += [f"mkdir -p {cover}", f"mount -t tmpfs -o mode=755 swingpool {cover}"]
        for path in kept:
            if path.is_relative_to(covered):
                inner = cover / path.relative_to(covered)
                lines += [f"mkdir -p {inner}", f"mount --rbind {path} {inner}"]
        lines.append(f"mount --rbind {cover} {covered}")
    for name, value in KERNEL_TUNABLES.items():
        file = directory / "tunables" / name.replace("/", ".")
        lines += [f"mkdir -p {file.parent}", f"echo {value} >{file}", f"mount --bind {file} /proc/sys/{name}"]
    lines += ["mount --make-rshared /", 'exec "$@"', ""]
    return "\n".join(lines)
