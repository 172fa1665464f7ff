"""kind's configuration and the commands that the provider gives to kind and Docker, as pure functions."""

from pathlib import Path

import yaml

from e2e.cluster.local.layout import NODES, NodeSpec

CLUSTER = "swingpool"
CONTROL_PLANE = f"{CLUSTER}-control-plane"
AUDIT_LOG = "/var/log/kubernetes/audit.log"
_AUDIT_POLICY = "/etc/kubernetes/swingpool/audit-policy.yaml"
_API_SERVER_MANIFEST = "/etc/kubernetes/manifests/kube-apiserver.yaml"
_ASIDE = "/etc/kubernetes/kube-apiserver.yaml.aside"

WORKERS: dict[str, NodeSpec] = {
    f"{CLUSTER}-worker" if number == 1 else f"{CLUSTER}-worker{number}": spec
    for number, spec in enumerate(NODES, start=1)
}
"""kind's name of each worker node, and the GPUs that it shall claim to have."""


def document(*, audit_policy: Path) -> str:
    """Return kind's configuration: one control plane that keeps an audit log, and the workers with their labels."""
    mount = {"hostPath": str(audit_policy), "containerPath": _AUDIT_POLICY, "readOnly": True}
    control_plane = {
        "role": "control-plane",
        "extraMounts": [mount],
        # Each applies to its own version of kubeadm's configuration, of which a node's image has one.
        "kubeadmConfigPatches": [_api_server_patch("v1beta3"), _api_server_patch("v1beta4")],
    }
    workers = [{"role": "worker", "labels": spec.labels} for spec in WORKERS.values()]
    configuration = {"kind": "Cluster", "apiVersion": "kind.x-k8s.io/v1alpha4", "name": CLUSTER}
    return yaml.safe_dump(configuration | {"nodes": [control_plane, *workers]}, sort_keys=False)


def create(kind: Path, *, configuration: Path, kubeconfig: Path) -> list[str]:
    """Return the command that creates the cluster and waits until its nodes are Ready."""
    command = [str(kind), "create", "cluster", f"--name={CLUSTER}", f"--config={configuration}"]
    return [*command, f"--kubeconfig={kubeconfig}", "--wait=180s"]


def delete(kind: Path, *, kubeconfig: Path) -> list[str]:
    """Return the command that deletes the cluster, if there is one."""
    return [str(kind), "delete", "cluster", f"--name={CLUSTER}", f"--kubeconfig={kubeconfig}"]


def load(kind: Path, image: str) -> list[str]:
    """Return the command that brings an image of the Docker engine to every node."""
    return [str(kind), "load", "docker-image", image, f"--name={CLUSTER}"]


def gpu_patch(node: str, spec: NodeSpec) -> list[str]:
    """Return the arguments with which kubectl gives a node its GPUs."""
    patch = f'[{{"op":"add","path":"/status/capacity/nvidia.com~1gpu","value":"{spec.gpus}"}}]'
    return ["patch", "node", node, "--subresource=status", "--type=json", f"--patch={patch}"]


def stop_api_server() -> list[str]:
    """Return the command that takes the API server's manifest away, so that the kubelet ends the server."""
    return ["docker", "exec", CONTROL_PLANE, "mv", _API_SERVER_MANIFEST, _ASIDE]


def start_api_server() -> list[str]:
    """Return the command that puts the API server's manifest back."""
    return ["docker", "exec", CONTROL_PLANE, "mv", _ASIDE, _API_SERVER_MANIFEST]


def signal_container(node: str, container_id: str, signal: int) -> list[str]:
    """Return the command that sends a signal to the first process of a container, named as pod status names it."""
    identifier = container_id.removeprefix("containerd://")
    return ["docker", "exec", node, "ctr", "-n", "k8s.io", "tasks", "kill", "--signal", str(signal), identifier]


def node_address(node: str) -> list[str]:
    """Return the command that prints a node's address on Docker's network."""
    template = "{{range .NetworkSettings.Networks}}{{.IPAddress}}{{end}}"
    return ["docker", "inspect", "--format", template, node]


def outside_service(service: dict[str, object], *, name: str, namespace: str) -> dict[str, object]:
    """Return a NodePort Service beside a given one, with its selector and ports.

    Beside, since the given one belongs to whoever manages it, who would set its type back.
    """
    spec = service["spec"]
    assert isinstance(spec, dict)
    ports = [
        {key: port[key] for key in ("name", "port", "targetPort", "protocol") if key in port} for port in spec["ports"]
    ]
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": name, "namespace": namespace},
        "spec": {"type": "NodePort", "selector": spec["selector"], "ports": ports},
    }


def _api_server_patch(version: str) -> str:
    arguments = {"audit-policy-file": _AUDIT_POLICY, "audit-log-path": AUDIT_LOG}
    listed = [{"name": name, "value": value} for name, value in arguments.items()]
    volumes = [
        {
            "name": "audit-policy",
            "hostPath": _AUDIT_POLICY,
            "mountPath": _AUDIT_POLICY,
            "readOnly": True,
            "pathType": "File",
        },
        {
            "name": "audit-log",
            "hostPath": str(Path(AUDIT_LOG).parent),
            "mountPath": str(Path(AUDIT_LOG).parent),
            "readOnly": False,
            "pathType": "DirectoryOrCreate",
        },
    ]
    patch = {
        "apiVersion": f"kubeadm.k8s.io/{version}",
        "kind": "ClusterConfiguration",
        "apiServer": {"extraArgs": arguments if version == "v1beta3" else listed, "extraVolumes": volumes},
    }
    return yaml.safe_dump(patch, sort_keys=False)
