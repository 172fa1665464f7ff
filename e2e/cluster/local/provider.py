"""The local provider: brings a whole Kubernetes up inside namespaces of its own and takes it down without a trace."""

import os
import shutil
import subprocess
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

from e2e.cluster import images, tools
from e2e.cluster.binaries import CONTROL_PLANE, binaries
from e2e.cluster.controlplane import ControlPlane, Settings
from e2e.cluster.credentials import USERS, node_user
from e2e.cluster.interface import AuditEvent, ClusterError, Progress
from e2e.cluster.local import cgroups, network, packages, pause
from e2e.cluster.local.layout import CONTROL_PLANE_ADDRESS, DNS_ADDRESS, LOCKS, NODES, PORTS, RUN, NodeSpec, state
from e2e.cluster.local.node import Node
from e2e.cluster.local.services import Services
from e2e.cluster.paths import lock, silent
from e2e.cluster.processes import Processes

_PROGRAMS = (*CONTROL_PLANE, "kube-scheduler", "kubelet", "kube-proxy", "coredns", "helm", "pause")


class LocalCluster:
    """etcd, API server, controllers, scheduler, two nodes with fake GPUs, kube-proxy and CoreDNS on this machine."""

    name = "local"

    def __init__(self) -> None:
        self._plane = ControlPlane(
            Settings(
                directory=state() / "control-plane",
                ports=PORTS,
                address=CONTROL_PLANE_ADDRESS,
                reach_pods=True,
                scheduler=True,
                users=(*USERS, *(node_user(spec.name) for spec in NODES)),
                prefix=(*network.PREFIX, *cgroups.entering()),
                runner=network.inside,
            )
        )
        self._nodes = [Node(spec) for spec in NODES]
        self._services = Services()
        self._processes = Processes(state())
        self._kubectl = tools.Kubectl(self._plane.kubeconfig, prefix=network.PREFIX)
        self._helm = tools.Helm(self._plane.kubeconfig, prefix=network.PREFIX)

    @property
    def running(self) -> bool:
        """Whether the cluster came up in full, its daemons run and its API server answers."""
        return (
            _complete(state()).exists()
            and network.HANDLE.exists()
            and self._processes.all_run()
            and self._plane.running
        )

    @property
    def kubeconfig(self) -> Path:
        """The administrator's kubeconfig; its server answers inside the network namespace only."""
        return self._plane.kubeconfig

    @property
    def audit_log(self) -> Path:
        """The API server's audit log."""
        return self._plane.audit_log

    def up(self, progress: Progress = silent) -> None:
        """Bring the cluster up, or do nothing if it is; clear first what a crashed run left. Raises ClusterError."""
        packages.ensure(progress)
        with lock("swingpool-cluster", progress, directory=LOCKS):
            if self.running:
                progress("the local cluster is up already")
                return
            if _traces():
                progress("clearing what an earlier cluster left")
                self._clear()
            programs = binaries(*_PROGRAMS, progress=progress)
            pause_archive = pause.archive(progress)
            try:
                self._start(programs, pause_archive, progress)
            except BaseException:
                self._keep_logs(progress)
                self._clear()
                raise

    def down(self, progress: Progress = silent) -> None:
        """Take the cluster down and leave nothing but caches. Doing it twice is harmless."""
        with lock("swingpool-cluster", progress, directory=LOCKS):
            if _traces():
                progress("taking the local cluster down")
                self._clear()

    def load_image(self, name: str, progress: Progress = silent) -> None:
        """Bring an image that was built on this machine to every node that lacks it."""
        built = images.first_name(name)
        lacking = [node for node in self._nodes if built not in node.images()]
        if lacking:
            progress(f"loading {built} into {' and '.join(node.spec.name for node in lacking)}")
            _in_parallel(lambda node: node.import_image(built), lacking)
        for other in images.other_names(name):
            _in_parallel(partial(Node.tag_image, name=built, other=other), self._nodes)

    def enter(self) -> None:
        """Move the calling thread into the network namespace, where ClusterIPs and pods' addresses answer."""
        network.enter()

    def service_url(self, namespace: str, service: str, port: int) -> str:
        """Return the URL of a Service's port at its ClusterIP."""
        found = self._plane.api.call("GET", f"/api/v1/namespaces/{namespace}/services/{service}")
        return f"http://{found['spec']['clusterIP']}:{port}"

    def server_version(self) -> str:
        """Return the API server's version."""
        return str(self._plane.api.call("GET", "/version")["gitVersion"])

    def restart_api_server(self, outage_s: float = 0.0) -> None:
        """Stop the API server, keep it away for `outage_s` seconds, start it, and wait until it is ready."""
        self._plane.restart_api_server(outage_s)

    def kill_container(self, namespace: str, pod: str, container: str, signal: int) -> None:
        """Send a signal to a container's first process."""
        pids = (node.container_pid(namespace, pod, container) for node in self._nodes)
        pid = next((pid for pid in pids if pid is not None), None)
        if pid is None:
            raise ClusterError(f"no node runs container {container} of pod {namespace}/{pod}")
        os.kill(pid, signal)

    def audit_events(self) -> Iterator[AuditEvent]:
        """Yield every write so far, oldest first."""
        return self._plane.audit_events()

    def kubectl(self, *args: str, stdin: str | None = None, check: bool = True) -> subprocess.CompletedProcess[str]:
        """Run kubectl as administrator."""
        return self._kubectl.run(*args, stdin=stdin, check=check)

    def helm(self, *args: str, check: bool = True) -> subprocess.CompletedProcess[str]:
        """Run Helm as administrator."""
        return self._helm.run(*args, check=check)

    def kubectl_here(self, *args: str) -> int:
        """Run kubectl as administrator on this terminal."""
        return self._kubectl.run_here(*args)

    def diagnostics(self, directory: Path) -> None:
        """Write objects, events and logs into a directory."""
        tools.diagnostics(self._kubectl, directory)
        _copy_logs(directory)

    def _start(self, programs: dict[str, Path], pause_archive: Path, progress: Progress) -> None:
        state().mkdir(parents=True)
        RUN.mkdir(parents=True, exist_ok=True)
        (RUN / "state").symlink_to(state())
        cgroups.create([spec.name for spec in NODES])
        network.create([CONTROL_PLANE_ADDRESS, DNS_ADDRESS, *(spec.address for spec in NODES)])
        progress("starting the control plane and the container runtimes")
        with ThreadPoolExecutor(1) as aside:
            runtimes = aside.submit(_in_parallel, lambda node: node.start_runtime(pause_archive), self._nodes)
            self._plane.start(progress)
            runtimes.result()
        progress(f"starting the nodes {' and '.join(spec.name for spec in NODES)}")
        for node in self._nodes:
            kubeconfig = self._plane.kubeconfig_of(f"system:node:{node.spec.name}")
            node.start_kubelet(programs["kubelet"], kubeconfig=kubeconfig, client_ca=self._plane.kubelet_client_ca)
        self._services.start_proxy(
            programs["kube-proxy"],
            kubeconfig=self._plane.kubeconfig_of("system:kube-proxy"),
            mount_namespace=self._nodes[0].mount_namespace(),
        )
        dns_kubeconfig = self._plane.kubeconfig_of("coredns")
        self._services.start_dns(programs["coredns"], kubeconfig=dns_kubeconfig, api=self._plane.api)
        _in_parallel(lambda node: node.finish(self._plane.api), self._nodes)
        self._services.finish()
        self._plane.wait_for_controllers()
        _complete(state()).touch()
        progress(f"Kubernetes {self.server_version()} is up: {', '.join(map(_describe, NODES))}")

    def _clear(self) -> None:
        """Remove every trace of a cluster, however it ended, but the caches. Raises ClusterError if it is another's."""
        other = (RUN / "state").resolve()
        if other != state() and _complete(other).exists() and Processes(other).all_run():
            owner = f"SWINGPOOL_CACHE={other.parents[1]}"
            raise ClusterError(f"a cluster with another cache is up: `{owner} python -m e2e.cluster down` first")
        if state().exists():
            for node in self._nodes:
                node.stop()
            self._services.stop()
            self._plane.stop()
        cgroups.kill_all()
        cgroups.remove()
        network.remove()
        for directory in {state(), (RUN / "state").resolve()}:
            shutil.rmtree(directory, ignore_errors=True)
        shutil.rmtree(RUN, ignore_errors=True)

    def _keep_logs(self, progress: Progress) -> None:
        kept = state().with_name("last-failure")
        shutil.rmtree(kept, ignore_errors=True)
        _copy_logs(kept)
        progress(f"the components' logs are in {kept}")


def _traces() -> bool:
    return RUN.exists() or network.HANDLE.exists() or state().exists() or cgroups.exist()


def _complete(directory: Path) -> Path:
    """Return the file that is there once a cluster with that state came up in full; a crash may come before."""
    return directory / "complete"


def _copy_logs(directory: Path) -> None:
    directory.mkdir(parents=True, exist_ok=True)
    for log in (*state().glob("*.log"), *(state() / "control-plane").glob("*.log")):
        shutil.copy(log, directory / log.name)


def _in_parallel(work: Callable[[Node], None], nodes: list[Node]) -> None:
    with ThreadPoolExecutor(len(nodes)) as pool:
        list(pool.map(work, nodes))


def _describe(spec: NodeSpec) -> str:
    return f"{spec.name} with {spec.gpus} x {spec.gpu_product}"
