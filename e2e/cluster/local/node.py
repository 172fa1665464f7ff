"""A node: containerd and a kubelet in a mount namespace of their own, and the images that it keeps between clusters."""

import contextlib
import json
import shutil
import subprocess
from pathlib import Path
from subprocess import DEVNULL, PIPE

import yaml

from e2e.cluster import buildah
from e2e.cluster.api import Api
from e2e.cluster.commands import run
from e2e.cluster.interface import ClusterError
from e2e.cluster.local import cgroups, config, network, packages
from e2e.cluster.local.layout import CLUSTER_DNS, RUN, NodeSpec, node_store, socket, state
from e2e.cluster.paths import cache
from e2e.cluster.processes import Processes

_STALE = "io.containerd.grpc.v1.cri"
"""The folder of containerd's store that remembers pods; not empty if a cluster ended with pods in it."""


class Node:
    """One node of the local cluster."""

    def __init__(self, spec: NodeSpec) -> None:
        self.spec = spec
        self._directory = state() / spec.name
        self._socket = socket(spec)
        self._containerd = f"containerd-{spec.name}"
        self._kubelet = f"kubelet-{spec.name}"
        self._processes = Processes(state(), prefix=(*network.PREFIX, *cgroups.entering()))

    def start_runtime(self, pause_archive: Path) -> None:
        """Write the node's files, clear its store of an earlier cluster's pods, and start containerd."""
        self._write_files()
        if any((node_store(self.spec) / _STALE).glob("*/*")):
            self._purge()
        self._start_containerd("containerd.toml")
        if config.PAUSE_IMAGE not in self.images():
            self.import_archive(pause_archive)

    def start_kubelet(self, program: Path, *, kubeconfig: Path, client_ca: Path) -> None:
        """Start the node's kubelet; the node registers itself a moment later."""
        settings = config.kubelet(self.spec, directory=self._directory, socket=self._socket, client_ca=client_ca)
        file = self._directory / "kubelet.yaml"
        file.write_text(yaml.safe_dump(settings))
        labels = ",".join(f"{key}={value}" for key, value in self.spec.labels.items())
        command = [
            *self.mount_namespace(),
            str(program),
            f"--config={file}",
            f"--kubeconfig={kubeconfig}",
            f"--hostname-override={self.spec.name}",
            f"--root-dir={self._directory / 'kubelet'}",
            f"--cert-dir={self._directory / 'certificates'}",
            f"--node-ip={self.spec.address}",
            f"--node-labels={labels}",
        ]
        self._processes.start(self._kubelet, command)

    def finish(self, api: Api) -> None:
        """Wait until the node is Ready and give it its GPUs. Raises ClusterError with the kubelet's words otherwise."""
        self._processes.wait_ready(self._kubelet, lambda: self._ready(api), limit_s=60.0)
        operation = {"op": "add", "path": "/status/capacity/nvidia.com~1gpu", "value": str(self.spec.gpus)}
        path = f"/api/v1/nodes/{self.spec.name}/status"
        api.call("PATCH", path, [operation], content_type="application/json-patch+json")

    def stop(self) -> None:
        """End the kubelet, then containerd; containers and their shims live on until their control group is ended."""
        self._processes.stop(self._kubelet)
        self._processes.stop(self._containerd)

    def mount_namespace(self) -> tuple[str, ...]:
        """Return a prefix that starts a command in the node's mount namespace."""
        return ("nsenter", f"--mount=/proc/{self._processes.pid(self._containerd)}/ns/mnt", "--")

    def images(self) -> set[str]:
        """Return the names of the images that the node has."""
        return set(self._ctr("images", "list", "-q").split())

    def import_archive(self, archive: Path) -> None:
        """Bring the images of an archive to the node."""
        self._ctr("images", "import", str(archive))

    def import_image(self, name: str) -> None:
        """Bring an image that buildah built to the node, leaving out the layers that it has."""
        present = set(self._ctr("content", "list", "-q").split())
        command = [*self._ctr_command(), "images", "import", "-"]
        with subprocess.Popen(command, stdin=PIPE, stdout=DEVNULL, stderr=PIPE) as importing:
            assert importing.stdin is not None
            assert importing.stderr is not None
            with contextlib.suppress(BrokenPipeError), importing.stdin:
                buildah.store().export(name, importing.stdin, present=present)
            words = importing.stderr.read().decode()
        if importing.returncode != 0:
            raise ClusterError(f"{' '.join(command)}: {words.strip()}")

    def tag_image(self, name: str, other: str) -> None:
        """Give an image another name, which it takes from any image that has it."""
        self._ctr("images", "tag", "--force", name, other)

    def container_pid(self, namespace: str, pod: str, container: str) -> int | None:
        """Return the id, on this machine, of the first process of a pod's container, or None if none runs here."""
        wanted = {"pod.namespace": namespace, "pod.name": pod, "container.name": container}
        terms = [f'labels."io.kubernetes.{key}"=={json.dumps(value)}' for key, value in wanted.items()]
        ids = set(self._ctr("containers", "list", "-q", ",".join(terms)).split())
        for row in self._ctr("tasks", "list").splitlines()[1:]:
            task, pid, status = row.split()[:3]
            if task in ids and status in {"RUNNING", "PAUSED"}:
                return int(pid)
        return None

    def _write_files(self) -> None:
        self._directory.mkdir(parents=True)
        self._socket.parent.mkdir(parents=True, exist_ok=True)
        node_store(self.spec).mkdir(parents=True, exist_ok=True)
        cni_bin = packages.cni_folder()
        if cni_bin is None:
            raise ClusterError("the pod network's plugins are missing: install containernetworking-plugins")
        cni_conf = self._directory / "cni"
        cni_conf.mkdir()
        pods = config.pod_network(self.spec, leases=self._directory / "leases")
        (cni_conf / "10-pods.conflist").write_text(json.dumps(pods))
        (self._directory / "resolv.conf").write_text(f"nameserver {CLUSTER_DNS}\n")
        containerd = config.containerd(
            store=node_store(self.spec),
            run=self._socket.parent / "state",
            socket=self._socket,
            cni_conf=cni_conf,
            cni_bin=cni_bin,
        )
        (self._directory / "containerd.toml").write_text(containerd)
        (self._directory / "maintenance.toml").write_text(config.containerd_without_kubernetes(containerd))
        mounts = config.node_mounts(directory=self._directory, kept=[RUN, cache()])
        (self._directory / "mounts.sh").write_text(mounts)

    def _start_containerd(self, configuration: str) -> None:
        unshare = (
            "unshare",
            "--mount",
            "--propagation",
            "private",
            "--",
            "/bin/sh",
            str(self._directory / "mounts.sh"),
        )
        command = [*unshare, "containerd", "--config", str(self._directory / configuration)]
        self._processes.start(self._containerd, command)
        self._processes.wait_ready(self._containerd, self._runtime_answers, limit_s=60.0)

    def _purge(self) -> None:
        """Remove the containers that an earlier cluster left in the store; its images stay."""
        self._start_containerd("maintenance.toml")
        if containers := self._ctr("containers", "list", "-q").split():
            self._ctr("containers", "delete", *containers)
        self._processes.stop(self._containerd)
        shutil.rmtree(node_store(self.spec) / _STALE)

    def _runtime_answers(self) -> bool:
        if not self._socket.exists():
            return False
        try:
            self._ctr("version")
        except ClusterError:
            return False
        return True

    def _ready(self, api: Api) -> bool:
        try:
            node = api.call("GET", f"/api/v1/nodes/{self.spec.name}")
        except ClusterError:
            return False
        conditions = node.get("status", {}).get("conditions", [])
        return any(each["type"] == "Ready" and each["status"] == "True" for each in conditions)

    def _ctr(self, *arguments: str) -> str:
        return run([*self._ctr_command(), *arguments]).stdout

    def _ctr_command(self) -> list[str]:
        return ["ctr", "--address", str(self._socket), "--namespace", "k8s.io"]
